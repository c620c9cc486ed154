//! CPU reference of `sum`.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Elements a task works on: large enough to hide the cost of a task, small enough for L2.
const CHUNK: usize = 1 << 14;

/// Adds `inputs` elementwise into `output`, in order.
pub(super) fn sum(inputs: &[&[f32]], output: &mut [f32]) {
    let isa = Isa::get();
    output.par_chunks_mut(CHUNK).enumerate().for_each(|(i, y)| {
        let range = i * CHUNK..i * CHUNK + y.len();
        match inputs {
            [only] => y.copy_from_slice(&only[range]),
            [first, second, rest @ ..] => {
                add(isa, y, &first[range.clone()], &second[range.clone()]);
                rest.iter().for_each(|x| add_to(isa, y, &x[range.clone()]));
            }
            [] => unreachable!("a sum of nothing"),
        }
    });
}

wide! {
    /// `y = a + b`.
    fn add(y: &mut [f32], a: &[f32], b: &[f32]) {
        for ((y, a), b) in y.iter_mut().zip(a).zip(b) {
            *y = a + b;
        }
    }
}

wide! {
    /// `y += x`.
    fn add_to(y: &mut [f32], x: &[f32]) {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }
}
