//! Progress of long operations: bars on a terminal, lines elsewhere.

use std::io::{IsTerminal, Write};

use indicatif::{ProgressBar, ProgressStyle};
use tracing::level_filters::LevelFilter;

/// Prints to standard error, or nothing if quiet.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    quiet: bool,
}

impl Progress {
    /// Prints.
    pub fn loud() -> Self {
        Self { quiet: false }
    }

    /// Stays quiet: for tests, and commands whose output is data.
    pub fn quiet() -> Self {
        Self { quiet: true }
    }

    /// Prints one or more lines.
    pub fn say(&self, text: &str) {
        if !self.quiet {
            // A closed terminal is no reason to end a long training run.
            let _ = writeln!(std::io::stderr(), "{text}");
        }
    }

    /// A bar of `total` steps under `title`; hidden if quiet, not on a terminal, or beside a log
    /// whose lines it would overwrite.
    pub fn bar(&self, title: &str, total: u64) -> ProgressBar {
        let is_logged = LevelFilter::current() != LevelFilter::OFF;
        if self.quiet || is_logged || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg} [{bar:32}] {pos}/{len} eta {eta}")
            .unwrap_or_else(|_| ProgressStyle::default_bar())
            .progress_chars("=> ");
        ProgressBar::new(total).with_style(style).with_message(title.to_string())
    }

    /// Runs a stage of the data pipeline with a title and a bar.
    pub fn during<T>(
        &self,
        title: &str,
        run: impl FnOnce(&mut dyn FnMut(dali::Progress)) -> T,
    ) -> T {
        self.say(title);
        let bar = self.bar("", 0);
        let mut is_waiting = false;
        let result = run(&mut |p: dali::Progress| {
            if let dali::Stage::Waiting { pid } = p.stage {
                if !std::mem::replace(&mut is_waiting, true) {
                    self.say(&format!("waiting for process {pid}, which is writing there"));
                }
                return;
            }
            bar.set_length(p.total as u64);
            bar.set_position(p.done as u64);
        });
        bar.finish_and_clear();
        result
    }
}
