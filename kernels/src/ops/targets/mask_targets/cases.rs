//! Cases of `mask_targets` for the table of ops.

use super::{MaskTargetRule, MaskTargets};
use crate::Role;
use crate::case::boxes::views;
use crate::case::{OpCase, index, integers, uniform};

/// Points of a polygon, and runs of an image.
type Detail = [usize; 2];

/// Triangles, and few runs.
const FEW: Detail = [3, 11];
/// Runs over many columns.
const LONG: Detail = [3, 3];
/// Polygons that cross themselves, and more of everything than a block has threads.
const MANY: Detail = [263, 601];

/// No RoI, one, primes, counts below the capacity, tiles of 32 columns and 1,024 rows and their
/// neighbours, and the positives of a COCO image, by each rule.
pub fn cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for (rule, plus_one, min_side) in [
        (MaskTargetRule::RoiAlignBitmap, false, 1.0),
        (MaskTargetRule::CocoPolygon, false, 1.0),
        (MaskTargetRule::CocoPolygon, true, 1.0),
        (MaskTargetRule::CocoPolygon, false, 0.1),
    ] {
        let op = |side| MaskTargets { side, rule, plus_one, min_side };
        cases.push(case(op(5), [0, 0], [7, 11], [7, 11], FEW, [0, 1]));
        cases.push(case(op(1), [1, 1], [1, 1], [1, 1], FEW, [0, 1]));
        cases.push(case(op(7), [13, 11], [37, 53], [41, 29], FEW, [0, 1]));
        cases.push(case(op(31), [5, 5], [31, 32], [33, 31], FEW, [0, 1]));
        cases.push(case(op(32), [5, 5], [32, 33], [31, 64], MANY, [0, 1]));
        cases.push(case(op(33), [5, 5], [1100, 65], [2111, 70], MANY, [0, 1]));
        cases.push(case(op(9), [29, 29], [37, 53], [41, 29], LONG, [0, 1]));
        cases.push(case(op(9), [29, 29], [37, 53], [41, 29], LONG, [2, 4]));
        cases.push(case(op(14), [13, 13], [70, 41], [64, 53], FEW, [3, 7]));
        cases.push(case(op(14), [13, 13], [70, 41], [64, 53], FEW, [8, 13]));
        cases.push(case(op(28), [64, 61], [480, 640], [800, 1066], FEW, [0, 1]));
    }
    cases
}

/// Two images of five objects each: polygons, pairs of them, and runs.
fn case(
    op: MaskTargets,
    [m, n]: [usize; 2],
    source: [usize; 2],
    network: [usize; 2],
    [points, runs]: Detail,
    turns: [i32; 2],
) -> OpCase {
    let ints = |shape: &[usize], values: Vec<i32>| index(shape, values);
    let objects = [[0, 0, 1], [0, 1, 2], [1, 3, 1], [0, 4, 1], [1, 5, 1]].concat();
    let len = 2 * points as i32;
    let (first, rest) = (runs as i32 / 2, (runs - runs / 2) as i32);
    let parts =
        [[0, len], [len, len], [2 * len, len], [0, first], [3 * len, len], [first, rest]].concat();
    let twice = |v: &[i32]| [v, v].concat();
    let mut coords = uniform(Role::Mask, &[2, 8 * points], 1, -0.2, 1.2);
    for (i, v) in coords.as_f32_mut().iter_mut().enumerate() {
        *v *= source[1 - i % 2] as f32;
    }
    let mut rois = uniform(Role::Box, &[m, 4], 2, 0.0, 1.0);
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
        integers(&[2, runs], 5, 0, 2 + (source[0] * source[1] * 11 / (8 * runs)) as i32),
        views(source.map(|v| v as i32), network.map(|v| v as i32), &turns),
    ];
    let least = if op.min_side < 1.0 { ", from small rois" } else { "" };
    let label = format!(
        "{n} of {m} rois, side {}, {:?}, plus_one {}, {source:?} to {network:?}, {points} points, turns {turns:?}{least}",
        op.side, op.rule, op.plus_one
    );
    OpCase::new(label, op, inputs)
}
