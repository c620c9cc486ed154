//! The group of a run's ranks: joining, messages, and the loss of a rank.

mod common;
mod faults;
mod join;
mod unknown_peers;
