//! Test and benchmark cases of `flatten_rois`.

use super::FlattenRois;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No image, no proposal, one proposal, prime sizes, and 1000 proposals in each of 12 images.
pub fn cases() -> Vec<OpCase> {
    [(0, 3), (2, 0), (1, 1), (5, 7), (12, 1000)]
        .iter()
        .map(|&(n, p)| {
            let counts = integers(&[n], 2, 0, p as i32 + 1);
            let inputs = vec![boxes(&[n, p, 4], 1, 700.0, 300.0), counts];
            OpCase::new(format!("N {n}, P {p}"), FlattenRois, inputs)
        })
        .collect()
}
