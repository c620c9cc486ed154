//! Counters of the server in Prometheus' format.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the response time histogram, in seconds.
const ENDS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0];

/// Counters of one server.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Number of in-flight requests (being received, waiting, or processed).
    pub(crate) in_hand: AtomicUsize,
    failed: AtomicBool,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    requests: BTreeMap<u16, u64>,
    seconds: f64,
    within: [u64; ENDS.len()],
    batches: u64,
    images: u64,
    model_seconds: f64,
}

impl Metrics {
    /// Counts a run of the model.
    pub(crate) fn ran(&self, images: usize, took: Duration, is_ok: bool) {
        self.failed.store(!is_ok, Ordering::Relaxed);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.batches += 1;
        counts.images += images as u64;
        counts.model_seconds += took.as_secs_f64();
    }

    /// Records that the model has failed.
    pub(crate) fn fail(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Counts an answer to `/invocations`.
    pub(crate) fn answered(&self, status: u16, took: Duration) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.requests.entry(status).or_default() += 1;
        let seconds = took.as_secs_f64();
        counts.seconds += seconds;
        for (within, end) in counts.within.iter_mut().zip(ENDS) {
            *within += u64::from(seconds <= end);
        }
    }

    /// False if the most recent run of the model failed.
    pub(crate) fn is_well(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    /// All metrics, in Prometheus' text format.
    pub(crate) fn text(&self) -> String {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        let head = |text: &mut String, name: &str, kind: &str, help: &str| {
            let _ = writeln!(text, "# HELP onegraph_{name} {help}\n# TYPE onegraph_{name} {kind}");
        };
        head(&mut text, "requests_total", "counter", "Answers to /invocations by status.");
        for (status, count) in &counts.requests {
            let _ = writeln!(text, "onegraph_requests_total{{status=\"{status}\"}} {count}");
        }
        head(&mut text, "request_seconds", "histogram", "Time from a request to its answer.");
        let all: u64 = counts.requests.values().sum();
        for (end, count) in ENDS.iter().zip(counts.within) {
            let _ = writeln!(text, "onegraph_request_seconds_bucket{{le=\"{end}\"}} {count}");
        }
        let _ = writeln!(text, "onegraph_request_seconds_bucket{{le=\"+Inf\"}} {all}");
        let _ = writeln!(text, "onegraph_request_seconds_sum {}", counts.seconds);
        let _ = writeln!(text, "onegraph_request_seconds_count {all}");
        let in_hand = self.in_hand.load(Ordering::Relaxed) as f64;
        for (name, kind, help, value) in [
            ("requests_in_hand", "gauge", "Requests not yet answered.", in_hand),
            ("images_total", "counter", "Images processed.", counts.images as f64),
            ("batches_total", "counter", "Runs of the model.", counts.batches as f64),
            ("model_seconds_total", "counter", "Time of all model runs.", counts.model_seconds),
        ] {
            head(&mut text, name, kind, help);
            let _ = writeln!(text, "onegraph_{name} {value}");
        }
        text
    }
}
