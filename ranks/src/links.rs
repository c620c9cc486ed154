//! The connections of one rank: their threads, and the state received from other ranks.
//!
//! Each connection has a reader thread and a writer thread, so a rank never waits for a peer that
//! does not read. The writer sends heartbeats while it has nothing else to send; the reader reports
//! a loss if nothing arrives for too long.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::RanksError;
use crate::frame::{Frame, MAX_FRAME_BYTES};
use crate::join::Joined;
use crate::lost::Lost;
use crate::member::Member;

/// Maximum time that a leaving rank waits until its peers have read its last message.
const MAX_BYE: Duration = Duration::from_secs(1);

/// Maximum number of bytes that are reserved for a message before it arrives.
const RESERVED_BYTES: u64 = 16 << 20;

/// Called when a rank is lost.
pub(crate) type OnLoss = Box<dyn FnOnce(&Lost) + Send>;

/// A frame, and the bytes that follow it.
type Sent = (Frame, Arc<Vec<u8>>);

/// The state that all threads of a rank share.
pub(crate) struct Links {
    rank: usize,
    pub(crate) members: Vec<Member>,
    timeout: Duration,
    /// Peers by rank: on rank 0 all other ranks, on other ranks only rank 0.
    peers: Vec<Option<Peer>>,
    state: Mutex<State>,
    changed: Condvar,
    lost: OnceLock<Lost>,
}

struct Peer {
    stream: TcpStream,
    out: Sender<Sent>,
}

#[derive(Default)]
struct State {
    /// By rank.
    news: Vec<PeerState>,
    step: u64,
    doing: String,
    /// The description of what this rank is waiting for, if anything.
    waiting: Option<String>,
    /// True while a loss is being reported.
    losing: bool,
    /// True if this rank is leaving or has left.
    leaving: bool,
    on_loss: Option<OnLoss>,
}

/// The last known state of a peer, and the messages received from it.
#[derive(Default)]
struct PeerState {
    /// Received messages: operation and bytes.
    inbox: VecDeque<(String, Vec<u8>)>,
    step: u64,
    doing: String,
    /// True if the peer has sent its leave message, or its connection has ended.
    left: bool,
    /// True once all output queued for the peer is written, or writing has failed.
    told: bool,
}

impl Links {
    /// Starts the threads of all connections.
    pub(crate) fn start(
        rank: usize,
        joined: Joined,
        timeout: Duration,
    ) -> Result<Arc<Self>, RanksError> {
        let mut threads = Vec::new();
        let mut peers = Vec::new();
        for (peer, stream) in joined.streams.into_iter().enumerate() {
            let Some(stream) = stream else {
                peers.push(None);
                continue;
            };
            let handles = two_handles(&stream, timeout / 20).map_err(|error| {
                RanksError::Join(format!("the connection to rank {peer} broke: {error}"))
            })?;
            let (out, queue) = channel();
            threads.push((peer, handles, queue));
            peers.push(Some(Peer { stream, out }));
        }
        let news = joined.members.iter().map(|_| PeerState::default()).collect();
        let state = State { news, doing: "starting".into(), ..State::default() };
        let links = Arc::new(Self {
            rank,
            members: joined.members,
            timeout,
            peers,
            state: Mutex::new(state),
            changed: Condvar::new(),
            lost: OnceLock::new(),
        });
        for (peer, [reading, writing], queue) in threads {
            let own = links.clone();
            spawn("rank-reader", move || own.read(peer, &reading))?;
            let own = links.clone();
            spawn("rank-writer", move || {
                own.write(&writing, &queue);
                own.state().news[peer].told = true;
                own.changed.notify_all();
            })?;
        }
        Ok(links)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn lost(&self) -> Option<&Lost> {
        self.lost.get()
    }

    pub(crate) fn set_doing(&self, step: u64, what: &str) {
        let mut state = self.state();
        (state.step, state.doing) = (step, what.to_owned());
    }

    pub(crate) fn on_loss(&self, f: OnLoss) {
        let mut state = self.state();
        match self.lost() {
            Some(lost) => {
                drop(state);
                f(lost);
            }
            None => state.on_loss = Some(f),
        }
    }

    /// Queues a message for some peers; returns at once.
    ///
    /// # Errors
    /// If a rank is lost.
    pub(crate) fn send(&self, to: &[usize], what: &str, bytes: &[u8]) -> Result<(), RanksError> {
        let bytes = Arc::new(bytes.to_vec());
        for &peer in to {
            self.check(peer, what)?;
            let frame = Frame::Message { what: what.to_owned(), bytes: bytes.len() as u64 };
            self.send_frame(peer, frame, bytes.clone());
        }
        Ok(())
    }

    /// # Errors
    /// If a rank is lost. In the error, this rank's activity is the wait for `what`, which is more
    /// specific than its activity when the loss was noticed.
    fn check(&self, with: usize, what: &str) -> Result<(), RanksError> {
        let lost = |lost: &Lost| Lost { doing: waiting(with, what), ..lost.clone() };
        self.lost().map_or(Ok(()), |found| Err(RanksError::Lost(Box::new(lost(found)))))
    }

    fn send_frame(&self, to: usize, frame: Frame, bytes: Arc<Vec<u8>>) {
        if let Some(peer) = &self.peers[to] {
            // Fails if the peer's writer has ended: then the connection is closed, and the peer's
            // reader reports it.
            let _ = peer.out.send((frame, bytes));
        }
    }

    /// Sends a frame to all peers.
    fn broadcast(&self, frame: &Frame) {
        (0..self.peers.len()).for_each(|peer| self.send_frame(peer, frame.clone(), Arc::default()));
    }

    /// Waits for the next message from a rank.
    ///
    /// # Errors
    /// If a rank is lost, or rank `from` is in a different operation or has left.
    pub(crate) fn receive(&self, from: usize, what: &str) -> Result<Vec<u8>, RanksError> {
        let mut state = self.state();
        state.waiting = Some(waiting(from, what));
        let result = loop {
            if let Err(lost) = self.check(from, what) {
                break Err(lost);
            }
            let (own, host) = (self.rank, &self.members[from].host);
            match state.news[from].inbox.pop_front() {
                Some((theirs, bytes)) if theirs == what => break Ok(bytes),
                Some((theirs, _)) => {
                    break Err(RanksError::Diverged(format!(
                        "the ranks are in different operations: rank {from} on host {host} is at \
                         `{theirs}`, and rank {own} at `{what}`"
                    )));
                }
                None if state.news[from].left && !state.losing => {
                    break Err(RanksError::Diverged(format!(
                        "rank {from} on host {host} has ended its run, but rank {own} still waits \
                         for it: {what}"
                    )));
                }
                None => state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.waiting = None;
        result
    }

    /// Sends the peers a message that this rank leaves, waits briefly until they have read it, and
    /// closes the connections.
    pub(crate) fn leave(&self, fault: Option<(u8, &str)>) {
        if std::mem::replace(&mut self.state().leaving, true) {
            return;
        }
        self.broadcast(&Frame::Leave(fault.map(|(code, error)| (code, error.to_owned()))));
        let deadline = Instant::now() + MAX_BYE.min(self.timeout / 4);
        let lost = self.lost().map(|lost| lost.rank);
        let mut state = self.state();
        let is_there = |state: &State, peer: usize| {
            let news = &state.news[peer];
            self.peers[peer].is_some() && !news.left && !(news.told && Some(peer) == lost)
        };
        while (0..self.peers.len()).any(|peer| is_there(&state, peer)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(state);
        self.close();
    }

    /// Closes all connections, which ends the threads.
    pub(crate) fn close(&self) {
        self.state().leaving = true;
        for peer in self.peers.iter().flatten() {
            // Fails if the peer has already closed the connection.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
    }

    /// Records the loss of a rank (with its exit `code`, if it reported one), notifies other ranks,
    /// and wakes all waiting threads.
    fn lose(&self, rank: usize, why: &str, code: Option<u8>) {
        let mut state = self.state();
        if state.leaving || state.losing || state.news[rank].left {
            return;
        }
        state.losing = true;
        let news = &state.news[rank];
        let step = news.step.max(state.step);
        let last = if rank == self.rank { String::new() } else { plain(&news.doing) };
        let doing = state.waiting.clone().unwrap_or_else(|| state.doing.clone());
        drop(state);
        let host = self.members[rank].host.clone();
        let lost =
            Lost { rank, host, step, last, why: plain(why), code, seen_by: self.rank, doing };
        // Rank 0 notifies all ranks, including the lost rank, which may resume later.
        if self.rank == 0 || rank == 0 {
            self.broadcast(&Frame::Lost(lost.clone()));
        }
        let lost = self.lost.get_or_init(|| lost);
        let callback = self.state().on_loss.take();
        self.changed.notify_all();
        if let Some(callback) = callback {
            callback(lost);
        }
    }

    /// A thread that receives a peer's frames until its connection ends.
    fn read(&self, from: usize, stream: &TcpStream) {
        let mut patient = Patient {
            stream,
            tick: self.timeout / 20,
            limit: self.timeout.mul_f64(0.7),
            stood: None,
        };
        let (rank, end) = loop {
            match self.take(from, &mut patient) {
                Ok(None) => {}
                Ok(Some(end)) => break (from, end),
                Err(error) => match patient.stood {
                    // The peer closed the connection while this process was suspended, so this rank
                    // is the lost one. The peer's last message, which would report it, may be
                    // unreadable if earlier ones are unread.
                    Some(stood) if is_closed(&error) => {
                        let why = format!("it was suspended for {:.1} s", stood.as_secs_f64());
                        break (self.rank, Some((None, why)));
                    }
                    _ => break (from, Some((None, broken(&error)))),
                },
            }
        };
        if let Some((code, why)) = end {
            self.lose(rank, &why, code);
        }
        self.state().news[from].left = true;
        self.changed.notify_all();
    }

    /// Receives one frame. After the peer's last frame, returns how it ended.
    fn take(&self, from: usize, patient: &mut Patient<'_>) -> io::Result<Option<End>> {
        match Frame::read(patient, MAX_FRAME_BYTES)? {
            Frame::Alive { step, doing } => {
                let news = &mut self.state().news[from];
                (news.step, news.doing) = (step, doing);
            }
            Frame::Message { what, bytes } => {
                // The buffer of a longer message grows as data arrives: the announced length is not
                // trusted.
                let mut message = Vec::with_capacity(bytes.min(RESERVED_BYTES) as usize);
                patient.take(bytes).read_to_end(&mut message)?;
                if (message.len() as u64) < bytes {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
                self.state().news[from].inbox.push_back((what, message));
                self.changed.notify_all();
            }
            Frame::Leave(fault) => {
                // Signals to the peer that its last message was read.
                let _ = patient.stream.shutdown(Shutdown::Both);
                let end = |(code, error)| (Some(code), format!("it ended with: {error}"));
                return Ok(Some(fault.map(end)));
            }
            Frame::Lost(lost) if lost.rank < self.members.len() => {
                let mut state = self.state();
                let news = &mut state.news[lost.rank];
                (news.step, news.doing) = (lost.step, lost.last);
                drop(state);
                self.lose(lost.rank, &lost.why, lost.code);
            }
            other => return Err(io::Error::other(format!("it sent {other:?}"))),
        }
        Ok(None)
    }

    /// A thread that writes the frames queued for a peer, or else heartbeats, until this rank
    /// leaves.
    fn write(&self, mut stream: &TcpStream, queue: &Receiver<Sent>) {
        let interval = self.timeout / 10;
        let mut alive = Instant::now();
        loop {
            let left = alive.saturating_duration_since(Instant::now());
            let (frame, bytes) = match queue.recv_timeout(left) {
                Ok(sent) => sent,
                Err(RecvTimeoutError::Timeout) => {
                    alive = Instant::now() + interval;
                    (self.alive(), Arc::default())
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let written = stream.write_all(&frame.to_bytes());
            // If writing fails, the reader thread also gets an error, and reports it.
            if written.and_then(|()| stream.write_all(&bytes)).is_err()
                || matches!(frame, Frame::Leave(_))
            {
                return;
            }
        }
    }

    fn alive(&self) -> Frame {
        let state = self.state();
        let doing = state.waiting.as_ref().unwrap_or(&state.doing).clone();
        Frame::Alive { step: state.step, doing }
    }
}

/// How a peer ended: `None` if it left normally, else its exit code, if it sent one, and the
/// reason.
type End = Option<(Option<u8>, String)>;

/// A peer's stream; reading fails once the peer has been silent for too long.
struct Patient<'a> {
    stream: &'a TcpStream,
    /// The time limit of one read of the stream.
    tick: Duration,
    limit: Duration,
    /// How long this process was suspended, if long enough that its peers treat it as lost.
    stood: Option<Duration>,
}

impl Read for Patient<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut silent = Duration::ZERO;
        loop {
            let begin = Instant::now();
            let read = self.stream.read(buffer);
            let took = begin.elapsed();
            if took > self.limit {
                self.stood = Some(took);
            }
            match read {
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    // A wait much longer than the read timeout means that this process was
                    // suspended, not that the peer was silent, so only a part of it counts.
                    silent += took.min(self.tick * 2);
                }
                read => return read,
            }
            if silent > self.limit {
                let why = format!("no heartbeat for {:.1} s", silent.as_secs_f64());
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
        }
    }
}

/// True if the peer closed the connection (a reset if it left data unread).
fn is_closed(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset)
}

/// The reason in a message about an ended connection.
fn broken(error: &io::Error) -> String {
    match error.kind() {
        _ if is_closed(error) => "its connection closed".into(),
        ErrorKind::TimedOut if error.get_ref().is_some() => error.to_string(),
        _ => format!("its connection broke: {error}"),
    }
}

/// Replaces control characters in a text from another rank, because it is printed to terminals.
fn plain(text: &str) -> String {
    text.replace(|c: char| c.is_control() && c != '\n', "?")
}

fn waiting(with: usize, what: &str) -> String {
    format!("waiting for rank {with}: {what}")
}

/// Two handles of a stream: one to read, with a time limit for each read, and one to write.
fn two_handles(stream: &TcpStream, tick: Duration) -> io::Result<[TcpStream; 2]> {
    stream.set_read_timeout(Some(tick))?;
    stream.set_write_timeout(None)?;
    // Fails for Unix sockets, which have no delay to disable.
    let _ = stream.set_nodelay(true);
    Ok([stream.try_clone()?, stream.try_clone()?])
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), RanksError> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(512 << 10);
    builder.spawn(run).map(|_| ()).map_err(|error| {
        RanksError::Join(format!("a thread of a connection cannot start: {error}"))
    })
}
