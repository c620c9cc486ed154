//! The group of a run's ranks: how they join, what they send each other, how one is lost.

mod common;
mod faults;
mod join;
mod strangers;
