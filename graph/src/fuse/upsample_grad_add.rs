//! The gradient of a map that was enlarged is added to the map's other gradients where it is made.

use super::grad_mask_add::add;
use crate::Program;

/// Puts sums of gradients into those ops with a finish that make no product: gathers, which pass
/// over memory as a sum does.
pub fn upsample_grad_add(program: &mut Program) {
    add(program, false);
}
