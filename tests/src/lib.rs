//! Tests that cross rooms. The crate itself is empty: golden data, the rules of the house and the
//! end-to-end tests are its test targets.
