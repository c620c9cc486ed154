//! CPU reference of `sum`.

use rayon::prelude::*;

/// Elements a task works on: large enough to hide the cost of a task, small enough for L2.
const CHUNK: usize = 1 << 14;

/// Adds `inputs` elementwise into `output`, in order.
pub(super) fn sum(inputs: &[&[f32]], output: &mut [f32]) {
    output.par_chunks_mut(CHUNK).enumerate().for_each(|(i, y)| {
        let range = i * CHUNK..i * CHUNK + y.len();
        y.copy_from_slice(&inputs[0][range.clone()]);
        for x in &inputs[1..] {
            for (y, x) in y.iter_mut().zip(&x[range.clone()]) {
                *y += x;
            }
        }
    });
}
