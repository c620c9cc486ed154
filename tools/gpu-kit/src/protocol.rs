//! The messages from a stage's process to its supervisor, one line each.
//!
//! An item is named before it runs and its result follows, so that whatever happens to the process,
//! the supervisor knows where it was.

use std::fmt;

use serde_json::Value;

/// Exit code of a process whose device no longer responds: the stage continues in a new one.
pub(super) const LOST: u8 = 75;

/// One line.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Line {
    /// How many items there are.
    Of(usize),
    /// This one begins.
    Begin(usize, String),
    /// It passed, with its figures.
    Passed(usize, Value),
    /// It failed, for this reason.
    Failed(usize, String),
    /// It was skipped, for this reason.
    Skipped(usize, String),
    /// All items are done.
    End,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Whatever a fault says, it stays in its line.
        let flat = |text: &str| text.replace(['\n', '\r'], "; ");
        match self {
            Line::Of(count) => write!(f, "::of {count}"),
            Line::Begin(item, name) => write!(f, "::item {item} {}", flat(name)),
            Line::Passed(item, figures) => write!(f, "::passed {item} {figures}"),
            Line::Failed(item, why) => write!(f, "::failed {item} {}", flat(why)),
            Line::Skipped(item, why) => write!(f, "::skipped {item} {}", flat(why)),
            Line::End => f.write_str("::end"),
        }
    }
}

impl Line {
    /// Parses a line; `None` if it is not part of the protocol.
    pub(super) fn parse(text: &str) -> Option<Line> {
        let text = text.strip_prefix("::")?;
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let numbered = || {
            let (item, rest) = rest.split_once(' ').unwrap_or((rest, ""));
            Some((item.parse().ok()?, rest.to_string()))
        };
        Some(match word {
            "of" => Line::Of(rest.parse().ok()?),
            "item" => numbered().map(|(item, name)| Line::Begin(item, name))?,
            "passed" => {
                let (item, figures) = numbered()?;
                Line::Passed(item, serde_json::from_str(&figures).ok()?)
            }
            "failed" => numbered().map(|(item, why)| Line::Failed(item, why))?,
            "skipped" => numbered().map(|(item, why)| Line::Skipped(item, why))?,
            "end" => Line::End,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_what_is_heard() {
        for line in [
            Line::Of(608),
            Line::Begin(0, "conv2d (3x3, N = 2)".into()),
            Line::Passed(1, serde_json::json!({"worst": 0.5})),
            Line::Failed(607, "a: b".into()),
            Line::Skipped(2, "no data".into()),
            Line::End,
        ] {
            assert_eq!(Line::parse(&line.to_string()), Some(line));
        }
        let lines = Line::Failed(3, "one\ntwo".into()).to_string();
        assert_eq!(lines, "::failed 3 one; two");
        for other in ["", "::", "::item x y", "::passed 1 {", "item 1 x", "::unknown 1"] {
            assert_eq!(Line::parse(other), None, "{other}");
        }
    }
}
