//! CPU reference of `grad_norms`.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Elements of one sum. Fixed, so that the order of a sum never depends on the threads.
const CHUNK: usize = 1 << 14;

/// Chunks that one task sums in step: a sum alone waits for each addition.
const BESIDE: usize = 4;

/// Lanes of a chunk's sum: independent additions, which the compiler can vectorise.
const LANES: usize = 8;

/// Writes the norms and says whether every element is finite.
pub(super) fn norms(grads: &[&[f32]], norms: &mut [f32]) -> bool {
    let (mut total, isa) = (0.0f64, Isa::get());
    for (grad, norm) in grads.iter().zip(norms.iter_mut()) {
        let tasks = grad.par_chunks(BESIDE * CHUNK);
        let sums: Vec<[f64; BESIDE]> = tasks.map(|v| sums_of_squares(isa, v)).collect();
        let sum = sums.as_flattened().iter().sum::<f64>();
        *norm = root(sum);
        total += sum;
    }
    norms[grads.len()] = root(total);
    // No sum of squares of finite f32 values reaches the end of f64.
    total.is_finite()
}

/// The sums of up to [`BESIDE`] chunks.
fn sums_of_squares(isa: Isa, values: &[f32]) -> [f64; BESIDE] {
    let mut lanes = [[0.0f64; LANES]; BESIDE];
    if values.len() == BESIDE * CHUNK {
        add_squares_beside(isa, &mut lanes, values);
    } else {
        for (lanes, chunk) in lanes.iter_mut().zip(values.chunks(CHUNK)) {
            add_squares(isa, lanes, chunk);
        }
    }
    lanes.map(|lanes| lanes.iter().sum())
}

wide! {
    /// [`add_squares`] of whole chunks in step.
    fn add_squares_beside(lanes: &mut [[f64; LANES]; BESIDE], values: &[f32]) {
        let mut sums = *lanes;
        let (blocks, _) = values.as_chunks::<LANES>();
        let (a, rest) = blocks.split_at(CHUNK / LANES);
        let (b, rest) = rest.split_at(CHUNK / LANES);
        let (c, d) = rest.split_at(CHUNK / LANES);
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            for (sums, block) in sums.iter_mut().zip([a, b, c, d]) {
                for (sum, &v) in sums.iter_mut().zip(block) {
                    *sum += f64::from(v) * f64::from(v);
                }
            }
        }
        *lanes = sums;
    }
}

wide! {
    /// Adds the squares of every eighth value to a lane.
    fn add_squares(lanes: &mut [f64; LANES], values: &[f32]) {
        let mut sums = *lanes;
        let (blocks, rest) = values.as_chunks::<LANES>();
        for block in blocks {
            for (sum, &v) in sums.iter_mut().zip(block) {
                *sum += f64::from(v) * f64::from(v);
            }
        }
        for (sum, &v) in sums.iter_mut().zip(rest) {
            *sum += f64::from(v) * f64::from(v);
        }
        *lanes = sums;
    }
}

/// Square root, kept in the range of f32 where the sum is finite.
fn root(sum: f64) -> f32 {
    if sum.is_finite() { sum.sqrt().min(f64::from(f32::MAX)) as f32 } else { sum as f32 }
}
