//! Mask targets by hand, and by properties.

use super::{MaskTargetRule, MaskTargets};
use crate::case::boxes::views;
use crate::case::hand::{assert_near, run, tensor};
use crate::case::{constant, index};
use crate::coco::{Bitmap, encode_runs, rasterize};
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

/// One image with one object.
#[derive(Clone)]
struct Scene {
    polygon: Vec<f32>,
    runs: Vec<u32>,
    source: [usize; 2],
    network: [usize; 2],
    /// As [`views`] takes them.
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

/// The left half of an image of 8 x 8, at twice the size.
fn left_half(turns: i32) -> Scene {
    let polygon = vec![0.0, 0.0, 4.0, 0.0, 4.0, 8.0, 0.0, 8.0];
    let wide: Vec<f64> = polygon.iter().map(|&v| f64::from(v)).collect();
    let runs = encode_runs(&rasterize(&[wide], 8, 8));
    Scene { polygon, runs, source: [8, 8], network: [16, 16], turns }
}

#[test]
fn half_an_image_by_hand() {
    let whole = [[0.0, 0.0, 16.0, 16.0]];
    for rule in [MaskTargetRule::CocoPolygon, MaskTargetRule::RoiAlignBitmap] {
        let op = MaskTargets { side: 4, rule, plus_one: false, min_side: 1.0 };
        for (kind, flip) in [(0, false), (1, false), (0, true), (1, true)] {
            let target = targets(op, &left_half(i32::from(flip)), kind, &whole);
            let mut row = match rule {
                MaskTargetRule::CocoPolygon => [1.0, 1.0, 0.0, 0.0],
                // Samples lie on half pixels: the one at the edge is half in.
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

/// Rows and columns that change places change them in the target.
#[test]
fn a_transposed_view_gives_the_transposed_target() {
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
fn polygons_and_runs_agree() {
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

/// The network-size bitmap, built and averaged sample by sample.
#[test]
fn soft_targets_equal_roi_align_of_the_bitmap() {
    let polygon = vec![3.2, 1.1, 27.9, 8.4, 20.3, 25.7, 5.5, 19.0];
    let wide: Vec<f64> = polygon.iter().map(|&v| f64::from(v)).collect();
    let small: Bitmap = rasterize(&[wide], 31, 37);
    let (height, width) = (53usize, 61usize);
    let pixel = |y: usize, x: usize| {
        let (y, x) = (y * 31 / height, x * 37 / width);
        f32::from(small.pixels[y * 37 + 36 - x])
    };
    let desc = TensorDesc::new(Role::Activation, &[1, height, width, 1]);
    let values = (0..height * width).map(|i| pixel(i / width, i % width)).collect();
    let index = |v: i32| constant(&[1], v);
    let roi = [5.3, 2.0, 50.1, 44.0];
    let align = crate::ops::roi_align::RoiAlign {
        pooled: 7,
        sampling_ratio: 0,
        aligned: false,
        spatial_scales: vec![1.0],
        gradient_scale: 1.0,
    };
    let inputs =
        [HostTensor::f32(desc, values), tensor(&[1, 4], roi), index(0), index(0), index(1)];
    let expected = run(&align, &inputs);
    let scene =
        Scene { polygon, runs: vec![], source: [31, 37], network: [height, width], turns: 1 };
    let op = MaskTargets {
        side: 7,
        rule: MaskTargetRule::RoiAlignBitmap,
        plus_one: false,
        min_side: 1.0,
    };
    assert_near(&targets(op, &scene, 0, &[roi]), expected[0].as_f32(), 1e-6);
}

/// An inclusive flip moves the object one network pixel further left.
#[test]
fn plus_one_flips_pixels_not_edges() {
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

/// A RoI half a pixel wide in the left half: whole where sides count from 0.1, a part where a pixel
/// is the least.
#[test]
fn a_small_roi_is_stretched_from_the_least_side() {
    let roi = [[7.5, 4.0, 8.0, 8.0]];
    let share = |min_side, kind| {
        let op =
            MaskTargets { side: 4, rule: MaskTargetRule::CocoPolygon, plus_one: false, min_side };
        targets(op, &left_half(0), kind, &roi).iter().sum::<f32>() / 16.0
    };
    for kind in [0, 1] {
        assert_eq!((share(0.1, kind), share(1.0, kind)), (1.0, 0.5), "kind {kind}");
    }
}
