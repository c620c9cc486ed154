//! `bench ops` on a GPU: each case is compared with the CPU reference, then timed with events.

use device::{Device, Precision};
use kernels::case::{OpCase, check_on_device};
use kernels::cpu::HostTensor;
use kernels::on_device::{OpRun, RunError};
use kernels::time::Peak;
use serde_json::{Value, json};

use crate::clock::Clock;
use crate::report::{commit, driver};
use crate::work;

/// Ops with more FLOPs than this are checked with one run instead of two.
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
        let ms = clock.median_ms(&run_of(case, device, &clock)?, repeats)?;
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

fn run_of<'a>(
    case: &'a OpCase,
    device: &'a dyn Device,
    clock: &Clock<'_>,
) -> Result<OpRun<'a>, RunError> {
    let op = case.op.as_ref();
    OpRun::new(device, clock.stream, device.gpu(), op, &case.inputs, &case.updates)
}

/// FLOPs of a case, and bytes in the device's element types.
fn work_of(case: &OpCase) -> anyhow::Result<(f64, f64)> {
    let descs = |list: &[HostTensor]| list.iter().map(|t| t.desc.clone()).collect::<Vec<_>>();
    let (inputs, updates) = (descs(&case.inputs), descs(&case.updates));
    let outputs = case.op.infer(&inputs, &updates)?;
    Ok(work::on_device(case.op.as_ref(), &inputs, &outputs, &updates))
}
