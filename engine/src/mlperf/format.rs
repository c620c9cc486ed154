//! The format that all logs of timed runs share.

/// The token that begins an event, anywhere in a line.
pub(super) const TOKEN: &str = ":::MLLOG";
/// The rules require this next to every result that MLCommons has not reviewed.
pub const UNVERIFIED: &str = "unverified: these results are not verified by MLCommons";
/// The name of the benchmark in the rules.
pub(super) const BENCHMARK: &str = "maskrcnn";
