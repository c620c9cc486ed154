//! Measuring the matrix products of a plan: the time of each choice, and whether it computes the
//! same.

mod check;
mod clock;
mod trial;

pub use check::check_kernels;
pub use clock::Clock;
pub use trial::Trial;
