//! Decoding ahead: a thread of its own fills slots while the training uses earlier ones.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, TryRecvError, channel, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::fill::fill_slot;
use super::slot::{OwnedSlot, SlotShape};
use crate::error::DaliError;
use crate::store::Store;

/// Which images to load into one slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// Indices into the store.
    pub indices: Vec<usize>,
    /// Epoch that they are loaded for.
    pub epoch: u32,
}

/// One filled slot.
#[derive(Debug)]
pub struct Filled {
    /// The batch; hand it back with [`Loader::recycle`].
    pub slot: OwnedSlot,
    /// Seconds that the caller waited for it: the share of the step that data costs.
    pub waited_seconds: f64,
    /// Seconds that filling it took, most of them hidden behind the training.
    pub fill_seconds: f64,
}

/// A filled slot on its way to the caller.
struct Parcel {
    slot: OwnedSlot,
    fill_seconds: f64,
    is_last: bool,
}

type FillResult = Result<Parcel, DaliError>;

/// Loads batches ahead of their use; they come in the order of the iterator.
#[derive(Debug)]
pub struct Loader {
    // Taken when the loader is dropped, which ends the thread.
    free: Option<Sender<OwnedSlot>>,
    filled: Option<Receiver<FillResult>>,
    thread: Option<JoinHandle<()>>,
    num_slots: usize,
    num_lent: usize,
}

impl Loader {
    /// Starts loading `batches` into `num_slots` slots of this shape, with `num_threads` decoding
    /// threads besides the training's own.
    ///
    /// # Errors
    /// [`DaliError::Option`] for no slot or no thread, [`DaliError::Loader`] where the system
    /// gives no threads.
    pub fn new<I>(
        store: Arc<Store>,
        batches: I,
        shape: SlotShape,
        num_slots: usize,
        num_threads: usize,
    ) -> Result<Loader, DaliError>
    where
        I: IntoIterator<Item = Batch>,
        I::IntoIter: Send + 'static,
    {
        for (option, got) in [("num_slots", num_slots), ("num_threads", num_threads)] {
            if got == 0 {
                let expected = "must be at least 1";
                return Err(DaliError::Option { option, got: got.to_string(), expected });
            }
        }
        let no_threads = |error: &dyn std::fmt::Display| {
            DaliError::Loader(format!("cannot start {num_threads} threads: {error}"))
        };
        // A pool apart: the training's pool is busy with the step, and would serve these last.
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(num_threads)
            .thread_name(|idx| format!("dali-{idx}"))
            .build()
            .map_err(|error| no_threads(&error))?;
        let (free, free_slots) = channel();
        let (to_caller, filled) = sync_channel(num_slots);
        for _ in 0..num_slots {
            // The receiver is alive in this scope, so this cannot fail.
            let _ = free.send(OwnedSlot::new(shape));
        }
        let mut batches = batches.into_iter();
        let thread = std::thread::Builder::new()
            .name("dali-loader".to_string())
            .spawn(move || {
                load(&store, &pool, &mut batches, &free_slots, &to_caller);
            })
            .map_err(|error| no_threads(&error))?;
        Ok(Loader {
            free: Some(free),
            filled: Some(filled),
            thread: Some(thread),
            num_slots,
            num_lent: 0,
        })
    }

    /// The next batch, waiting for it if need be; none after the last one.
    ///
    /// # Errors
    /// What [`fill_slot`] met, after which there are no more batches; [`DaliError::Loader`] where
    /// the caller holds all slots, so that waiting would never end.
    #[allow(clippy::should_implement_trait)] // an iterator could not lend out and take back
    pub fn next(&mut self) -> Result<Option<Filled>, DaliError> {
        let start = Instant::now();
        let Some(filled) = &self.filled else { return Ok(None) };
        let result = match filled.try_recv() {
            Ok(result) => result,
            Err(TryRecvError::Disconnected) => return Ok(None),
            Err(TryRecvError::Empty) if self.num_lent == self.num_slots => {
                return Err(DaliError::Loader(format!(
                    "all {} slots are with the caller; recycle one before asking for the next",
                    self.num_slots
                )));
            }
            Err(TryRecvError::Empty) => match filled.recv() {
                Ok(result) => result,
                Err(_) => return Ok(None),
            },
        };
        let Parcel { slot, fill_seconds, is_last } = result?;
        if is_last {
            self.filled = None;
        }
        self.num_lent += 1;
        Ok(Some(Filled { slot, waited_seconds: start.elapsed().as_secs_f64(), fill_seconds }))
    }

    /// Hands a slot back to be filled again.
    pub fn recycle(&mut self, slot: OwnedSlot) {
        self.num_lent = self.num_lent.saturating_sub(1);
        if let Some(free) = &self.free {
            // Where the thread has ended, after the last batch, the slot is just dropped.
            let _ = free.send(slot);
        }
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        // Both ends are closed first: the thread may wait on either.
        self.free = None;
        self.filled = None;
        if let Some(thread) = self.thread.take() {
            // A panic in it has been printed; to panic again while dropping would abort.
            let _ = thread.join();
        }
    }
}

fn load(
    store: &Store,
    pool: &rayon::ThreadPool,
    batches: &mut (dyn Iterator<Item = Batch> + Send),
    free_slots: &Receiver<OwnedSlot>,
    to_caller: &SyncSender<FillResult>,
) {
    let mut next = batches.next();
    while let Some(batch) = next {
        let Ok(mut slot) = free_slots.recv() else { return };
        let start = Instant::now();
        let filled = pool.install(|| fill_slot(store, &batch.indices, batch.epoch, slot.as_slot()));
        let fill_seconds = start.elapsed().as_secs_f64();
        next = batches.next();
        let failed = filled.is_err();
        let parcel = filled.map(|()| Parcel { slot, fill_seconds, is_last: next.is_none() });
        if to_caller.send(parcel).is_err() || failed {
            return;
        }
    }
}
