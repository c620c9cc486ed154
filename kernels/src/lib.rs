//! kernels: head to be written.
