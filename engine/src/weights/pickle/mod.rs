//! Python's pickles as data: a reader that builds a tree of values and executes nothing.
//!
//! Based on Python's `pickletools` (protocols 0 to 5). Classes and functions are names; calls are
//! recorded, never executed, and a name that no weights file needs is rejected ([`globals`]).

mod globals;
mod machine;
mod value;

pub(super) use machine::read;
pub(super) use value::{Id, Node, Pickle};

#[cfg(test)]
mod tests;
