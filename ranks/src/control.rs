//! The control connection of one rank: its threads, and what they learn of the others.
//!
//! Each connection has a thread that reads and one that writes, so nobody waits for a peer that
//! does not read. The writer sends a sign of life whenever it has nothing else to send. A third
//! thread watches how long each peer has been silent.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::RanksError;
use crate::frame::{Frame, MAX_FRAME_BYTES};
use crate::host::Member;
use crate::join::Joined;
use crate::lost::Lost;

/// How long the news of a loss, or of an end, may take to be written.
const FLUSH: Duration = Duration::from_millis(300);

/// How long a rank that leaves waits for the others to have read it.
const BYE: Duration = Duration::from_secs(1);

/// How long survivors of a loss wait for one another when they leave.
const LINGER: Duration = Duration::from_millis(500);

/// Called when a rank is lost.
pub(crate) type OnLoss = Box<dyn FnOnce(&Lost) + Send>;

/// A message of a peer's, with the operation that it belongs to.
pub(crate) struct Message {
    pub(crate) what: String,
    pub(crate) bytes: Vec<u8>,
}

/// The state that all threads of a rank share.
pub(crate) struct Control {
    pub(crate) rank: usize,
    pub(crate) members: Vec<Member>,
    timeout: Duration,
    begin: Instant,
    /// By rank: on rank 0 all others, else only rank 0.
    peers: Vec<Option<Peer>>,
    state: Mutex<State>,
    changed: Condvar,
    lost: OnceLock<Lost>,
}

struct Peer {
    stream: TcpStream,
    out: Sender<Vec<u8>>,
    /// Frames given to the writer that it has not written.
    unwritten: AtomicUsize,
    /// When something last came, in milliseconds since the beginning.
    heard_ms: AtomicU64,
}

#[derive(Default)]
struct State {
    /// By rank.
    news: Vec<News>,
    step: u64,
    doing: String,
    /// The event that this rank waits for, while it does.
    waiting: Option<String>,
    /// A loss is being reported.
    losing: bool,
    /// This rank leaves or has left.
    leaving: bool,
    on_loss: Option<OnLoss>,
}

/// The last known state of a peer, and its messages.
#[derive(Default)]
struct News {
    inbox: VecDeque<Message>,
    /// Pieces of a message whose end has not come.
    pieces: Vec<u8>,
    step: u64,
    doing: String,
    /// It said that it ends, or its connection did.
    left: bool,
    /// It has read that this rank leaves, or it is gone.
    bye: bool,
}

impl Control {
    /// Starts the threads.
    pub(crate) fn start(
        rank: usize,
        joined: Joined,
        timeout: Duration,
    ) -> Result<Arc<Self>, RanksError> {
        let mut queues = Vec::new();
        let begin = Instant::now();
        let mut peers = Vec::new();
        for (peer, stream) in joined.streams.into_iter().enumerate() {
            let Some(stream) = stream else {
                peers.push(None);
                continue;
            };
            let prepared = prepare(&stream).map_err(|error| {
                RanksError::Join(format!("the connection to rank {peer} broke: {error}"))
            })?;
            let (out, queue) = channel();
            queues.push((peer, prepared, queue));
            let (unwritten, heard_ms) = (AtomicUsize::new(0), AtomicU64::new(0));
            peers.push(Some(Peer { stream, out, unwritten, heard_ms }));
        }
        let news = joined.members.iter().map(|_| News::default()).collect();
        let doing = "starting".to_owned();
        let control = Arc::new(Self {
            rank,
            members: joined.members,
            timeout,
            begin,
            peers,
            state: Mutex::new(State { news, doing, ..State::default() }),
            changed: Condvar::new(),
            lost: OnceLock::new(),
        });
        for (peer, [reading, writing], queue) in queues {
            let own = control.clone();
            spawn("rank-reader", move || own.read(peer, &reading))?;
            let own = control.clone();
            spawn("rank-writer", move || own.write(peer, &writing, &queue))?;
        }
        let own = control.clone();
        spawn("rank-watch", move || own.watch())?;
        Ok(control)
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

    /// Queues a frame for a peer; returns at once.
    pub(crate) fn send(&self, to: usize, frame: &Frame) {
        let Some(peer) = &self.peers[to] else { return };
        peer.unwritten.fetch_add(1, Ordering::SeqCst);
        // Its writer ended: the connection is closed, which its reader reports.
        if peer.out.send(frame.to_bytes()).is_err() {
            peer.unwritten.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Waits for the next message of a rank, until a loss.
    pub(crate) fn receive(&self, from: usize, what: &str) -> Result<Vec<u8>, RanksError> {
        let mut state = self.state();
        state.waiting = Some(waiting(from, what));
        let result = loop {
            if let Err(lost) = self.check(from, what) {
                break Err(lost);
            }
            if let Some(message) = state.news[from].inbox.pop_front() {
                break self.matching(from, what, message);
            }
            if state.news[from].left && !state.losing {
                let host = &self.members[from].host;
                break Err(RanksError::Diverged(format!(
                    "rank {from} on host {host} has ended its run, and rank {} waits for it: \
                     {what}",
                    self.rank
                )));
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        state.waiting = None;
        result
    }

    #[cfg(feature = "mpi")]
    /// Notes what this rank waits for elsewhere, or that it no longer waits.
    pub(crate) fn set_waiting(&self, what: Option<&str>) {
        self.state().waiting = what.map(|what| format!("waiting for {what}"));
    }

    /// # Errors
    /// If a rank is lost. The error names what the operation waits for, which says more than this
    /// rank's activity when the loss was noticed.
    pub(crate) fn check(&self, with: usize, what: &str) -> Result<(), RanksError> {
        let lost = |lost: &Lost| Lost { doing: waiting(with, what), ..lost.clone() };
        self.lost().map_or(Ok(()), |found| Err(RanksError::Lost(Box::new(lost(found)))))
    }

    fn matching(&self, from: usize, what: &str, message: Message) -> Result<Vec<u8>, RanksError> {
        if message.what == what {
            return Ok(message.bytes);
        }
        Err(RanksError::Diverged(format!(
            "the ranks do different things: rank {from} on host {} is at `{}`, and rank {} at \
             `{what}`",
            self.members[from].host, message.what, self.rank
        )))
    }

    /// Says that this rank ends, and waits a moment until the others have read it. After a loss
    /// all survivors wait for one another instead: a launcher kills the rest when the first ends.
    pub(crate) fn leave(&self, fault: Option<(u8, &str)>) {
        let mut state = self.state();
        if std::mem::replace(&mut state.leaving, true) {
            return;
        }
        drop(state);
        let lost = self.lost().map(|lost| lost.rank);
        let frame = Frame::Leave(fault.map(|(code, error)| (code, error.to_owned())));
        let peers = || (0..self.peers.len()).filter(|&peer| self.peers[peer].is_some());
        let send_all = || peers().for_each(|peer| self.send(peer, &frame));
        let Some(lost) = lost else {
            send_all();
            let limit = BYE.min(self.timeout / 4);
            self.wait_until(limit, |news| peers().all(|peer| news[peer].bye));
            return self.close();
        };
        let limit = LINGER.min(self.timeout / 8);
        // Rank 0 is the last to say it, and the others wait for its word.
        if self.rank != 0 {
            send_all();
        }
        // Without rank 0 nobody knows of the others: all wait for the whole time.
        let is_over = |peer: usize, news: &[News]| {
            if peer == lost { self.rank == 0 } else { news[peer].left }
        };
        self.wait_until(limit, |news| peers().all(|peer| is_over(peer, news)));
        if self.rank == 0 {
            send_all();
            self.flush();
        }
        self.close();
    }

    fn wait_until(&self, limit: Duration, is_met: impl Fn(&[News]) -> bool) {
        let deadline = Instant::now() + limit;
        let mut state = self.state();
        while !is_met(&state.news) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Closes all connections, which ends the threads.
    pub(crate) fn close(&self) {
        self.state().leaving = true;
        for peer in self.peers.iter().flatten() {
            // Fails if the peer closed it first.
            let _ = peer.stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
    }

    /// Records the loss of a rank (with its exit `code`, if it reported one), notifies the others,
    /// and wakes all threads that wait.
    fn lose(&self, rank: usize, why: &str, code: Option<u8>) {
        let mut state = self.state();
        if state.leaving || state.losing || state.news[rank].left {
            return;
        }
        state.losing = true;
        let news = &state.news[rank];
        let step = news.step.max(state.step);
        let last = if rank == self.rank { String::new() } else { news.doing.clone() };
        let doing = state.waiting.clone().unwrap_or_else(|| state.doing.clone());
        drop(state);
        let host = self.members[rank].host.clone();
        let (seen_by, why) = (self.rank, why.to_owned());
        let lost = Lost { rank, host, step, last, why, code, seen_by, doing };
        self.relay(&lost);
        let lost = self.lost.get_or_init(|| lost);
        let callback = self.state().on_loss.take();
        self.changed.notify_all();
        if let Some(callback) = callback {
            callback(lost);
        }
    }

    /// Rank 0 reports a loss to all ranks. If rank 0 is the lost one, others report it to rank 0,
    /// which may resume later. Returns once the frames are written, so that this rank may end.
    fn relay(&self, lost: &Lost) {
        if self.rank != 0 && lost.rank != 0 {
            return;
        }
        let Lost { rank, step, last, why, code, .. } = lost.clone();
        let frame = Frame::Lost { rank, step, last, why, code };
        (0..self.peers.len()).for_each(|peer| self.send(peer, &frame));
        self.flush();
    }

    /// Waits a moment until all is written.
    fn flush(&self) {
        let deadline = Instant::now() + FLUSH;
        let unwritten = |peer: &Peer| peer.unwritten.load(Ordering::SeqCst) > 0;
        while self.peers.iter().flatten().any(unwritten) && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn now_ms(&self) -> u64 {
        self.begin.elapsed().as_millis() as u64
    }

    /// A thread: takes what a peer sends, until its connection ends.
    fn read(&self, from: usize, stream: &TcpStream) {
        let mut heard = Heard { control: self, from, stream };
        let why = loop {
            match heard.frame() {
                Ok(frame) => {
                    if let Err(why) = self.take(from, frame) {
                        break why;
                    }
                }
                Err(error) => match error.kind() {
                    // With or without something unread in it.
                    ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => {
                        break "its connection closed".to_owned();
                    }
                    _ => break format!("its connection broke: {error}"),
                },
            }
        };
        self.lose(from, &why, None);
        let mut state = self.state();
        (state.news[from].left, state.news[from].bye) = (true, true);
        drop(state);
        self.changed.notify_all();
    }

    fn take(&self, from: usize, frame: Frame) -> Result<(), String> {
        match frame {
            Frame::Alive { step, doing } => {
                let mut state = self.state();
                (state.news[from].step, state.news[from].doing) = (step, doing);
            }
            Frame::Piece { what, last, bytes } => {
                let mut state = self.state();
                let news = &mut state.news[from];
                news.pieces.extend(bytes);
                if last {
                    let bytes = std::mem::take(&mut news.pieces);
                    news.inbox.push_back(Message { what, bytes });
                    self.changed.notify_all();
                }
            }
            Frame::Leave(None) => {
                let mut state = self.state();
                (state.news[from].left, state.news[from].bye) = (true, true);
                drop(state);
                self.send(from, &Frame::Bye);
                self.changed.notify_all();
            }
            Frame::Leave(Some((code, error))) => {
                self.send(from, &Frame::Bye);
                self.lose(from, &format!("it ended with: {error}"), Some(code));
                self.state().news[from].left = true;
                self.changed.notify_all();
            }
            Frame::Bye => {
                self.state().news[from].bye = true;
                self.changed.notify_all();
            }
            Frame::Lost { rank, step, last, why, code } if rank < self.members.len() => {
                let mut state = self.state();
                (state.news[rank].step, state.news[rank].doing) = (step, last);
                drop(state);
                self.lose(rank, &why, code);
            }
            other => return Err(format!("it sent {other:?}")),
        }
        Ok(())
    }

    /// A thread: writes what is queued for a peer, or a sign of life.
    fn write(&self, to: usize, mut stream: &TcpStream, queue: &Receiver<Vec<u8>>) {
        let Some(peer) = &self.peers[to] else { return };
        let interval = self.timeout / 10;
        let mut alive = Instant::now() + interval;
        loop {
            let now = Instant::now();
            // Also between messages: it says what this rank does.
            let next = if now < alive {
                queue.recv_timeout(alive - now)
            } else {
                Err(RecvTimeoutError::Timeout)
            };
            let (bytes, queued) = match next {
                Ok(bytes) => (bytes, 1),
                Err(RecvTimeoutError::Timeout) => {
                    alive = now + interval;
                    (self.alive().to_bytes(), 0)
                }
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let written = stream.write_all(&bytes);
            peer.unwritten.fetch_sub(queued, Ordering::SeqCst);
            if written.is_err() {
                // The reader learns why; frames that are still queued are dropped.
                while queue.try_recv().is_ok() {
                    peer.unwritten.fetch_sub(1, Ordering::SeqCst);
                }
                return;
            }
        }
    }

    fn alive(&self) -> Frame {
        let state = self.state();
        let doing = state.waiting.as_ref().unwrap_or(&state.doing).clone();
        Frame::Alive { step: state.step, doing }
    }

    /// A thread: looks for peers that are silent for too long.
    fn watch(&self) {
        let (tick, limit) = (self.timeout / 20, self.timeout.mul_f64(0.7));
        let mut last = Instant::now();
        loop {
            thread::sleep(tick);
            let state = self.state();
            if state.leaving || state.losing {
                return;
            }
            let left: Vec<bool> = state.news.iter().map(|news| news.left).collect();
            drop(state);
            // This process itself was stopped: what the others sent meanwhile is still unread.
            let was_stopped = last.elapsed() > tick + limit / 4;
            last = Instant::now();
            for (rank, peer) in self.peers.iter().enumerate() {
                let Some(peer) = peer else { continue };
                if was_stopped {
                    peer.heard_ms.store(self.now_ms(), Ordering::SeqCst);
                }
                let heard = peer.heard_ms.load(Ordering::SeqCst);
                let silent = Duration::from_millis(self.now_ms().saturating_sub(heard));
                if silent > limit && !left[rank] {
                    let why = format!("no sign of life for {:.1} s", silent.as_secs_f64());
                    self.lose(rank, &why, None);
                    return;
                }
            }
        }
    }
}

/// A peer's stream; each byte that comes is a sign of life.
struct Heard<'a> {
    control: &'a Control,
    from: usize,
    stream: &'a TcpStream,
}

impl Heard<'_> {
    fn frame(&mut self) -> io::Result<Frame> {
        let mut length = [0; 4];
        self.read_exact(&mut length)?;
        let length = u32::from_le_bytes(length) as usize;
        let invalid = |what: String| io::Error::new(ErrorKind::InvalidData, what);
        if length > MAX_FRAME_BYTES {
            return Err(invalid(format!("a frame of {length} bytes")));
        }
        let mut bytes = vec![0; length];
        self.read_exact(&mut bytes)?;
        Frame::parse(&bytes).ok_or_else(|| invalid("bytes that are no frame".into()))
    }
}

impl Read for Heard<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.stream.read(buffer)?;
        if let Some(peer) = &self.control.peers[self.from] {
            peer.heard_ms.store(self.control.now_ms(), Ordering::SeqCst);
        }
        Ok(read)
    }
}

fn waiting(with: usize, what: &str) -> String {
    format!("waiting for rank {with}: {what}")
}

/// Two handles of a stream without the time limits of the handshake: to read and to write.
fn prepare(stream: &TcpStream) -> io::Result<[TcpStream; 2]> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nodelay(true)?;
    Ok([stream.try_clone()?, stream.try_clone()?])
}

fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), RanksError> {
    let builder = thread::Builder::new().name(name.to_owned()).stack_size(512 << 10);
    builder.spawn(run).map(|_| ()).map_err(|error| {
        RanksError::Join(format!("a thread of the control connection cannot start: {error}"))
    })
}
