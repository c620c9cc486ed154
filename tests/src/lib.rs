//! Tests that cross rooms. Here is what several of them share: the checks of the whole step, which
//! run on the driver for tests and on a GPU. Golden data, the rules of the house and the end-to-end
//! tests are test targets of their own.

pub mod step;
