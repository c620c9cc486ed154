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

    /// Prints one or more lines under the time of day; on a terminal, lines wider than it are
    /// broken between words and continued under the text.
    pub fn say_at(&self, time: &str, text: &str) {
        let columns = match std::io::stderr().is_terminal() {
            true => console::Term::stderr().size_checked().map_or(usize::MAX, |s| s.1.into()),
            false => usize::MAX,
        };
        self.say(&timed(time, text, columns));
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
        let result = run(&mut |p: dali::Progress| match p.stage {
            dali::Stage::Waiting { pid } => {
                if !std::mem::replace(&mut is_waiting, true) {
                    self.say(&format!("waiting for process {pid}, which is writing there"));
                }
            }
            dali::Stage::TakenOver { pid } => {
                self.say(&format!("taking over from process {pid}, which is gone"));
            }
            _ => {
                bar.set_length(p.total as u64);
                bar.set_position(p.done as u64);
            }
        });
        bar.finish_and_clear();
        result
    }
}

/// Lines that begin with the time, at most `columns` wide unless a word is wider.
fn timed(time: &str, text: &str, columns: usize) -> String {
    let margin = time.chars().count();
    let mut lines = Vec::new();
    for text in text.lines() {
        let mut line = time.to_string();
        for word in text.split("  ") {
            let fits = line.chars().count() + 2 + word.chars().count() <= columns;
            if !fits && line.len() > margin {
                lines.push(std::mem::replace(&mut line, " ".repeat(margin)));
            }
            line.push_str(if line.len() > margin { "  " } else { " " });
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::timed;

    #[test]
    fn a_line_is_broken_between_fields_at_the_width_of_the_terminal() {
        let text = "eta 0:01  iter 20/30  loss 1.5\nsecond";
        assert_eq!(
            timed("12:00:00", text, usize::MAX),
            "12:00:00 eta 0:01  iter 20/30  loss 1.5\n12:00:00 second"
        );
        let broken = timed("12:00:00", text, 32);
        assert_eq!(broken, "12:00:00 eta 0:01  iter 20/30\n         loss 1.5\n12:00:00 second");
        assert!(broken.lines().all(|line| line.len() <= 32));
    }
}
