//! The resource usage of a run: CPU, memory, GPU, and prefetched batches.

use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use crate::runtime::Backend;

/// Samples the process's usage between log lines.
#[derive(Debug)]
pub(super) struct Usage {
    at: Instant,
    cpu_seconds: f64,
}

/// Time at which the command began.
static BEGAN: Mutex<Option<Instant>> = Mutex::new(None);

/// Starts the clock of [`seconds_since_start`]; called at the beginning of `main`, so that a build
/// by `cargo run` is not counted.
pub(crate) fn start_clock() {
    *BEGAN.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Seconds since the command began; `None` if [`start_clock`] was not called.
pub(super) fn seconds_since_start() -> Option<f64> {
    let began = *BEGAN.lock().unwrap_or_else(PoisonError::into_inner);
    began.map(|began| began.elapsed().as_secs_f64())
}

impl Usage {
    pub(super) fn new() -> Self {
        Self { at: Instant::now(), cpu_seconds: cpu_seconds().unwrap_or(0.0) }
    }

    /// Metrics by name: CPU usage since the previous sample (100 is one core), all other metrics at
    /// this moment. `ready` is the number of prefetched batches. Metrics that the machine does not
    /// report are omitted.
    pub(super) fn sample(&mut self, ready: usize, backend: &Backend) -> Vec<(&'static str, f64)> {
        let before = std::mem::replace(self, Self::new());
        let seconds = self.at.duration_since(before.at).as_secs_f64();
        let percent = 100.0 * (self.cpu_seconds - before.cpu_seconds) / seconds.max(1e-3);
        let cpu = (self.cpu_seconds > 0.0).then_some(("cpu_percent", percent));
        let memory = resident_mib().map(|mib| ("memory_mib", mib));
        let gpu = match backend {
            Backend::Cpu => vec![],
            Backend::Device(device) => device.usage(),
        };
        let host = cpu.into_iter().chain(memory).chain([("batches_ready", ready as f64)]);
        host.chain(gpu).collect()
    }
}

fn cpu_seconds() -> Option<f64> {
    let ticks = rustix::param::clock_ticks_per_second() as f64;
    parse(&std::fs::read_to_string("/proc/self/stat").ok()?, ticks)
}

/// CPU seconds in a line of `/proc/self/stat`. The process name, in parentheses, may contain any
/// characters.
fn parse(stat: &str, ticks: f64) -> Option<f64> {
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    // The first field after the name is field 3 in the manual.
    let seconds = |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / ticks);
    Some(seconds(14)? + seconds(15)?)
}

fn resident_mib() -> Option<f64> {
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: f64 = statm.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_stat_line_is_parsed() {
        let line = "77 (a ) b) R 1 2 3 4 5 6 7 8 9 10 150 50 0 0 20 0 3 0 4200 9 9";
        assert_eq!(parse(line, 100.0), Some(2.0));
        assert_eq!(parse("77 (a", 100.0), None);
    }

    /// A busy loop of 300 ms on one thread uses most of one core.
    #[test]
    fn cpu_usage_is_measured() {
        let mut usage = Usage::new();
        let started = Instant::now();
        while started.elapsed().as_millis() < 300 {
            std::hint::black_box(started);
        }
        let sample = usage.sample(2, &Backend::Cpu);
        let is_much = |(name, value): &(&str, f64)| *name == "cpu_percent" && *value > 10.0;
        assert!(sample.iter().any(is_much), "{sample:?}");
    }
}
