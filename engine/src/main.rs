//! The command `onegraph`.
fn main() {}
