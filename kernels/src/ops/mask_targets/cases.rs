//! Cases of `mask_targets` for the table of ops.

use std::sync::Arc;

use super::{MaskRule, MaskTargets};
use crate::case::{OpCase, integers, uniform};
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

/// No RoI, one, primes, counts below the capacity, and the positives of a COCO image, by each rule.
pub fn cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for (rule, plus_one) in [
        (MaskRule::RoiAlignBitmap, false),
        (MaskRule::CocoPolygon, false),
        (MaskRule::CocoPolygon, true),
    ] {
        let op = |side| MaskTargets { side, rule, plus_one };
        cases.push(case(op(5), [0, 0], [7, 11], [7, 11]));
        cases.push(case(op(1), [1, 1], [1, 1], [1, 1]));
        cases.push(case(op(7), [13, 11], [37, 53], [41, 29]));
        cases.push(case(op(28), [64, 61], [480, 640], [800, 1066]));
    }
    cases
}

/// Two images of five objects each: triangles, pairs of them, and runs.
fn case(op: MaskTargets, [m, n]: [usize; 2], source: [usize; 2], network: [usize; 2]) -> OpCase {
    const POINTS: usize = 3;
    let ints = |shape: &[usize], values: Vec<i32>| {
        HostTensor::i32(TensorDesc::new(Role::Index, shape), values)
    };
    let objects = [[0, 0, 1], [0, 1, 2], [1, 3, 1], [0, 4, 1], [1, 5, 1]].concat();
    let len = 2 * POINTS as i32;
    let parts = [[0, len], [len, len], [2 * len, len], [0, 5], [3 * len, len], [5, 6]].concat();
    let twice = |v: &[i32]| [v, v].concat();
    let mut coords = uniform(&TensorDesc::new(Role::Mask, &[2, 8 * POINTS]), 1, -0.2, 1.2);
    for (i, v) in coords.as_f32_mut().iter_mut().enumerate() {
        *v *= source[1 - i % 2] as f32;
    }
    let mut rois = uniform(&TensorDesc::new(Role::Box, &[m, 4]), 2, 0.0, 1.0);
    for roi in rois.as_f32_mut().chunks_exact_mut(4) {
        for i in 0..2 {
            let size = network[1 - i] as f32;
            (roi[i], roi[i + 2]) = (roi[i].min(roi[i + 2]) * size, roi[i].max(roi[i + 2]) * size);
        }
    }
    let inputs = vec![
        rois,
        integers(&[m], 3, 0, 2),
        integers(&[m], 4, 0, 5),
        ints(&[1], vec![n as i32]),
        ints(&[2, 5, 3], twice(&objects)),
        ints(&[2, 6, 2], twice(&parts)),
        coords,
        integers(&[2, 11], 5, 0, 1 + (source[0] * source[1] / 8) as i32),
        ints(&[2, 2], twice(&source.map(|v| v as i32))),
        ints(&[2, 2], twice(&network.map(|v| v as i32))),
        ints(&[2], vec![0, 1]),
    ];
    let label = format!(
        "{n} of {m} rois, side {}, {:?}, plus_one {}, {source:?} to {network:?}",
        op.side, op.rule, op.plus_one
    );
    OpCase::new(label, Arc::new(op), inputs)
}
