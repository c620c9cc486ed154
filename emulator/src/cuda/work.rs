//! The work in streams, and its execution.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;
use std::time::Instant;

use super::errors::{ILLEGAL_ADDRESS, LAUNCH_FAILED};
use super::injection::Fate;
use super::settings::Settings;
use crate::exec::{self, Declared, Launch};
use crate::memory::Memory;

/// A handle as seen by programs; 0 is null.
pub(super) type Handle = u64;

/// One operation on the device.
#[derive(Debug)]
pub(super) enum Work {
    /// No operation, but the item keeps its position in the stream order.
    Nothing,
    /// A kernel, and its module.
    Launch(Launch, Handle),
    /// A copy from the host; the bytes were read when the program made the call.
    ToDevice { to: u64, bytes: Box<[u8]> },
    /// A copy to the host; the thread that waits for the copy takes the bytes from `bytes`.
    ToHost { from: u64, bytes: Arc<Mutex<Vec<u8>>> },
    /// A copy within device and pinned memory.
    Copy { to: u64, from: u64, bytes: usize },
    /// A function of another library.
    External(External),
}

/// The failure of an operation.
#[derive(Debug)]
pub(super) struct Broken {
    /// The error that all later calls return.
    pub(super) code: i32,
    /// Message for the report; `None` if the failure was injected.
    pub(super) sentence: Option<String>,
}

/// An operation of another library: its callbacks and their data.
#[derive(Debug)]
pub(super) struct External {
    /// Name for the report.
    pub(super) name: String,
    /// Called at each execution. If it returns an error code other than 0, all later calls return
    /// this code.
    pub(super) run: unsafe extern "C" fn(*mut c_void) -> i32,
    /// Called once, when `run` can no longer be called.
    pub(super) release: unsafe extern "C" fn(*mut c_void),
    /// The address of the data.
    pub(super) data: usize,
    /// The ranges that the operation may access, if the program declares them.
    pub(super) declared: Option<Vec<Declared>>,
}

impl Drop for External {
    fn drop(&mut self) {
        // `release` is called on a separate thread: it may wait for locks that this thread holds.
        static RELEASES: OnceLock<Mutex<Sender<Release>>> = OnceLock::new();
        let sender = RELEASES.get_or_init(|| {
            let (sender, receiver) = channel::<Release>();
            thread::spawn(move || receiver.into_iter().for_each(Release::call));
            Mutex::new(sender)
        });
        let sender = sender.lock().unwrap_or_else(PoisonError::into_inner);
        // The receiver lives as long as the process.
        let _ = sender.send(Release { release: self.release, data: self.data });
    }
}

struct Release {
    release: unsafe extern "C" fn(*mut c_void),
    data: usize,
}

impl Release {
    fn call(self) {
        // SAFETY: the library provided the function and its data for one call, and `drop` runs
        // once.
        unsafe { (self.release)(ptr::with_exposed_provenance_mut(self.data)) }
    }
}

/// A point in a stream; once reached, it stays reached.
#[derive(Debug, Default)]
pub(super) struct Mark {
    is_done: AtomicBool,
    time: OnceLock<Instant>,
}

impl Mark {
    /// Marks the point as reached.
    pub(super) fn reach(&self) {
        self.time.get_or_init(Instant::now);
        self.is_done.store(true, Ordering::SeqCst);
    }

    /// True if the point was reached.
    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::SeqCst)
    }

    /// The time at which the point was reached.
    pub(super) fn time(&self) -> Option<Instant> {
        self.time.get().copied()
    }
}

impl Work {
    /// The ranges that the operation may access; `None` if they are unknown.
    pub(super) fn touches(&self) -> Option<Vec<Declared>> {
        let one =
            |first: u64, bytes: usize, writes| Declared { first, bytes: bytes as u64, writes };
        match self {
            Self::Nothing => Some(vec![]),
            Self::Launch(launch, _) => launch.declared.clone(),
            Self::ToDevice { to, bytes } => Some(vec![one(*to, bytes.len(), 1)]),
            Self::ToHost { from, bytes } => {
                let bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner).len();
                Some(vec![one(*from, bytes, 0)])
            }
            Self::Copy { to, from, bytes } => {
                Some(vec![one(*to, *bytes, 1), one(*from, *bytes, 0)])
            }
            Self::External(external) => external.declared.clone(),
        }
    }

    /// Name for reports.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Nothing => "nothing",
            Self::Launch(launch, _) => &launch.kernel.name,
            Self::ToDevice { .. } | Self::ToHost { .. } | Self::Copy { .. } => "a copy",
            Self::External(external) => &external.name,
        }
    }

    /// Executes the operation, without holding a lock.
    pub(super) fn execute(
        &self,
        memory: &Memory,
        seed: u64,
        settings: &Settings,
    ) -> Result<(), Broken> {
        let inside = match self {
            Self::Nothing => true,
            Self::Launch(launch, _) => return execute_kernel(launch, memory, seed, settings),
            Self::External(external) => return external.execute(),
            Self::Copy { to, from, bytes } => memory.copy(*to, *from, *bytes),
            Self::ToDevice { to, bytes } => {
                // SAFETY: the source has the length of the copy.
                unsafe { memory.write(*to, bytes.as_ptr(), bytes.len()) }
            }
            Self::ToHost { from, bytes } => {
                let mut bytes = bytes.lock().unwrap_or_else(PoisonError::into_inner);
                // SAFETY: the target has the length of the copy.
                unsafe { memory.read(*from, bytes.as_mut_ptr(), bytes.len()) }
            }
        };
        let sentence = || "a copy accesses memory that was freed".to_string();
        let broken = || Broken { code: ILLEGAL_ADDRESS, sentence: Some(sentence()) };
        if inside { Ok(()) } else { Err(broken()) }
    }
}

fn execute_kernel(
    launch: &Launch,
    memory: &Memory,
    seed: u64,
    settings: &Settings,
) -> Result<(), Broken> {
    match settings.injections.of_kernel(&launch.kernel.name) {
        Fate::Runs => {}
        Fate::Lost => return Err(Broken { code: LAUNCH_FAILED, sentence: None }),
        Fate::Hangs => loop {
            thread::park();
        },
    }
    let run = || exec::run(launch, memory, seed, settings.options);
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(counted)) => {
            let mut all = settings.counted.lock().unwrap_or_else(PoisonError::into_inner);
            all.extend(counted);
            Ok(())
        }
        Ok(Err(fault)) => Err(Broken { code: fault.code, sentence: Some(fault.sentence) }),
        Err(_) => {
            let sentence = format!("the executor panicked in {}", launch.kernel.name);
            Err(Broken { code: LAUNCH_FAILED, sentence: Some(sentence) })
        }
    }
}

impl External {
    fn execute(&self) -> Result<(), Broken> {
        // SAFETY: the library guarantees that function and data are valid until `release` is
        // called, which happens when `self` is dropped.
        let code = unsafe { (self.run)(ptr::with_exposed_provenance_mut(self.data)) };
        let sentence = || Some(format!("{} failed", self.name));
        if code == 0 { Ok(()) } else { Err(Broken { code, sentence: sentence() }) }
    }
}
