//! Shared by all stages of a call: its archive, its time, and the request to end early.

use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::archive::{Archive, Product, StageLog};
use super::child::Event;
use super::clocks::Clocks;

/// One call.
#[derive(Debug)]
pub(super) struct Runner {
    pub(super) archive: Archive,
    /// Where stages work.
    pub(super) scratch: PathBuf,
    /// `None` if the clocks cannot be read.
    pub(super) clocks: Option<Clocks>,
    started: Instant,
    total: Duration,
    interrupted: Arc<AtomicBool>,
}

impl Runner {
    /// A call of at most `total` that begins now.
    ///
    /// # Errors
    /// The handlers of signals cannot be set, in one sentence.
    pub(super) fn new(
        archive: Archive,
        scratch: PathBuf,
        total: Duration,
        clocks: Option<Clocks>,
    ) -> Result<Self, String> {
        use signal_hook::consts::{SIGINT, SIGTERM};
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, interrupted.clone())
                .map_err(|e| format!("signal {signal} cannot be watched: {e}"))?;
        }
        Ok(Self { archive, scratch, clocks, started: Instant::now(), total, interrupted })
    }

    pub(super) fn seconds(&self) -> f64 {
        self.started.elapsed().as_secs_f64()
    }

    pub(super) fn left(&self) -> Duration {
        self.total.saturating_sub(self.started.elapsed())
    }

    /// The call should end early: keep the results so far.
    pub(super) fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }

    /// Common to every watched child.
    pub(super) fn saw(
        &mut self,
        event: &Event<'_>,
        log: &mut StageLog,
        products: &[Product],
    ) -> ControlFlow<String> {
        match event {
            Event::Line(line) => self.archive.say(log, line),
            Event::Tick => self.archive.look(products),
        }
        if self.interrupted() {
            return ControlFlow::Break("interrupted".into());
        }
        ControlFlow::Continue(())
    }
}
