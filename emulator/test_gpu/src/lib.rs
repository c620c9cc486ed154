//! A GPU for each test, in the test's own process: the production [`CudaDevice`] on the emulated
//! driver, which executes the shipped PTX.
//!
//! ```
//! use device::Device;
//!
//! let device = test_gpu::open("A100 SEED=3");
//! assert_eq!(device.gpu().multiprocessors, 108);
//! ```
//!
//! The argument is a model and settings (`SEED` is the variable `DRIVER_SEED`, and so on);
//! `docs/emulated-driver.md` lists them. The seed determines the order in which streams, blocks and
//! warps execute, which may be any order that streams and events allow. A launch may access only
//! the bytes that it declares. A captured graph is rejected if two of its unordered operations
//! race.

mod counted;
mod library;

use std::thread;
use std::time::Duration;

use device::cuda::{CudaDevice, NcclOptions, nccl_id};
use device::{DeviceError, Ranks};

pub use counted::Counted;
pub use emulator::{Operation, Requests};

/// Upper bound on the error of tensor core sums, which are truncated where fp32 arithmetic rounds:
/// per term, and relative to the root mean square of the sums. The A100 model has errors of 7.0e-9
/// to 8.9e-9 for sums of 512 to 32,768 terms.
pub const CUT_PER_PRODUCT: f64 = 1e-8;

/// A GPU used by no other test.
#[derive(Debug, Clone, Copy)]
pub struct TestGpu {
    number: usize,
}

/// Objects of a GPU that have not been destroyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alive {
    /// Captured graphs.
    pub graphs: u64,
    /// Streams.
    pub streams: u64,
    /// Events.
    pub events: u64,
}

/// Adds and opens a GPU. `words` is a model and settings.
pub fn open(words: &str) -> CudaDevice {
    TestGpu::new(words).open()
}

/// Adds and opens GPUs that are connected for all-reduce. Each GPU needs a separate thread: a rank
/// in an all-reduce waits for the other ranks.
pub fn group(words: &str, count: usize) -> Vec<CudaDevice> {
    library::load();
    let id = nccl_id().unwrap_or_else(|e| panic!("{e}"));
    thread::scope(|scope| {
        let join = |rank| {
            let device = open(words);
            let options = NcclOptions { nvls: true, timeout: Duration::from_secs(60) };
            let joined = device.join(Ranks { rank, count }, &id, &options);
            joined.unwrap_or_else(|e| panic!("{e}"));
            device
        };
        let ranks: Vec<_> = (0..count).map(|rank| scope.spawn(move || join(rank))).collect();
        let joined = ranks.into_iter().map(|rank| rank.join());
        joined.map(|device| device.unwrap_or_else(|_| panic!("a rank did not join"))).collect()
    })
}

impl TestGpu {
    /// Adds a GPU; `words` is a model and settings. The GPU exists until the process ends.
    pub fn new(words: &str) -> Self {
        Self { number: library::add(words) }
    }

    /// Opens it.
    ///
    /// # Errors
    /// As for [`CudaDevice::open`].
    pub fn try_open(self) -> Result<CudaDevice, DeviceError> {
        kernels::compiled::open(self.number, |_| ())
    }

    /// Opens the GPU; panics on an error.
    pub fn open(self) -> CudaDevice {
        self.try_open().unwrap_or_else(|e| panic!("{e}"))
    }

    /// The GPU's objects that are currently alive.
    pub fn alive(self) -> Alive {
        library::alive(self.number)
    }

    /// The launches since the last call, in execution order; empty unless the settings have
    /// `COUNT=1`.
    pub fn take_counted(self) -> Vec<Counted> {
        library::take_counted(self.number)
    }
}
