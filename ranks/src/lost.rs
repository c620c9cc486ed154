//! The loss of a rank, as reported by other ranks.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A lost rank, and the activity of the rank that reports the loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// The lost rank.
    pub rank: usize,
    /// Its host.
    pub host: String,
    /// The latest step that the lost or the reporting rank is known to have begun.
    pub step: u64,
    /// The last activity that the lost rank reported; empty if none.
    pub last: String,
    /// How the loss was detected.
    pub why: String,
    /// The exit code, if the lost rank ended by itself and reported the code.
    pub code: Option<u8>,
    /// The rank that reports the loss.
    pub seen_by: usize,
    /// The activity of rank `seen_by`, such as "waiting for the gradients".
    pub doing: String,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, host, step, last, why, seen_by, doing, .. } = self;
        if rank == seen_by {
            return write!(
                f,
                "this rank ({rank}, on host {host}) was considered lost at step {step}: {why}"
            );
        }
        write!(f, "rank {rank} on host {host} was lost at step {step} ({why}")?;
        if !last.is_empty() {
            write!(f, "; it was last {last}")?;
        }
        write!(f, ") while rank {seen_by} was {doing}")
    }
}

#[cfg(test)]
mod tests {
    use super::Lost;

    #[test]
    fn lost_rank_error_names_rank_host_step_and_activity() {
        let mut lost = Lost {
            rank: 1,
            host: "b".into(),
            step: 12,
            last: String::new(),
            why: "its connection closed".into(),
            code: None,
            seen_by: 0,
            doing: "waiting for the gradients".into(),
        };
        let expected = "rank 1 on host b was lost at step 12 (its connection closed) while rank 0 \
                        was waiting for the gradients";
        assert_eq!(lost.to_string(), expected);
        lost.last = "evaluating".into();
        assert!(lost.to_string().contains("(its connection closed; it was last evaluating)"));
        lost.seen_by = 1;
        assert!(lost.to_string().starts_with("this rank (1, on host b) was considered lost"));
    }
}
