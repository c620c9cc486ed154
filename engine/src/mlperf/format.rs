//! Constants of the log format of timed runs.

/// The token before an event's JSON; text before it in the line is ignored.
pub(super) const TOKEN: &str = ":::MLLOG";
/// The remark that the rules require next to every result that MLCommons has not reviewed.
pub const UNVERIFIED: &str = "unverified: these results are not verified by MLCommons";
/// The name of the benchmark in the rules.
pub(super) const BENCHMARK: &str = "maskrcnn";
