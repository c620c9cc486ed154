//! The ops, one folder each.

pub mod fill;
pub mod sum;

use crate::case::OpCase;

/// The cases of every op.
pub(crate) fn cases() -> Vec<OpCase> {
    [fill::cases(), sum::cases()].concat()
}
