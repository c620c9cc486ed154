//! engine: head to be written.
