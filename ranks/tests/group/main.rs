//! The group of a run's ranks: how they come together, what they tell each other, how one is lost.

mod common;
mod faults;
mod join;
mod strangers;
