//! configs: head to be written.
