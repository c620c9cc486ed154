//! All-reduce and its buckets, and results for the host.

pub mod all_reduce;
pub mod bucket;
pub mod publish;
pub mod weighted_losses;

use crate::case::OpCase;

/// The cases of these ops.
pub(super) fn cases() -> Vec<OpCase> {
    [all_reduce::cases(), bucket::cases(), publish::cases(), weighted_losses::cases()].concat()
}
