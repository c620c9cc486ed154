//! The format that all logs of timed runs share.

/// The token that begins an event, anywhere in a line.
pub(super) const TOKEN: &str = ":::MLLOG";
/// What the rules ask for beside a result that MLCommons has not reviewed.
pub const UNVERIFIED: &str = "unverified: these results are not verified by MLCommons";
/// The name of the benchmark in the rules.
pub(super) const BENCHMARK: &str = "maskrcnn";
