//! Terminal output about long operations: messages, and progress bars on a terminal.

use std::io::{IsTerminal, Write};

use dali::plain;
use indicatif::{ProgressBar, ProgressStyle};
use tracing::level_filters::LevelFilter;

/// Assumed number of columns of a terminal whose width is unknown.
const USUAL_COLUMNS: usize = 80;

/// Prints to standard error, unless it is quiet.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    quiet: bool,
    /// The rank that is printed at the start of each line, if there are several.
    rank: Option<usize>,
}

impl Progress {
    /// Prints.
    pub fn loud() -> Self {
        Self { quiet: false, rank: None }
    }

    /// Prints nothing: for tests, and for commands whose output is data.
    pub fn quiet() -> Self {
        Self { quiet: true, rank: None }
    }

    /// Prints each line with this rank's number in front.
    pub fn of_rank(rank: usize) -> Self {
        Self { quiet: false, rank: Some(rank) }
    }

    /// Prints one or more lines.
    pub fn say(&self, text: &str) {
        if self.quiet {
            return;
        }
        let rank = self.rank.map(|rank| format!("rank {rank}: ")).unwrap_or_default();
        let lines = text.split('\n').map(|line| format!("{rank}{}\n", plain(line)));
        let text: String = lines.collect();
        // Errors are ignored: a closed terminal must not end a long training run. A single write
        // prevents the lines of different ranks from being interleaved.
        let _ = std::io::stderr().write_all(text.as_bytes());
    }

    /// Prints one or more lines, each with the time of day in front. On a terminal, long lines are
    /// wrapped between words and indented.
    pub fn say_at(&self, time: &str, text: &str) {
        let columns = columns(&console::Term::stderr()).unwrap_or(usize::MAX);
        self.say(&timed(time, text, columns));
    }

    /// A progress bar with `title` and `total` steps. Hidden if quiet, if standard error is not a
    /// terminal, or if the log is enabled, whose lines it would overwrite.
    pub fn bar(&self, title: &str, total: u64) -> ProgressBar {
        let is_logged = LevelFilter::current() != LevelFilter::OFF;
        if self.quiet || is_logged || !std::io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        // If the bar were wider than the terminal, each update would leave a line behind.
        let is_narrow = columns(&console::Term::stderr()).is_some_and(|c| c < USUAL_COLUMNS);
        let bar = if is_narrow { "{wide_bar}" } else { "{bar:32}" };
        let style =
            ProgressStyle::with_template(&format!("{{msg}} [{bar}] {{pos}}/{{len}} eta {{eta}}"))
                .unwrap_or_else(|_| ProgressStyle::default_bar())
                .progress_chars("=> ");
        ProgressBar::new(total).with_style(style).with_message(title.to_string())
    }

    /// Runs an operation on data, with a title and a progress bar.
    pub fn during<T>(
        &self,
        title: &str,
        run: impl FnOnce(&mut dyn FnMut(dali::Progress)) -> T,
    ) -> T {
        self.say(title);
        let bar = self.bar("", 0);
        let mut is_waiting = false;
        let result = run(&mut |p: dali::Progress| match p.stage {
            dali::Stage::Waiting { owner, lock } => {
                if !std::mem::replace(&mut is_waiting, true) {
                    let if_gone = owner.if_gone(&lock);
                    self.say(&format!("waiting for {owner}, which is writing this data{if_gone}"));
                }
            }
            dali::Stage::TakenOver { pid } => {
                self.say(&format!("taking over from process {pid}, which has ended"));
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

/// Columns of a terminal; `None` if it is not a terminal.
pub(crate) fn columns(terminal: &console::Term) -> Option<usize> {
    let size = terminal.size_checked().map(|(_, columns)| columns);
    terminal.is_term().then(|| width(size, std::env::var("COLUMNS").ok().as_deref()))
}

/// The terminal's width. If the terminal does not report its size, as in some containers, `COLUMNS`
/// is used, or else the default.
fn width(size: Option<u16>, variable: Option<&str>) -> usize {
    let told = || variable?.trim().parse().ok().filter(|columns| *columns > 0);
    size.map(usize::from).or_else(told).unwrap_or(USUAL_COLUMNS)
}

/// A number with its noun in singular or plural: `1 image`, `2 images`, `2 batches`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    let plural = match count {
        1 => "",
        _ if noun.ends_with("ch") || noun.ends_with('s') => "es",
        _ => "s",
    };
    format!("{count} {noun}{plural}")
}

/// Adds the time to each line, and wraps lines to at most `columns`, unless a word is longer.
fn timed(time: &str, text: &str, columns: usize) -> String {
    let margin = time.chars().count();
    let mut lines = Vec::new();
    for text in text.lines() {
        let mut line = time.to_string();
        for field in text.split("  ") {
            let is_wide = margin + 1 + field.chars().count() > columns;
            let words = if is_wide { field.split(' ').collect() } else { vec![field] };
            for (i, word) in words.into_iter().enumerate() {
                let gap = if i == 0 { "  " } else { " " };
                let fits = line.chars().count() + gap.len() + word.chars().count() <= columns;
                if !fits && line.len() > margin {
                    lines.push(std::mem::replace(&mut line, " ".repeat(margin)));
                }
                line.push_str(if line.len() > margin { gap } else { " " });
                line.push_str(word);
            }
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::{counted, timed, width};

    #[test]
    fn line_wraps_between_fields_at_terminal_width() {
        let text = "eta 0:01  iter 20/30  loss 1.5\nsecond";
        assert_eq!(
            timed("12:00:00", text, usize::MAX),
            "12:00:00 eta 0:01  iter 20/30  loss 1.5\n12:00:00 second"
        );
        let broken = timed("12:00:00", text, 32);
        assert_eq!(broken, "12:00:00 eta 0:01  iter 20/30\n         loss 1.5\n12:00:00 second");
        assert!(broken.lines().all(|line| line.len() <= 32));
        // A single field that is wider than the terminal.
        let broken = timed("12:00:00", "device cpu (2 threads), 16 images, batch 2", 32);
        assert_eq!(broken, "12:00:00 device cpu (2 threads),\n         16 images, batch 2");
    }

    #[test]
    fn unknown_terminal_width_is_columns_variable_or_80() {
        assert_eq!(width(Some(120), Some("45")), 120);
        assert_eq!(width(None, Some("45")), 45);
        for variable in [None, Some(""), Some("0"), Some("wide")] {
            assert_eq!(width(None, variable), 80, "{variable:?}");
        }
    }

    #[test]
    fn count_of_one_is_singular() {
        let texts = [0, 1, 2].map(|count| counted(count, "image"));
        assert_eq!(texts, ["0 images", "1 image", "2 images"]);
        assert_eq!(
            (counted(1, "batch"), counted(3, "class")),
            ("1 batch".into(), "3 classes".into())
        );
    }
}
