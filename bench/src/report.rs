//! Helpers for the output of a bench: percentiles, description of the machine, JSON.

use std::path::Path;
use std::time::Instant;

use anyhow::Context;
use device::cuda::Installed;
use engine::runtime::Machine;
use kernels::isa::Isa;
use serde_json::Value;

/// The quantile `share` (0 to 1) of the values, by linear interpolation.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let at = share * last as f64;
    let (low, high) = (at.floor() as usize, at.ceil() as usize);
    sorted[low] + (sorted[high] - sorted[low]) * (at - low as f64)
}

/// The CPU's name and the threads in use.
pub(crate) fn cpu() -> String {
    let machine = Machine::here();
    let isa = Isa::chosen().map_or("no instruction set", |isa| isa.name());
    format!("cpu: {}, {} threads, {isa}", machine.cpu, machine.threads)
}

/// CPU seconds that all threads of this process have used; `None` if the system does not report it.
pub(crate) fn processor_seconds() -> Option<f64> {
    /// Clock ticks per second in `/proc`, the same on every Linux.
    const TICKS: f64 = 100.0;
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    // Fields 14 and 15 are utime and stime; counting starts after the command name, which may
    // contain spaces.
    let mut fields = text.rsplit(')').next()?.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS)
}

/// CUDA version of the driver; `None` without a driver.
pub(crate) fn driver() -> Option<String> {
    Some(format!("CUDA {}", Installed::find().ok()?.cuda))
}

/// The commit of this build, or the version if the commit is unknown.
pub fn commit() -> String {
    let version = || format!("version {}", env!("CARGO_PKG_VERSION"));
    engine::provenance::commit().map_or_else(version, str::to_string)
}

/// GFLOP/s of a 1024 x 1024 x 1024 GEMM on all threads: the best of a few runs, after a warm-up.
pub(crate) fn gemm_gflops() -> anyhow::Result<f64> {
    use kernels::Role;
    use kernels::case::normal;
    use kernels::on_cpu::run;
    use kernels::ops::linear::Linear;
    let n = 1024;
    let square = |seed| normal(Role::Activation, &[n, n], seed, 1.0);
    let inputs = [square(1), square(2), normal(Role::Master, &[n], 3, 1.0)];
    let op = Linear { relu: false, counted: false };
    let mut best = f64::INFINITY;
    for _ in 0..8 {
        let started = Instant::now();
        run(&op, &inputs)?;
        best = best.min(started.elapsed().as_secs_f64());
    }
    Ok(2.0 * (n as f64).powi(3) / best / 1e9)
}

/// Writes JSON to a file, atomically.
pub(crate) fn write_json(path: &Path, value: &Value) -> anyhow::Result<()> {
    let text = serde_json::to_vec_pretty(value)?;
    engine::run_dir::write_whole(path, &text).with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::{commit, percentile, processor_seconds};

    #[test]
    fn processor_seconds_grow_while_a_thread_is_busy() {
        let seconds = || processor_seconds().expect("the process has a line in /proc");
        let before = seconds();
        let started = std::time::Instant::now();
        while started.elapsed().as_secs_f64() < 0.2 {}
        assert!(seconds() > before);
    }

    #[test]
    fn percentiles_interpolate_linearly() {
        let values = [4.0, 1.0, 3.0, 2.0];
        assert_eq!(percentile(&values, 0.0), 1.0);
        assert_eq!(percentile(&values, 0.5), 2.5);
        assert_eq!(percentile(&values, 1.0), 4.0);
        assert!(percentile(&[], 0.5).is_nan());
    }

    #[test]
    fn commit_name_is_one_line() {
        let commit = commit();
        assert!(!commit.is_empty() && !commit.contains('\n'), "{commit:?}");
    }
}
