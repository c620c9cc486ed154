//! Test and benchmark cases of `mask_targets`.

use super::{MaskTargetRule, MaskTargets};
use crate::Role;
use crate::case::boxes::views;
use crate::case::{OpCase, index, integers, uniform};

/// Points per polygon, and runs per image.
type Detail = [usize; 2];

/// Triangles, and few runs.
const FEW: Detail = [3, 11];
/// Runs over many columns.
const LONG: Detail = [3, 3];
/// Self-intersecting polygons, and more points and runs than a block has threads.
const MANY: Detail = [263, 601];

/// No RoI, one RoI, prime sizes, counts below the capacity, sizes near a strip of 32 columns, more
/// than 1,024 rows, and the positives of a COCO image, with each rule.
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

/// Two images with five objects each: single polygons, a pair of polygons, and runs.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::case::constant;
    use crate::case::hand::{run, tensor};
    use crate::coco::{encode_runs, rasterize};

    /// One image with one object.
    #[derive(Clone)]
    struct Scene {
        polygon: Vec<f32>,
        runs: Vec<u32>,
        source: [usize; 2],
        network: [usize; 2],
        /// Bits as in [`views`].
        turns: i32,
    }

    fn targets(op: MaskTargets, scene: &Scene, kind: i32, rois: &[[f32; 4]]) -> Vec<f32> {
        let len = if kind == 0 { scene.polygon.len() } else { scene.runs.len() };
        let runs: Vec<i32> = scene.runs.iter().map(|&v| v as i32).collect();
        let m = rois.len();
        let [source, network] = [scene.source, scene.network].map(|size| size.map(|v| v as i32));
        let inputs = [
            tensor(&[m, 4], rois.concat()),
            constant(&[m], 0),
            constant(&[m], 0),
            constant(&[1], m as i32),
            index(&[1, 1, 3], [kind, 0, 1]),
            index(&[1, 1, 2], [0, len as i32]),
            tensor(&[1, scene.polygon.len()], scene.polygon.clone()),
            index(&[1, runs.len()], runs),
            views(source, network, &[scene.turns]),
        ];
        run(&op, &inputs)[0].as_f32().to_vec()
    }

    /// An object that fills the left half of an 8 x 8 image, which is upsampled by 2.
    fn left_half(turns: i32) -> Scene {
        let polygon = vec![0.0, 0.0, 4.0, 0.0, 4.0, 8.0, 0.0, 8.0];
        let wide: Vec<f64> = polygon.iter().map(|&v| f64::from(v)).collect();
        let runs = encode_runs(&rasterize(&[wide], 8, 8));
        Scene { polygon, runs, source: [8, 8], network: [16, 16], turns }
    }

    #[test]
    fn mask_target_of_half_image_matches_hand_computed_values() {
        let whole = [[0.0, 0.0, 16.0, 16.0]];
        for rule in [MaskTargetRule::CocoPolygon, MaskTargetRule::RoiAlignBitmap] {
            let op = MaskTargets { side: 4, rule, plus_one: false, min_side: 1.0 };
            for (kind, flip) in [(0, false), (1, false), (0, true), (1, true)] {
                let target = targets(op, &left_half(i32::from(flip)), kind, &whole);
                let mut row = match rule {
                    MaskTargetRule::CocoPolygon => [1.0, 1.0, 0.0, 0.0],
                    // Samples are at half pixels: the sample at the object's edge is half inside.
                    MaskTargetRule::RoiAlignBitmap => [1.0, 0.875, 0.0, 0.0],
                };
                if flip && rule == MaskTargetRule::CocoPolygon {
                    row.reverse();
                } else if flip {
                    row = [0.0, 0.125, 1.0, 1.0];
                }
                assert_eq!(target[4..8], row, "{rule:?}, kind {kind}, flip {flip}");
            }
        }
    }

    /// Swapping rows and columns of the view swaps rows and columns of the target.
    #[test]
    fn transposed_view_gives_transposed_mask_target() {
        let polygon = vec![3.2, 1.1, 27.9, 8.4, 20.3, 25.7, 5.5, 19.0];
        let wide: Vec<f64> = polygon.iter().map(|&v| f64::from(v)).collect();
        let runs = encode_runs(&rasterize(&[wide], 31, 37));
        let plain = Scene { polygon, runs, source: [31, 37], network: [53, 61], turns: 1 };
        let turned = Scene { network: [61, 53], turns: 9, ..plain.clone() };
        let side = 7;
        for (rule, kind) in [
            (MaskTargetRule::RoiAlignBitmap, 0),
            (MaskTargetRule::RoiAlignBitmap, 1),
            (MaskTargetRule::CocoPolygon, 0),
            (MaskTargetRule::CocoPolygon, 1),
        ] {
            let op = MaskTargets { side, rule, plus_one: false, min_side: 1.0 };
            let target = targets(op, &plain, kind, &[[4.5, 7.0, 50.0, 41.0]]);
            let swapped = targets(op, &turned, kind, &[[7.0, 4.5, 41.0, 50.0]]);
            let back: Vec<f32> =
                (0..side * side).map(|i| swapped[i % side * side + i / side]).collect();
            assert_eq!(target, back, "{rule:?}, kind {kind}");
            assert!(target.iter().sum::<f32>() > 5.0);
        }
    }

    /// Polygons and the runs of their bitmap give the same soft targets.
    #[test]
    fn polygon_and_rle_mask_targets_agree() {
        let polygon = vec![3.2, 1.1, 27.9, 8.4, 20.3, 25.7, 5.5, 19.0];
        let wide: Vec<f64> = polygon.iter().map(|&v| f64::from(v)).collect();
        let runs = encode_runs(&rasterize(&[wide], 31, 37));
        let scene = Scene { polygon, runs, source: [31, 37], network: [53, 61], turns: 1 };
        let op = MaskTargets {
            side: 7,
            rule: MaskTargetRule::RoiAlignBitmap,
            plus_one: false,
            min_side: 1.0,
        };
        let rois = [[5.3, 2.0, 50.1, 44.0], [-3.0, -2.0, 9.0, 70.0], [30.0, 20.0, 30.0, 20.0]];
        let (a, b) = (targets(op, &scene, 0, &rois), targets(op, &scene, 1, &rois));
        assert_eq!(a, b);
        assert!(a.iter().any(|&v| v > 0.0 && v < 1.0));
    }

    /// A flip with inclusive boxes moves the object one network pixel further left.
    #[test]
    fn mask_flip_with_inclusive_boxes_moves_one_pixel_further() {
        let op = |plus_one| MaskTargets {
            side: 16,
            rule: MaskTargetRule::CocoPolygon,
            plus_one,
            min_side: 1.0,
        };
        let whole = [[0.0, 0.0, 16.0, 16.0]];
        let first = |plus_one| {
            let target = targets(op(plus_one), &left_half(1), 0, &whole);
            target[..16].iter().position(|&v| v == 1.0)
        };
        assert_eq!((first(false), first(true)), (Some(8), Some(7)));
    }

    /// A RoI half a pixel wide in the left half: entirely covered with a minimum side of 0.1, half
    /// covered with a minimum side of 1.
    #[test]
    fn small_roi_is_enlarged_to_min_side() {
        let roi = [[7.5, 4.0, 8.0, 8.0]];
        let share = |min_side, kind| {
            let op = MaskTargets {
                side: 4,
                rule: MaskTargetRule::CocoPolygon,
                plus_one: false,
                min_side,
            };
            targets(op, &left_half(0), kind, &roi).iter().sum::<f32>() / 16.0
        };
        for kind in [0, 1] {
            assert_eq!((share(0.1, kind), share(1.0, kind)), (1.0, 0.5), "kind {kind}");
        }
    }
}
