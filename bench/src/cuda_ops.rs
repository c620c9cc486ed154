//! `bench ops` on a GPU: each case is compared with the CPU reference, then timed with events.

use device::{Device, DeviceError, DevicePtr, Event, Pinned, Precision, Stream};
use kernels::case::{OpCase, check_on_device};
use kernels::cpu::HostTensor;
use kernels::on_device::OpRun;
use kernels::time::Peak;
use serde_json::{Value, json};

use crate::report::{commit, driver, percentile};
use crate::work;

/// Ops of more FLOPs than this are checked in one run instead of two.
const LARGE_FLOPS: u64 = 20_000_000_000;

/// Checks and times every case; failures are listed under `failed`.
pub(crate) fn run(device: &dyn Device, cases: &[OpCase], repeats: usize) -> anyhow::Result<Value> {
    let peak = Peak::of(&device.name());
    say!("{} | commit {}", device.name(), commit());
    say!(
        "{:<64} {:>10} {:>10} {:>9} {:>9} {:>7}",
        "case",
        "ms",
        "GFLOP/s",
        "GB/s",
        "roofline",
        "error"
    );
    let clock = Clock::new(device)?;
    let (mut rows, mut failed) = (Vec::new(), Vec::new());
    for case in cases {
        let checked = match check_on_device(case, device, Precision::Fp16, LARGE_FLOPS) {
            Ok(report) => report,
            Err(fault) => {
                say!("FAILED {fault}");
                failed.push(fault.to_string());
                continue;
            }
        };
        let ms = clock.median_ms(case, repeats)?;
        let (flops, bytes) = work_of(case)?;
        let share = peak.map(|peak| peak.least_ms(flops, bytes) / ms);
        say!(
            "{:<64} {ms:>10.4} {:>10.1} {:>9.1} {:>9} {:>7.3}",
            case.to_string(),
            flops / ms / 1e6,
            bytes / ms / 1e6,
            share.map_or("?".into(), |share| format!("{:.1}%", 100.0 * share)),
            checked.worst,
        );
        rows.push(json!({
            "case": case.to_string(), "ms": ms, "flops": flops, "bytes": bytes,
            "roofline_share": share, "error_over_allowed": checked.worst,
        }));
    }
    let (device, driver) = (device.name(), driver());
    Ok(json!({
        "device": device, "driver": driver, "commit": commit(), "repeats": repeats,
        "cases": rows, "failed": failed,
    }))
}

/// FLOPs of a case, and bytes in the device's element types.
fn work_of(case: &OpCase) -> anyhow::Result<(f64, f64)> {
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates)?;
    Ok(work::on_device(case.op.as_ref(), &inputs, &outputs, &updates))
}

/// Times an op between two events. Before each run a copy fills the L2 cache with other data; it
/// also keeps the GPU busy while the op's launches are queued, so that they run back to back.
struct Clock<'a> {
    device: &'a dyn Device,
    stream: Stream,
    start: Event,
    end: Event,
    flushed: DevicePtr,
    other_data: Pinned,
}

impl<'a> Clock<'a> {
    fn new(device: &'a dyn Device) -> Result<Self, DeviceError> {
        let more_than_l2 = device.gpu().l2_bytes / 2 * 3;
        Ok(Self {
            device,
            stream: device.stream()?,
            start: device.timing_event()?,
            end: device.timing_event()?,
            flushed: device.alloc(more_than_l2)?,
            other_data: device.alloc_pinned(more_than_l2)?,
        })
    }

    fn median_ms(&self, case: &OpCase, repeats: usize) -> anyhow::Result<f64> {
        let Self { device, stream, .. } = self;
        let run = OpRun::new(
            *device,
            *stream,
            device.gpu(),
            case.op.as_ref(),
            &case.inputs,
            &case.updates,
        )?;
        run.launch()?;
        let mut ms = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let other_data = self.other_data;
            device.upload(*stream, self.flushed, other_data, 0, other_data.bytes)?;
            device.record(self.start, *stream)?;
            run.launch()?;
            device.record(self.end, *stream)?;
            ms.push(f64::from(device.elapsed_ms(self.start, self.end)?));
        }
        Ok(percentile(&ms, 0.5))
    }
}

impl Drop for Clock<'_> {
    fn drop(&mut self) {
        // A failing device has already reported its error.
        let _ = self.device.free(self.flushed);
        let _ = self.device.free_pinned(self.other_data);
    }
}
