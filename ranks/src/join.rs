//! Joining the ranks of a run: rank 0 waits for all ranks, and rejects unknown peers.

use std::io::ErrorKind;
use std::net::TcpStream;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::error::RanksError;
use crate::frame::{Frame, MAX_FRAME_BYTES};
use crate::handshake::{Asking, Timed, ask};
use crate::launch::Launch;
use crate::member::Member;
use crate::options::{JoinOptions, Say};
use crate::rendezvous::{Listener, Rendezvous};

/// Time limit of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Interval at which rank 0 checks that the joined ranks are still connected.
const LOOK: Duration = Duration::from_millis(100);

/// Maximum concurrent handshakes; additional connections are rejected, and their ranks retry.
const MAX_HANDSHAKES: usize = 512;

/// Maximum number of log lines about unknown peers.
const MAX_LINES: usize = 50;

/// The list of all ranks, and this rank's connections: on rank 0 to each other rank, on other ranks
/// to rank 0.
pub(crate) struct Joined {
    pub(crate) members: Vec<Member>,
    /// By rank.
    pub(crate) streams: Vec<Option<TcpStream>>,
}

/// Joins the other ranks of the run.
///
/// # Errors
/// If there is no usable address or token, or not all ranks joined.
pub(crate) fn join(launch: &Launch, options: &JoinOptions) -> Result<Joined, RanksError> {
    let joined = || {
        let meeting = Rendezvous::find(launch, options)?;
        let me = Member::this(launch.rank, launch.local_rank);
        let deadline = Instant::now() + options.join_timeout;
        match launch.rank {
            0 => Acceptor::open(meeting, launch.ranks, options, me)?.wait(deadline),
            _ => come(&meeting, launch, &me, options, deadline),
        }
    };
    joined().map_err(|fault| match fault {
        RanksError::Join(fault) => RanksError::Join(format!(
            "{fault}; to run one process, {}",
            launch.launcher.single_process_hint()
        )),
        fault => fault,
    })
}

/// The address of a peer, and the result of the handshake with it.
type Greeted = (String, Result<Asking, String>);

/// Rank 0 while it waits for the other ranks.
struct Acceptor {
    listener: Listener,
    token: String,
    say: Say,
    join_timeout: Duration,
    members: Vec<Option<Member>>,
    streams: Vec<Option<TcpStream>>,
    greeted: (Sender<Greeted>, Receiver<Greeted>),
    handshakes: usize,
    lines: usize,
}

impl Acceptor {
    fn open(
        meeting: Rendezvous,
        ranks: usize,
        options: &JoinOptions,
        me: Member,
    ) -> Result<Self, RanksError> {
        let mut members = vec![None; ranks];
        members[0] = Some(me);
        Ok(Self {
            listener: meeting.listen()?,
            token: meeting.token,
            say: options.say.clone(),
            join_timeout: options.join_timeout,
            members,
            streams: (0..ranks).map(|_| None).collect(),
            greeted: channel(),
            handshakes: 0,
            lines: 0,
        })
    }

    fn wait(mut self, deadline: Instant) -> Result<Joined, RanksError> {
        let mut looked = Instant::now();
        while self.members.contains(&None) {
            // `accept` fails if no connection waits, if the connection is already closed, or with
            // too many open files.
            while let Ok((stream, from)) = self.listener.accept() {
                self.greet(stream, from);
            }
            while let Ok(greeted) = self.greeted.1.try_recv() {
                self.take(greeted);
            }
            if Instant::now() > deadline {
                return Err(self.give_up());
            }
            if looked.elapsed() > LOOK {
                looked = Instant::now();
                for rank in 1..self.members.len() {
                    self.there(rank);
                }
            }
            thread::sleep(Duration::from_millis(3));
        }
        let members: Vec<Member> = self.members.iter().flatten().cloned().collect();
        self.broadcast(&Frame::Start(members.clone()));
        Ok(Joined { members, streams: self.streams })
    }

    /// Starts the handshake of a connection, on a separate thread.
    fn greet(&mut self, stream: TcpStream, from: String) {
        if self.handshakes >= MAX_HANDSHAKES {
            return self.refuse_line(&from, "too many connections at once");
        }
        let (token, sender) = (self.token.clone(), self.greeted.0.clone());
        let greet = move || {
            let asking = Asking::accept(stream, &token, HANDSHAKE);
            // Sending fails if rank 0 has stopped waiting for ranks.
            let _ = sender.send((from, asking));
        };
        let builder = thread::Builder::new().name("rank-handshake".into()).stack_size(256 << 10);
        self.handshakes += usize::from(builder.spawn(greet).is_ok());
    }

    /// Accepts a rank, or rejects it and sends it the reason.
    fn take(&mut self, (from, result): Greeted) {
        self.handshakes -= 1;
        let asking = match result {
            Ok(asking) => asking,
            Err(why) => return self.refuse_line(&from, &why),
        };
        let (member, ranks, expected) = (&asking.member, asking.ranks, self.members.len());
        let (rank, host) = (member.rank, &member.host);
        let why = if ranks != expected {
            format!(
                "rank {rank} on host {host} was started as one of {ranks} ranks, and rank 0 as one \
                 of {expected}; start all with one command"
            )
        } else if rank == 0 || rank >= expected {
            format!("host {host} sent rank {rank}, which is invalid with {expected} ranks")
        } else if let Some(other) = self.there(rank) {
            format!(
                "rank {rank} joined twice: from host {} (process {}) and from host {host} (process \
                 {}); give each process its own rank",
                other.host, other.pid, member.pid
            )
        } else {
            if asking.welcome() {
                self.members[rank] = Some(asking.member);
                self.streams[rank] = Some(asking.stream);
            }
            return;
        };
        self.refuse_line(&from, &why);
        asking.refuse(why);
    }

    /// The member with this rank, if any. If its connection has closed, removes it, so that the
    /// rank is free again.
    fn there(&mut self, rank: usize) -> Option<&Member> {
        let stream = self.streams[rank].as_ref()?;
        let is_open = stream.set_nonblocking(true).is_ok()
            && matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
            && stream.set_nonblocking(false).is_ok();
        if !is_open {
            (self.say)(&format!("rank {rank} disconnected before all ranks joined"));
            (self.members[rank], self.streams[rank]) = (None, None);
        }
        self.members[rank].as_ref()
    }

    fn refuse_line(&mut self, from: &str, why: &str) {
        self.lines += 1;
        if self.lines <= MAX_LINES {
            (self.say)(&format!("rejected a connection from {from}: {why}"));
        } else if self.lines == MAX_LINES + 1 {
            (self.say)("additional rejected connections are not logged");
        }
    }

    /// Returns an error that lists the missing ranks, and sends it to the ranks that have joined.
    fn give_up(&mut self) -> RanksError {
        let missing: Vec<usize> =
            (0..self.members.len()).filter(|&rank| self.members[rank].is_none()).collect();
        let reason = format!(
            "{} of {} did not join within {} s; check that they were started and can reach rank \
             0's host, or raise ranks.join_timeout_seconds",
            list(&missing),
            self.members.len(),
            self.join_timeout.as_secs_f64()
        );
        self.broadcast(&Frame::Refused { again: false, reason: reason.clone() });
        RanksError::Join(reason)
    }

    /// Sends a frame to all joined ranks. Errors are ignored: lost ranks are detected later.
    fn broadcast(&self, frame: &Frame) {
        for stream in self.streams.iter().flatten() {
            let deadline = Instant::now() + Duration::from_secs(1);
            let _ = Timed { stream, deadline }.send(frame);
        }
    }
}

/// Formats ranks as "rank 3" or "ranks 1, 2 and 3"; lists at most ten.
fn list(ranks: &[usize]) -> String {
    let shown: Vec<String> = ranks.iter().take(10).map(ToString::to_string).collect();
    match &shown[..] {
        [one] => format!("rank {one}"),
        many if ranks.len() > many.len() => {
            format!("ranks {} and {} more", many.join(", "), ranks.len() - many.len())
        }
        [first @ .., last] => format!("ranks {} and {last}", first.join(", ")),
        [] => "no rank".into(),
    }
}

/// Joins as a rank other than 0: retries until rank 0 is reachable, then waits until all ranks have
/// joined.
fn come(
    meeting: &Rendezvous,
    launch: &Launch,
    me: &Member,
    options: &JoinOptions,
    deadline: Instant,
) -> Result<Joined, RanksError> {
    let mut pause = Duration::from_millis(10);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let asked = meeting.reach(left.clamp(Duration::from_millis(1), HANDSHAKE), |stream| {
            let asked = ask(&stream, &meeting.token, me, launch.ranks, HANDSHAKE)?;
            Ok(asked.map(|()| stream))
        });
        let why = match asked {
            Ok(Ok(stream)) => return wait_for_start(stream, launch, options, deadline),
            Ok(Err(reason)) => return Err(RanksError::Join(format!("rank 0 refused: {reason}"))),
            Err(why) => why,
        };
        if Instant::now() + pause > deadline {
            return Err(RanksError::Join(format!(
                "rank {} did not find rank 0 within {} s: {why}",
                launch.rank,
                options.join_timeout.as_secs_f64()
            )));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(300));
    }
}

fn wait_for_start(
    stream: TcpStream,
    launch: &Launch,
    options: &JoinOptions,
    deadline: Instant,
) -> Result<Joined, RanksError> {
    // Rank 0 times out earlier, and then sends which ranks are missing.
    let deadline = deadline.max(Instant::now() + options.join_timeout) + HANDSHAKE;
    match (Timed { stream: &stream, deadline }).receive(MAX_FRAME_BYTES) {
        Ok(Frame::Start(members)) if members.len() == launch.ranks => {
            let mut streams: Vec<Option<TcpStream>> = (0..launch.ranks).map(|_| None).collect();
            streams[0] = Some(stream);
            Ok(Joined { members, streams })
        }
        Ok(Frame::Refused { reason, .. }) => Err(RanksError::Join(reason)),
        Ok(other) => Err(RanksError::Join(format!("rank 0 sent {other:?} instead of Start"))),
        Err(error) => {
            Err(RanksError::Join(format!("rank 0 disconnected before all ranks joined: {error}")))
        }
    }
}
