//! Python's pickles as data: a reader that builds a tree of values and executes nothing.
//!
//! After Python's `pickletools` (protocols 0 to 5). Classes and functions are names; calling one
//! is recorded, never done, and a name that no weights file needs is refused ([`globals`]).

mod globals;
mod machine;
mod value;

pub(super) use machine::read;
pub(super) use value::{Id, Node, Pickle};

#[cfg(test)]
mod tests;
