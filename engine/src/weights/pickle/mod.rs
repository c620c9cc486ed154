//! Reads Python's pickles as data: builds a tree of values, and executes nothing.
//!
//! Follows Python's `pickletools` (protocols 0 to 5). Classes and functions are only names, calls
//! are only recorded, and names outside an allow list are rejected ([`globals`]).

mod globals;
mod machine;
mod value;

pub(super) use machine::read;
pub(super) use value::{Id, Node, Pickle};

#[cfg(test)]
mod tests;
