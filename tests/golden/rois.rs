//! Golden families `roi_align` (mask targets from bitmaps included) and `roi_levels`.

use engine::config::{LevelEps, MaskTargetRule};
use kernels::Role;
use kernels::coco::{Bitmap, encode_runs};
use kernels::ops::mask_targets::MaskTargets;
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::roi_levels::RoiLevels;

use crate::convert::{Ran, count, flag, floats, host, index, numbered, repeated, views};
use crate::formulas::pool_by_level;
use crate::support::{Case, Report, each_case};

/// From the README of the golden data; PyTorch's own f32 error is 3.5e-6.
const TOLERANCE: f64 = 2e-5;

#[test]
fn roi_align_matches_golden() {
    each_case("roi_align", TOLERANCE, |report, case| {
        if case.has("gt_masks") {
            project_masks(report, case);
        } else {
            pool_one_level(report, case, TOLERANCE);
        }
    });
}

pub(crate) fn pool_one_level(report: &mut Report, case: Case<'_>, grad_tolerance: f64) {
    let op = RoiAlign {
        pooled: case.usize("output"),
        sampling_ratio: case.usize("sampling_ratio"),
        aligned: flag(case, "aligned"),
        spatial_scales: vec![case.float("spatial_scale") as f32],
        gradient_scale: 1.0,
    };
    let rois = case.f32("rois").data;
    let boxes: Vec<f32> = rois.chunks_exact(5).flat_map(|r| r[1..].to_vec()).collect();
    let image_idx: Vec<i32> = rois.chunks_exact(5).map(|r| r[0] as i32).collect();
    let rows = image_idx.len();
    let inputs = vec![
        host(Role::Activation, &case.f32("x")),
        floats(Role::Box, &[rows, 4], boxes),
        index(&[rows], image_idx),
        repeated(rows, 0),
        count(rows),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    report.compare(case, "y", ran.f32(0));
    let dx = ran.grad(&case.f32("dy").data, 0).data;
    report.compare_within(case, "dx", &dx, grad_tolerance);
}

/// Compares torchvision's mask targets with the op used in training, which reads objects as RLE
/// runs.
fn project_masks(report: &mut Report, case: Case<'_>) {
    let masks = case.u8("gt_masks");
    let (objects, height, width) = (masks.shape[0], masks.shape[1], masks.shape[2]);
    let (mut runs, mut segments, mut parts) = (vec![], vec![], vec![]);
    for (object, pixels) in masks.data.chunks_exact(height * width).enumerate() {
        let own = encode_runs(&Bitmap { height, width, pixels: pixels.to_vec() });
        segments.extend([1, object as i32, 1]);
        parts.extend([runs.len() as i32, own.len() as i32]);
        runs.extend(own.into_iter().map(|run| run as i32));
    }
    let proposals = case.f32("proposals");
    let rows = proposals.shape[0];
    let size = [height as i32, width as i32];
    let inputs = vec![
        host(Role::Box, &proposals),
        repeated(rows, 0),
        index(&[rows], case.i32("matched_idxs").data),
        count(rows),
        index(&[1, objects, 3], segments),
        index(&[1, objects, 2], parts),
        floats(Role::Mask, &[1, 0], vec![]),
        index(&[1, runs.len()], runs),
        views([[size; 2]]),
    ];
    let side = case.usize("mask_size");
    let op =
        MaskTargets { side, rule: MaskTargetRule::RoiAlignBitmap, plus_one: false, min_side: 1.0 };
    let ran = Ran::new(case.name(), op, inputs);
    report.compare(case, "y", ran.f32(0));
}

#[test]
fn roi_levels_match_golden() {
    each_case("roi_levels", TOLERANCE, |report, case| {
        if case.has("boxes") {
            let boxes = case.f32("boxes");
            let image_idx = repeated(boxes.shape[0], 0);
            let ran =
                Ran::new(case.name(), level_op(case), vec![host(Role::Box, &boxes), image_idx]);
            report.equal(case, "level", ran.i32(0));
        } else {
            pool_pyramid(report, case);
        }
    });
}

fn level_op(case: Case<'_>) -> RoiLevels {
    // The MultiScaleRoIAlign cases omit `canonical_level`, whose default is 4.
    let stated = case.attributes().get("canonical_level").is_some();
    let canonical_level = if stated { case.usize("canonical_level") as i32 } else { 4 };
    RoiLevels {
        rule: LevelEps::AfterLog,
        min_level: case.usize("k_min") as i32,
        max_level: case.usize("k_max") as i32,
        canonical_size: case.float("canonical_scale") as f32,
        canonical_level,
        plus_one: false,
    }
}

/// Pools from a pyramid whose level k has a stride of 2^k network pixels, from which torchvision
/// also derives k_min.
fn pool_pyramid(report: &mut Report, case: Case<'_>) {
    let (op, maps) = (level_op(case), numbered(case, "feat").len());
    let scales = (op.min_level..).take(maps).map(|level| 0.5f32.powi(level)).collect();
    pool_by_level(report, case, op, "boxes_img", (flag(case, "aligned"), scales), TOLERANCE);
}
