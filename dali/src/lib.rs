//! dali: head to be written.
