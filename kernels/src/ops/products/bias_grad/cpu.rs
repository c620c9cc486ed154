//! CPU reference of `bias_grad`.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Rows of a task, summed in groups of [`GROUP`].
const TASK: usize = 512;

/// Rows whose sum is taken in f32.
const GROUP: usize = 64;

/// Scratch for `rows` rows of `width`.
pub(crate) fn workspace_len(rows: usize, width: usize) -> usize {
    rows.div_ceil(GROUP) * width
}

/// `sums[k] = sum over rows of g[row][k]`, the rows as wide as `sums`.
pub(crate) fn sum_rows(g: &[f32], sums: &mut [f32], workspace: &mut [f32]) {
    let width = sums.len();
    if width == 0 {
        return;
    }
    let partial = &mut workspace[..workspace_len(g.len() / width, width)];
    let isa = Isa::get();
    let tasks = partial.par_chunks_mut(TASK / GROUP * width).zip(g.par_chunks(TASK * width));
    tasks.for_each(|(partial, g)| {
        let groups = g.chunks(GROUP * width);
        for (sum, rows) in partial.chunks_exact_mut(width).zip(groups) {
            add_rows(isa, rows, sum);
        }
    });
    for (k, out) in sums.iter_mut().enumerate() {
        *out = partial.iter().skip(k).step_by(width).map(|&v| f64::from(v)).sum::<f64>() as f32;
    }
}

/// The sum of one column of which all elements are 0 but those of `rows`, which are in order and
/// `len` long each in `g`: the bits of [`sum_rows`].
pub(crate) fn sum_of_rows(g: &[f32], len: usize, rows: &[usize]) -> f32 {
    let mut total = 0.0;
    let (mut group, mut sum) = (0, 0.0);
    for at in rows.iter().flat_map(|row| row * len..(row + 1) * len) {
        if at / GROUP != group {
            total += f64::from(sum);
            (group, sum) = (at / GROUP, 0.0);
        }
        sum += g[at];
    }
    (total + f64::from(sum)) as f32
}

wide! {
    /// `sum = sum of the rows`.
    fn add_rows(rows: &[f32], sum: &mut [f32]) {
        sum.fill(0.0);
        for row in rows.chunks_exact(sum.len()) {
            for (sum, v) in sum.iter_mut().zip(row) {
                *sum += v;
            }
        }
    }
}
