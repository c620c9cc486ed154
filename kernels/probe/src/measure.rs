//! One variant on one shape on a GPU: checked, then timed against the baseline.

use anyhow::bail;
use device::cuda::CudaDevice;
use device::{Device, DeviceError, DevicePtr, Event, Launch, Stream};
use serde::{Deserialize, Serialize};

use crate::compiled;
use crate::expected::{Expected, Gpu, expected};
use crate::identity::{self, Candidate};
use crate::shapes::Shape;
use crate::trial::{Trial, fill_launch};
use crate::variants::{VARIANTS, Variant};

/// More than the L2 cache of any GPU that the kernels run on.
const FLUSH_BYTES: usize = 128 << 20;
/// Warm-up runs, for code and clocks.
const WARM_UP: usize = 10;
/// The speed-up from which a variant pays off: less is within the variation between runs.
pub const PAYS: f64 = 1.02;

/// What was measured of a variant on a shape.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Number of values whose bits differ from the baseline's.
    pub different: u32,
    /// The largest difference as a share of the tolerance.
    pub error_over_allowed: f32,
    /// Median of the variant's runs.
    pub ms: f64,
    /// Median of the baseline's runs, interleaved with them.
    pub baseline_ms: f64,
    /// Of the variant.
    pub tflops: f64,
    /// Bytes of all tensors, each once, over the variant's time.
    pub gb_per_s: f64,
    /// The baseline's time over the variant's.
    pub ratio: f64,
    /// The prediction, if there is one for this GPU.
    pub expected_tflops: Option<f64>,
    /// The same as a ratio.
    pub expected_ratio: Option<f64>,
    /// Whether the ratio is at least [`PAYS`].
    pub pays: bool,
}

/// Opens a GPU with the kernels of training and the variants.
fn open(ordinal: usize) -> anyhow::Result<CudaDevice> {
    let sets = [kernels::compiled::kernels(), compiled::variants()];
    Ok(CudaDevice::open(ordinal, &sets, |sentence| eprintln!("{sentence}"))?)
}

/// Runs a candidate for the sm_90a descriptors: one sentence on what was read, if it was not what
/// was intended.
///
/// # Errors
/// The device's sentence.
pub fn identity(ordinal: usize, candidate: &Candidate) -> anyhow::Result<Option<String>> {
    let device = open(ordinal)?;
    Ok(identity::run(&device, candidate)?)
}

/// Checks a variant on a shape, then times it.
///
/// # Errors
/// The device's sentence, or that of an output that is wrong.
pub fn variant(
    ordinal: usize,
    variant: &Variant,
    shape: &Shape,
    repeats: usize,
) -> anyhow::Result<Figures> {
    let device = open(ordinal)?;
    let [baseline, ..] = &VARIANTS;
    let mut trial = Trial::new(&device, *shape, baseline)?;
    let agreement = trial.check(variant)?;
    if let Some(fault) = agreement.fault(variant.same_bits(shape), shape) {
        bail!("{fault}");
    }
    let launches = [trial.launch(baseline), trial.launch(variant)];
    let flushed = trial.memory().alloc(FLUSH_BYTES)?;
    let clock = Clock {
        device: &device,
        stream: trial.memory().stream,
        start: device.timing_event()?,
        end: device.timing_event()?,
        flushed,
    };
    let [baseline_ms, ms] = clock.medians(&launches, repeats)?;
    let gpu = Gpu::of(&device.name());
    let wanted: Option<Expected> = gpu.and_then(|gpu| expected(variant, shape, gpu));
    let ratio = baseline_ms / ms;
    Ok(Figures {
        different: agreement.different,
        error_over_allowed: agreement.worst,
        ms,
        baseline_ms,
        tflops: shape.flops() / ms / 1e9,
        gb_per_s: shape.bytes() / ms / 1e6,
        ratio,
        expected_tflops: wanted.map(|e| e.tflops),
        expected_ratio: wanted.map(|e| e.ratio),
        pays: ratio >= PAYS,
    })
}

/// Times launches between two events, each after other data has filled the L2 cache.
struct Clock<'a> {
    device: &'a CudaDevice,
    stream: Stream,
    start: Event,
    end: Event,
    flushed: DevicePtr,
}

impl Clock<'_> {
    fn once(&self, launch: &Launch, value: u32) -> Result<f64, DeviceError> {
        // It also keeps the GPU busy while the launch is queued.
        self.device.launch(self.stream, &fill_launch(self.flushed, FLUSH_BYTES, value))?;
        self.device.record(self.start, self.stream)?;
        self.device.launch(self.stream, launch)?;
        self.device.record(self.end, self.stream)?;
        Ok(f64::from(self.device.elapsed_ms(self.start, self.end)?))
    }

    /// Medians of two interleaved launches, so that both see the same clocks.
    fn medians(&self, launches: &[Launch; 2], repeats: usize) -> Result<[f64; 2], DeviceError> {
        let mut ms = [Vec::new(), Vec::new()];
        for run in 0..WARM_UP + repeats {
            for (launch, ms) in launches.iter().zip(&mut ms) {
                let taken = self.once(launch, run as u32)?;
                if run >= WARM_UP {
                    ms.push(taken);
                }
            }
        }
        Ok(ms.map(|mut ms| {
            ms.sort_by(f64::total_cmp);
            ms.get(ms.len() / 2).copied().unwrap_or(f64::NAN)
        }))
    }
}
