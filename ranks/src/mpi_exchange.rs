//! The exchange of CPU ranks over MPI: MPI moves the values, and adds nothing.
//!
//! One thread owns MPI, from its start to its end, and the values in transit. When a rank is lost,
//! that thread stops where it is, as MPI can neither finish nor be stopped: threads that wait for
//! it go on without it, and the process ends without `MPI_Finalize`, which would wait for the lost
//! rank.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use device::{Exchange, Ranks};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::request::{LocalScope, Request};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};

use crate::error::RanksError;
use crate::group::Group;

/// How often a wait looks whether a rank was lost.
const LOOK: Duration = Duration::from_millis(5);

/// How long MPI's start and end may take: they wait for all ranks.
const LIMIT: Duration = Duration::from_secs(60);

/// Tests of a transfer before its thread sleeps between them: it shares the processor with those
/// that compute.
const TESTS_BEFORE_SLEEP: usize = 500;

/// The sleep between two tests.
const SLEEP: Duration = Duration::from_micros(100);

/// Why nothing is exchanged any more.
const ENDED: &str = "MPI has ended";

/// Moves values between the ranks of `MPI_COMM_WORLD`.
///
/// A send copies its values once, and a receive too.
pub struct MpiExchange {
    group: Group,
    fault: OnceLock<String>,
    /// Held during one exchange.
    line: Mutex<Line>,
    is_abandoned: Arc<AtomicBool>,
}

/// The connection to the thread that owns MPI.
struct Line {
    orders: Sender<Order>,
    done: Receiver<Values>,
    /// The buffers of the last exchange, to be reused.
    spare: Values,
}

/// One buffer per rank; those of this rank are empty.
#[derive(Default)]
struct Values {
    send: Vec<Vec<f32>>,
    receive: Vec<Vec<f32>>,
}

enum Order {
    Exchange(Values),
    /// Ends MPI.
    Finish,
}

/// The thread's message once MPI has started.
type Started = Result<Ranks, String>;

impl fmt::Debug for MpiExchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MpiExchange({:?})", self.group)
    }
}

impl MpiExchange {
    /// Starts MPI, at most once a process. All ranks call it, after [`Group::join`]: a rank that
    /// never comes is then named by the group and not waited for by MPI. It starts MPI in a thread
    /// of its own (`MPI_THREAD_FUNNELED`), the only one to call MPI.
    ///
    /// # Errors
    /// If MPI does not start, numbers the ranks otherwise than the launcher's variables, or a
    /// rank is lost meanwhile.
    pub fn start(group: Group) -> Result<Self, RanksError> {
        let (started, start) = channel();
        let (orders, ordered) = channel();
        let (finished, done) = channel();
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let abandoned = is_abandoned.clone();
        thread::Builder::new()
            .name("mpi".into())
            .spawn(move || own_mpi(&started, &ordered, &finished, &abandoned))
            .map_err(|error| RanksError::Mpi(format!("MPI's thread cannot start: {error}")))?;
        let ranks = wait(&group, &start, "MPI's start")?.map_err(RanksError::Mpi)?;
        let own = Ranks { rank: group.rank(), count: group.ranks() };
        if ranks != own {
            if ranks.count == 1 {
                return Err(RanksError::Mpi(
                    "ranks on the CPU exchange over MPI, and MPI has started this process alone: \
                     start them with the mpirun of the MPI library that onegraph was built with"
                        .into(),
                ));
            }
            return Err(RanksError::Mpi(format!(
                "MPI counts this process as rank {} of {}, and the launcher as rank {} of {}; \
                 start the ranks with the mpirun of the MPI library that onegraph was built with",
                ranks.rank, ranks.count, own.rank, own.count
            )));
        }
        let line = Mutex::new(Line { orders, done, spare: Values::default() });
        Ok(Self { group, fault: OnceLock::new(), line, is_abandoned })
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn try_finish(&self) -> Result<(), RanksError> {
        let what = "the end of MPI";
        self.group.barrier(what)?;
        let line = self.line();
        line.orders.send(Order::Finish).map_err(|_| RanksError::Mpi(ENDED.into()))?;
        wait(&self.group, &line.done, what).map(|_| ())
    }

    /// Exchanges with the other ranks, or says why it cannot.
    fn try_exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) -> Result<(), String> {
        let mut line = self.line();
        if let Some(fault) = self.fault() {
            return Err(fault);
        }
        let Values { send: sent, receive: received } = &mut line.spare;
        sent.resize_with(send.len(), Vec::new);
        received.resize_with(receive.len(), Vec::new);
        for rank in (0..send.len()).filter(|rank| *rank != self.group.rank()) {
            if i32::try_from(send[rank].len().max(receive[rank].len())).is_err() {
                return Err(format!("MPI cannot move {} values at once", send[rank].len()));
            }
            sent[rank].clear();
            sent[rank].extend_from_slice(send[rank]);
            received[rank].resize(receive[rank].len(), 0.0);
        }
        let values = std::mem::take(&mut line.spare);
        line.orders.send(Order::Exchange(values)).map_err(|_| ENDED)?;
        let what = "the gradients of the other ranks";
        line.spare = self.group.waiting(what, || self.moved(&line.done))?;
        for (rank, values) in receive.iter_mut().enumerate() {
            match rank == self.group.rank() {
                true => values.copy_from_slice(send[rank]),
                false => values.copy_from_slice(&line.spare.receive[rank]),
            }
        }
        Ok(())
    }

    /// Waits for the values that MPI's thread has moved, until a loss.
    fn moved(&self, done: &Receiver<Values>) -> Result<Values, String> {
        loop {
            match done.recv_timeout(LOOK) {
                Ok(values) => return Ok(values),
                Err(RecvTimeoutError::Disconnected) => return Err(ENDED.into()),
                Err(RecvTimeoutError::Timeout) => {}
            }
            if let Some(lost) = self.group.lost() {
                self.is_abandoned.store(true, Ordering::SeqCst);
                return Err(lost.to_string());
            }
        }
    }
}

impl Exchange for MpiExchange {
    fn ranks(&self) -> Ranks {
        Ranks { rank: self.group.rank(), count: self.group.ranks() }
    }

    fn exchange(&self, send: &[&[f32]], receive: &mut [&mut [f32]]) {
        let count = self.group.ranks();
        assert_eq!((send.len(), receive.len()), (count, count), "one slice per rank each");
        if let Err(fault) = self.try_exchange(send, receive) {
            self.fault.get_or_init(|| fault);
            receive.iter_mut().for_each(|values| values.fill(f32::NAN));
        }
    }

    fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    /// Ends MPI. A process that ends in order calls it before [`Group::leave`]; one that ends
    /// because of an error does not.
    fn finish(&self) -> Result<(), String> {
        self.try_finish().map_err(|fault| fault.to_string())
    }
}

/// Waits for MPI's thread, until a loss.
fn wait<T>(group: &Group, answer: &Receiver<T>, what: &str) -> Result<T, RanksError> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match answer.recv_timeout(LOOK) {
            Ok(answer) => return Ok(answer),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(RanksError::Mpi(format!("{what}: MPI's thread has ended")));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Some(lost) = group.lost() {
            return Err(RanksError::Lost(Box::new(lost)));
        }
        if Instant::now() > deadline {
            let seconds = LIMIT.as_secs();
            return Err(RanksError::Mpi(format!(
                "{what} took more than {seconds} s; see whether \
                 the hosts reach each other"
            )));
        }
    }
}

/// The thread that owns MPI.
fn own_mpi(
    started: &Sender<Started>,
    orders: &Receiver<Order>,
    finished: &Sender<Values>,
    is_abandoned: &AtomicBool,
) {
    let universe = match start_mpi() {
        Ok(universe) => universe,
        Err(fault) => {
            // Nobody waits for it if a rank was lost meanwhile.
            let _ = started.send(Err(fault));
            return;
        }
    };
    let world = universe.world();
    // MPI's numbers are never negative.
    let ranks = Ranks { rank: world.rank() as usize, count: world.size() as usize };
    if started.send(Ok(ranks)).is_err() {
        stop();
    }
    loop {
        match orders.recv() {
            Ok(Order::Exchange(mut values)) => {
                transfer(&world, &mut values, is_abandoned);
                if finished.send(values).is_err() {
                    stop();
                }
            }
            Ok(Order::Finish) => break,
            // The exchange is gone without an orderly end.
            Err(_) => stop(),
        }
    }
    drop(universe);
    let _ = finished.send(Values::default());
}

fn start_mpi() -> Result<Universe, String> {
    let Some((universe, provided)) = mpi::initialize_with_threading(Threading::Funneled) else {
        return Err("MPI is started twice in one process".into());
    };
    match provided >= Threading::Funneled {
        true => Ok(universe),
        false => Err("this MPI library allows no threads; use one with MPI_THREAD_FUNNELED".into()),
    }
}

/// Never returns: MPI is left as it is until the process ends.
fn stop() -> ! {
    loop {
        thread::park();
    }
}

/// Sends and receives; returns when all is done, and never once it is abandoned: MPI may still
/// write into the buffers.
fn transfer(world: &SimpleCommunicator, values: &mut Values, is_abandoned: &AtomicBool) {
    let Values { send, receive } = values;
    mpi::request::scope(|scope| {
        let mut requests: Vec<Request<'_, [f32], &LocalScope<'_>>> = Vec::new();
        // A communicator has at most 2^31 ranks.
        let process = |rank: usize| world.process_at_rank(rank as i32);
        for (rank, values) in receive.iter_mut().enumerate() {
            if !values.is_empty() {
                requests.push(process(rank).immediate_receive_into(scope, &mut values[..]));
            }
        }
        for (rank, values) in send.iter().enumerate() {
            if !values.is_empty() {
                requests.push(process(rank).immediate_send(scope, &values[..]));
            }
        }
        let mut tests = 0;
        while !requests.is_empty() {
            requests = requests.into_iter().filter_map(|request| request.test().err()).collect();
            if is_abandoned.load(Ordering::SeqCst) && !requests.is_empty() {
                stop();
            }
            tests += 1;
            match tests < TESTS_BEFORE_SLEEP {
                true => thread::yield_now(),
                false => thread::sleep(SLEEP),
            }
        }
    });
}
