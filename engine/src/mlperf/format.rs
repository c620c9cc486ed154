//! The format that all logs of timed runs share.

/// The token that begins an event, anywhere in a line.
pub(super) const TOKEN: &str = ":::MLLOG";
/// The name of the benchmark in the rules.
pub(super) const BENCHMARK: &str = "maskrcnn";
