//! A watchdog for hanging ranks. A rank whose step hangs still sends heartbeats, so the others
//! would wait for it forever.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The current work of a rank, and the time of its last progress.
#[derive(Debug, Clone)]
pub(super) struct Advance(Arc<Mutex<Doing>>);

#[derive(Debug)]
struct Doing {
    step: u64,
    what: String,
    since: Instant,
    /// True while this rank waits for other ranks, which does not count as hanging.
    waits: bool,
}

impl Advance {
    pub(super) fn new() -> Self {
        let (step, what) = (0, "starting".to_string());
        Self(Arc::new(Mutex::new(Doing { step, what, since: Instant::now(), waits: false })))
    }

    /// Records the beginning of an operation.
    pub(super) fn begin(&self, step: u64, what: &str) {
        let mut doing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *doing = Doing { step, what: what.to_string(), since: Instant::now(), waits: false };
    }

    /// Runs an operation that waits for other ranks. The wait does not count as time without
    /// progress.
    pub(super) fn waiting<T>(&self, wait: impl FnOnce() -> T) -> T {
        let set = |waits| {
            let mut doing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            (doing.waits, doing.since) = (waits, Instant::now());
        };
        set(true);
        let result = wait();
        set(false);
        result
    }

    /// Records that the current operation has made progress.
    pub(super) fn record_progress(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).since = Instant::now();
    }

    /// A message if the current operation has made no progress for `limit` or longer.
    fn stalled(&self, limit: Duration) -> Option<String> {
        let doing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let hangs = !doing.waits && doing.since.elapsed() >= limit;
        hangs.then(|| {
            format!(
                "no progress for {} s while {} step {}: it hangs, or ranks.stall_seconds is too \
                 short for this run",
                limit.as_secs(),
                doing.what,
                doing.step
            )
        })
    }

    /// Calls `end` with a message once there has been no progress for `limit`. The watchdog ends
    /// when the last clone of this value is dropped.
    pub(super) fn watch(&self, limit: Duration, end: impl FnOnce(&str) + Send + 'static) {
        let watched = Arc::downgrade(&self.0);
        let look = (limit / 20).max(Duration::from_millis(10));
        let watch = move || loop {
            std::thread::sleep(look.min(Duration::from_secs(1)));
            let Some(progress) = watched.upgrade().map(Self) else { return };
            if let Some(sentence) = progress.stalled(limit) {
                end(&sentence);
                return;
            }
        };
        // If the thread cannot be started, a hanging rank is not detected.
        let _ = std::thread::Builder::new().name("watchdog".into()).spawn(watch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;

    #[test]
    fn watchdog_reports_stalled_work_and_ignores_progress() {
        let progress = Advance::new();
        let (send, received) = channel();
        progress.watch(Duration::from_millis(400), move |sentence| {
            let _ = send.send(sentence.to_string());
        });
        for step in 0..10 {
            progress.begin(step, "training");
            std::thread::sleep(Duration::from_millis(60));
        }
        progress.waiting(|| std::thread::sleep(Duration::from_millis(600)));
        assert!(received.try_recv().is_err(), "it goes on");
        let sentence = received.recv_timeout(Duration::from_secs(30)).expect("it hangs");
        assert!(sentence.contains("while training step 9"), "{sentence}");
    }

    #[test]
    fn watchdog_stops_when_watched_work_ends() {
        let progress = Advance::new();
        let (send, received) = channel::<()>();
        progress.watch(Duration::from_secs(3600), move |_| drop(send));
        drop(progress);
        let end = received.recv_timeout(Duration::from_secs(30));
        assert_eq!(end, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}
