//! A communicator: one rank's connections to its group, and the execution of its all-reduces.
#![allow(unsafe_code)]

use std::collections::{BTreeSet, VecDeque};
use std::ffi::c_int;
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::{process, ptr, slice, thread};

use crate::add::{Type, add};
use crate::hook::Driver;
use crate::injection::{Fault, injected};
use crate::report::{
    Failure, INVALID_USAGE, REMOTE, SYSTEM, UNHANDLED_CUDA, failure, misuse, report, set_last,
};
use crate::wire::{Frame, Kind, What, receive, send};

const FUNCTION: &str = "ncclAllReduce";
/// `CUDA_ERROR_ILLEGAL_ADDRESS`.
const ILLEGAL_ADDRESS: i32 = 700;
/// Maximum number of payload buffers kept for reuse.
const MAX_SPARE: usize = 16;
/// Byte that fills undefined results: NaN in fp16 and fp32.
const UNDEFINED: u8 = 0xff;

/// A group as seen by one of its ranks.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) rank: usize,
    pub(crate) count: usize,
    pub(crate) driver: &'static Driver,
    /// On rank 0 the connections to all other ranks, on other ranks the connection to rank 0.
    peers: Vec<(usize, TcpStream)>,
    state: Mutex<State>,
    changed: Condvar,
    /// Locked while an all-reduce executes; counts the executions so far.
    turn: Mutex<u64>,
    /// Held by the thread inside `ncclAllReduce`.
    pub(crate) inside: Mutex<()>,
    calls: AtomicU64,
    /// Message sizes (log2 of bytes) whose connections are set up; `None` if `ncclCommInitRank` set
    /// up all.
    connected: Option<Mutex<BTreeSet<u32>>>,
}

#[derive(Debug)]
struct State {
    /// Per peer.
    mail: Vec<Mail>,
    fault: Option<Failure>,
    has_left: bool,
    /// Number of all-reduces that are enqueued or in a graph.
    references: usize,
    spare: Vec<Vec<u8>>,
}

#[derive(Debug, Default)]
struct Mail {
    frames: VecDeque<Frame>,
    /// The connection is closed: no more frames will arrive.
    is_closed: bool,
}

/// One call of `ncclAllReduce`: its device addresses and element type.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) count: usize,
    pub(crate) of: Type,
    /// Number of the call within the group.
    pub(crate) call: u64,
}

impl Sum {
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.of.bytes()
    }
}

/// The other ranks' messages for an all-reduce.
enum PeerMessage {
    Frames(Vec<Frame>),
    Differs(String),
    Gone(String),
    /// This rank has left the group.
    Left,
}

impl Group {
    /// With `connects_late`, the first all-reduce of each size sets up the connections for this
    /// size.
    pub(crate) fn new(
        [rank, count]: [usize; 2],
        driver: &'static Driver,
        peers: Vec<(usize, TcpStream)>,
        connects_late: bool,
    ) -> Result<Arc<Self>, Failure> {
        let mail = peers.iter().map(|_| Mail::default()).collect();
        let (fault, has_left, spare) = (None, false, vec![]);
        let group = Arc::new(Self {
            rank,
            count,
            driver,
            peers,
            state: Mutex::new(State { mail, fault, has_left, references: 0, spare }),
            changed: Condvar::new(),
            turn: Mutex::new(0),
            inside: Mutex::new(()),
            calls: AtomicU64::new(0),
            connected: (connects_late && count > 1).then(Mutex::default),
        });
        for i in 0..group.peers.len() {
            let group = group.clone();
            let spawned = thread::Builder::new().name("nccl".into()).spawn(move || group.read(i));
            spawned.map_err(|e| failure(SYSTEM, e.to_string()))?;
        }
        Ok(group)
    }

    /// The number of the next call.
    pub(crate) fn next_call(&self) -> u64 {
        self.calls.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Sets up the connections for a message size. This allocates device memory, which is illegal
    /// during capture.
    pub(crate) fn connect(&self, bytes: usize) -> Result<(), Failure> {
        let Some(connected) = &self.connected else { return Ok(()) };
        // NCCL connects once per algorithm, and has only a few algorithms; connecting once per
        // power of two is stricter.
        let size = bytes.ilog2();
        if lock(connected).contains(&size) {
            return Ok(());
        }
        let mut address = 0;
        // SAFETY: writes one number, and frees the allocation once.
        let code = unsafe {
            match (self.driver.allocate)(&mut address, 1) {
                0 => (self.driver.free)(address),
                code => code,
            }
        };
        if code != 0 {
            let text = format!("connecting an all-reduce of {bytes} bytes: CUDA error {code}");
            return Err(failure(UNHANDLED_CUDA, text));
        }
        lock(connected).insert(size);
        Ok(())
    }

    /// Counts an all-reduce that was enqueued or added to a graph. NCCL creates no plan for a group
    /// of one rank, so its all-reduces are not counted.
    pub(crate) fn hold(&self) {
        lock(&self.state).references += usize::from(self.count > 1);
    }

    /// Undoes one call of [`Self::hold`].
    pub(crate) fn release(&self) {
        lock(&self.state).references -= usize::from(self.count > 1);
        self.changed.notify_all();
    }

    /// The error of an earlier all-reduce.
    pub(crate) fn fault(&self) -> Option<Failure> {
        lock(&self.state).fault.clone()
    }

    /// Ends the all-reduces, and waits until no stream or graph contains an all-reduce of the
    /// group.
    pub(crate) fn leave(&self) {
        lock(&self.state).has_left = true;
        for (_, stream) in &self.peers {
            // The stream may already be closed.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
        drop(self.wait(|state| state.references == 0));
    }

    /// Reads frames from a peer into its mailbox until the connection is closed.
    fn read(&self, peer: usize) {
        let spare = || lock(&self.state).spare.pop().unwrap_or_default();
        while let Ok(frame) = receive(&self.peers[peer].1, spare) {
            lock(&self.state).mail[peer].frames.push_back(frame);
            self.changed.notify_all();
        }
        lock(&self.state).mail[peer].is_closed = true;
        self.changed.notify_all();
    }

    /// Executes an all-reduce; returns a driver error, or 0.
    pub(crate) fn execute(&self, sum: &Sum) -> i32 {
        let mut turn = match self.turn.try_lock() {
            Ok(turn) => turn,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                report(FUNCTION, "two all-reduces of a group run at once");
                lock(&self.turn)
            }
        };
        *turn += 1;
        let what = What { sequence: *turn, call: sum.call, count: sum.count as u64, of: sum.of };
        match injected("sum", Some(self.rank as c_int)) {
            Some(Fault::Die) => process::abort(),
            Some(Fault::Hang) => return self.hang(sum),
            Some(Fault::Error) => {
                self.set_fault(failure(SYSTEM, "injected failure of an all-reduce"));
                return self.hang(sum);
            }
            _ => {}
        }
        match self.exchange(sum, &what) {
            Ok(()) => 0,
            Err(code) => code,
        }
    }

    fn exchange(&self, sum: &Sum, what: &What) -> Result<(), i32> {
        if let Some(fault) = self.fault() {
            return self.end(sum, fault.code);
        }
        if self.rank > 0 {
            let own = self.own(sum)?;
            // If the connection is closed, `peer_messages` reports it.
            let _ = send(&self.peers[0].1, Kind::Numbers, what, own);
        }
        let mut frames = match self.peer_messages(what) {
            PeerMessage::Frames(frames) => frames,
            PeerMessage::Differs(text) => {
                self.send_reason(Kind::Differs, what, &text);
                report(FUNCTION, &text);
                self.set_fault(misuse(INVALID_USAGE, text));
                return self.end(sum, INVALID_USAGE);
            }
            PeerMessage::Gone(text) => {
                self.send_reason(Kind::Gone, what, &text);
                self.set_fault(failure(REMOTE, text));
                return self.end(sum, REMOTE);
            }
            PeerMessage::Left => return self.end(sum, 0),
        };
        if self.rank == 0 {
            let mut total = lock(&self.state).spare.pop().unwrap_or_default();
            let own = self.own(sum)?;
            let others = frames.iter().map(|frame| &frame.payload[..]);
            let parts: Vec<&[u8]> = std::iter::once(own).chain(others).collect();
            add(sum.of, &parts, &mut total);
            for (_, stream) in &self.peers {
                // As above.
                let _ = send(stream, Kind::Numbers, what, &total);
            }
            frames.push(Frame { kind: Kind::Numbers, what: *what, payload: total });
        }
        // The result is the last frame; ranks other than 0 receive only this frame.
        let result = frames.last().map(|frame| &frame.payload[..]).unwrap_or_default();
        self.write(sum, Some(result))?;
        let spare = &mut lock(&self.state).spare;
        spare.extend(frames.into_iter().map(|frame| frame.payload));
        spare.truncate(MAX_SPARE);
        Ok(())
    }

    /// Waits until all peers have sent their contributions. Returns earlier if a peer's call
    /// differs, a peer's connection is closed, or this rank has left.
    fn peer_messages(&self, what: &What) -> PeerMessage {
        let mut state = self.wait(|state| {
            let differs = |mail: &Mail| mail.frames.front().is_some_and(|f| !fits(f, what));
            let ends = |mail: &Mail| mail.frames.is_empty() && mail.is_closed;
            let all = state.mail.iter().all(|mail| !mail.frames.is_empty());
            all || state.has_left || state.mail.iter().any(|mail| differs(mail) || ends(mail))
        });
        if state.has_left {
            return PeerMessage::Left;
        }
        for ((peer, _), mail) in self.peers.iter().zip(&state.mail) {
            match mail.frames.front() {
                Some(frame) if frame.kind == Kind::Numbers && !fits(frame, what) => {
                    return PeerMessage::Differs(difference(
                        [self.rank, *peer],
                        [what, &frame.what],
                    ));
                }
                Some(Frame { kind: Kind::Differs, payload, .. }) => {
                    return PeerMessage::Differs(String::from_utf8_lossy(payload).into_owned());
                }
                Some(Frame { kind: Kind::Gone, payload, .. }) => {
                    return PeerMessage::Gone(String::from_utf8_lossy(payload).into_owned());
                }
                None if mail.is_closed => {
                    return PeerMessage::Gone(format!("rank {peer} has closed its connection"));
                }
                _ => {}
            }
        }
        PeerMessage::Frames(
            state.mail.iter_mut().filter_map(|mail| mail.frames.pop_front()).collect(),
        )
    }

    /// On rank 0: sends the reason for the missing result to the other ranks.
    fn send_reason(&self, kind: Kind, what: &What, text: &str) {
        for (_, stream) in self.peers.iter().filter(|_| self.rank == 0) {
            // Ignores ranks that have exited.
            let _ = send(stream, kind, what, text.as_bytes());
        }
    }

    fn set_fault(&self, fault: Failure) {
        set_last(&fault.text);
        lock(&self.state).fault.get_or_insert(fault);
    }

    /// Ends an all-reduce without a result: at once if the ranks' calls differ (NCCL does not
    /// detect this), else, as in NCCL, when this rank leaves.
    fn end(&self, sum: &Sum, fault: c_int) -> Result<(), i32> {
        if fault != INVALID_USAGE {
            drop(self.wait(|state| state.has_left));
        }
        self.write(sum, None)
    }

    fn hang(&self, sum: &Sum) -> i32 {
        self.end(sum, SYSTEM).err().unwrap_or(0)
    }

    /// Host address of these device bytes.
    fn at(&self, address: u64, bytes: usize) -> Result<*mut u8, i32> {
        // SAFETY: the function accepts any range.
        let at = unsafe { (self.driver.address)(address, bytes as u64) };
        if at.is_null() {
            let text = format!("{bytes} bytes at {address:#x} are no longer device memory");
            report(FUNCTION, &text);
            return Err(ILLEGAL_ADDRESS);
        }
        Ok(at)
    }

    /// This rank's contribution.
    fn own(&self, sum: &Sum) -> Result<&[u8], i32> {
        let at = self.at(sum.from, sum.bytes())?;
        // SAFETY: the driver has found an allocation that contains the bytes. The driver frees or
        // overwrites this memory only after the preceding work has ended, including this
        // all-reduce.
        Ok(unsafe { slice::from_raw_parts(at, sum.bytes()) })
    }

    /// Writes the result, or NaN if there is none.
    fn write(&self, sum: &Sum, result: Option<&[u8]>) -> Result<(), i32> {
        let bytes = sum.bytes();
        let to = self.at(sum.to, bytes)?;
        // SAFETY: the driver has found an allocation that contains the bytes, and nothing else
        // accesses them meanwhile: other work on the device is ordered before or after this
        // all-reduce.
        unsafe {
            match result {
                Some(result) => ptr::copy(result.as_ptr(), to, bytes.min(result.len())),
                None => to.write_bytes(UNDEFINED, bytes),
            }
        }
        if result.is_some() {
            // SAFETY: the function accepts any range.
            unsafe { (self.driver.set_written)(sum.to, bytes as u64) };
        }
        Ok(())
    }

    fn wait(&self, until: impl Fn(&State) -> bool) -> MutexGuard<'_, State> {
        let state = self.changed.wait_while(lock(&self.state), |state| !until(state));
        state.unwrap_or_else(PoisonError::into_inner)
    }
}

fn fits(frame: &Frame, what: &What) -> bool {
    frame.kind == Kind::Numbers && frame.what == *what
}

fn difference(ranks: [usize; 2], whats: [&What; 2]) -> String {
    let [a, b] = [0, 1].map(|i| {
        let What { sequence, call, count, of } = whats[i];
        let of = format!("{of:?}").to_lowercase();
        format!("rank {} adds {count} of {of} (call {call}, sum {sequence})", ranks[i])
    });
    format!("{a}, {b}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
