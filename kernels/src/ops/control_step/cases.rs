//! `control_step` updates state, which the table of ops does not run: see its own tests.

use crate::case::OpCase;

/// None.
pub fn cases() -> Vec<OpCase> {
    Vec::new()
}
