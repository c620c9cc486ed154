//! tests: head to be written.
