//! Prefetching: a separate thread fills slots while training uses earlier slots.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::fill::{Batch, Filler, fill_batch};
use super::slot::{PlainMemory, Slot};
use crate::error::DaliError;
use crate::store::Stores;

/// Maximum number of decoding threads. No machine has more cores, and the creation of more threads
/// may fail or hang.
const MAX_THREADS: usize = 1024;

/// One filled slot.
#[derive(Debug)]
pub struct Filled<M = PlainMemory> {
    /// The slot with the batch; to be returned with [`Loader::recycle`].
    pub slot: Slot<M>,
    /// Seconds that the caller waited for the slot: the share of data loading in the step time.
    pub waited_seconds: f64,
    /// Seconds spent filling the slot, mostly while training runs.
    pub fill_seconds: f64,
}

/// Message from the loading thread to the caller: a filled slot.
struct Parcel<M> {
    slot: Slot<M>,
    fill_seconds: f64,
    is_last: bool,
}

type FillResult<M> = Result<Parcel<M>, DaliError>;

/// Function that fills a slot with a batch.
type Fill<'a, M> = dyn Fn(&Batch, &mut Slot<M>) -> Result<(), DaliError> + 'a;

/// Loads the batches of an iterator in order, ahead of their use.
#[derive(Debug)]
pub struct Loader<M = PlainMemory> {
    // Dropping the loader drops this sender, which ends the thread.
    free: Option<Sender<Slot<M>>>,
    filled: Option<Receiver<FillResult<M>>>,
    thread: Option<JoinHandle<()>>,
    num_slots: usize,
    num_lent: usize,
    /// Number of filled slots that are ready for the caller.
    ready: Arc<AtomicUsize>,
}

impl<M: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> Loader<M> {
    /// Starts loading `batches` into `slots`, with `num_threads` decoding threads in addition to
    /// the training threads. `filler` fills the arrays that [`super::fill_slot`] does not fill.
    ///
    /// # Errors
    /// [`DaliError::Option`] for zero slots or threads or over 1024 threads, [`DaliError::Layout`]
    /// for slots that [`super::fill_slot`] cannot fill, [`DaliError::Loader`] if the system cannot
    /// start the threads.
    pub fn new<I>(
        store: Arc<Stores>,
        batches: I,
        slots: Vec<Slot<M>>,
        num_threads: usize,
        filler: Box<Filler>,
    ) -> Result<Loader<M>, DaliError>
    where
        I: IntoIterator<Item = Batch>,
        I::IntoIter: Send + 'static,
    {
        let num_slots = slots.len();
        for (option, got) in [("num_slots", num_slots), ("num_threads", num_threads)] {
            if got == 0 {
                let expected = "must be at least 1";
                return Err(DaliError::Option { option, got: got.to_string(), expected });
            }
        }
        if num_threads > MAX_THREADS {
            let (option, got) = ("num_threads", num_threads.to_string());
            return Err(DaliError::Option { option, got, expected: "must be at most 1024" });
        }
        slots.iter().try_for_each(|slot| slot.layout().check_filled())?;
        let no_threads = |error: &dyn std::fmt::Display| {
            DaliError::Loader(format!("cannot start {num_threads} threads: {error}"))
        };
        // A separate pool: in the training pool, which is busy with the step, these tasks would
        // have to wait.
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(num_threads)
            .thread_name(|idx| format!("dali-{idx}"))
            .build()
            .map_err(|error| no_threads(&error))?;
        let slot_bytes = slots[0].layout().bytes();
        tracing::debug!(slots = num_slots, slot_bytes, threads = num_threads, "loading begins");
        let (free, free_slots) = channel();
        let (to_caller, filled) = sync_channel(num_slots);
        for slot in slots {
            // The receiver still exists in this scope, so sending cannot fail.
            let _ = free.send(slot);
        }
        let mut batches = batches.into_iter();
        let ready = Arc::new(AtomicUsize::new(0));
        let counted = ready.clone();
        let thread = std::thread::Builder::new()
            .name("dali-loader".to_string())
            .spawn(move || {
                let fill = |batch: &Batch, slot: &mut Slot<M>| {
                    pool.install(|| fill_batch(&store, batch, slot, filler.as_ref()))
                };
                load(&fill, &mut batches, &free_slots, &to_caller, &counted);
            })
            .map_err(|error| no_threads(&error))?;
        Ok(Loader {
            free: Some(free),
            filled: Some(filled),
            thread: Some(thread),
            num_slots,
            num_lent: 0,
            ready,
        })
    }

    /// The next batch, waiting if necessary; `None` after the last one.
    ///
    /// # Errors
    /// Errors of [`super::fill_slot`], after which there are no more batches; [`DaliError::Loader`]
    /// if the caller holds all slots, so that no batch can be loaded.
    #[allow(clippy::should_implement_trait)] // an iterator could not take slots back
    pub fn next(&mut self) -> Result<Option<Filled<M>>, DaliError> {
        let start = Instant::now();
        let Some(filled) = &self.filled else { return Ok(None) };
        let result = match filled.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) if self.num_lent == self.num_slots => {
                return Err(DaliError::Loader(format!(
                    "all {} slots are with the caller; recycle one before requesting the next",
                    self.num_slots
                )));
            }
            Err(TryRecvError::Empty) => match filled.recv() {
                Ok(result) => result,
                Err(_) => return Ok(None),
            },
        };
        self.ready.fetch_sub(1, Ordering::Relaxed);
        let Parcel { slot, fill_seconds, is_last } = result?;
        if is_last {
            self.filled = None;
        }
        self.num_lent += 1;
        Ok(Some(Filled { slot, waited_seconds: start.elapsed().as_secs_f64(), fill_seconds }))
    }

    /// Number of filled slots that are ready for the caller.
    pub fn ready(&self) -> usize {
        self.ready.load(Ordering::Relaxed)
    }

    /// Returns a slot for refilling.
    pub fn recycle(&mut self, slot: Slot<M>) {
        self.num_lent = self.num_lent.saturating_sub(1);
        if let Some(free) = &self.free {
            // If the thread has ended (after the last batch), the slot is dropped.
            let _ = free.send(slot);
        }
    }
}

impl<M> Drop for Loader<M> {
    fn drop(&mut self) {
        // Both channels are closed first, as the thread may be waiting for either.
        self.free = None;
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread is ignored: it was printed already, and a panic in a drop could
            // abort the process.
            let _ = thread.join();
        }
    }
}

fn load<M>(
    fill: &Fill<'_, M>,
    batches: &mut (dyn Iterator<Item = Batch> + Send),
    free_slots: &Receiver<Slot<M>>,
    to_caller: &SyncSender<FillResult<M>>,
    ready: &AtomicUsize,
) {
    let mut next = batches.next();
    while let Some(batch) = next {
        let Ok(mut slot) = free_slots.recv() else { return };
        let start = Instant::now();
        let filled = fill(&batch, &mut slot);
        let fill_seconds = start.elapsed().as_secs_f64();
        next = batches.next();
        let failed = filled.is_err();
        let parcel = filled.map(|()| Parcel { slot, fill_seconds, is_last: next.is_none() });
        // Incremented before sending, as the caller decrements it as soon as it receives the slot.
        ready.fetch_add(1, Ordering::Relaxed);
        if to_caller.send(parcel).is_err() || failed {
            return;
        }
    }
}
