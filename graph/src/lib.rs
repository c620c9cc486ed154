//! graph: head to be written.
