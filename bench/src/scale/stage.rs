//! The code that a plan is of, and the rates of its products.

use clap::ValueEnum;
use serde::Serialize;

/// Which code, at which rates: today's, or after the changes that the review lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Stage {
    /// Today's, its products at the rates that the review gave the loop it read.
    Review,
    /// Today's, with what the review's changes to that loop, which are built, should give.
    Now,
    /// After change 9: all of the review's but wgmma.
    Step9,
    /// After change 10: wgmma, on Hopper alone.
    Step10,
}

impl Stage {
    /// True if the step has all launches of today's code.
    pub(super) fn is_today(self) -> bool {
        matches!(self, Stage::Review | Stage::Now)
    }

    /// Its column in the review's tables.
    pub(super) fn column(self) -> usize {
        match self {
            Stage::Review | Stage::Now => 0,
            Stage::Step9 => 1,
            Stage::Step10 => 2,
        }
    }
}
