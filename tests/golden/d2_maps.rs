//! Family `d2_roi`: pooling, mask targets and pasting by detectron2's rules.

use engine::config::{MaskTargetRule, PasteRule};
use kernels::Role;
use kernels::boxes::as_boxes;
use kernels::ops::mask_targets::MaskTargets;
use kernels::ops::roi_align::RoiAlign;
use kernels::paste::paste_mask;

use crate::convert::{Ran, count, floats, host, index, numbered, numbers};
use crate::d2_ops::{GRAD_TOLERANCE, check, image_hw, level_op};
use crate::mlperf_maps::polygon_targets;
use crate::rois::pool_one_level;
use crate::support::{Case, Report};

#[test]
fn golden_d2_roi() {
    check(
        "d2_roi",
        &[
            ("roi_align_v2_", align),
            ("roi_pooler_", pooler),
            ("paste_masks_", paste),
            ("mask_targets_", mask_targets),
        ],
    );
}

fn align(report: &mut Report, case: Case<'_>) -> bool {
    pool_one_level(report, case, GRAD_TOLERANCE);
    true
}

fn pooler(report: &mut Report, case: Case<'_>) -> bool {
    let scales: Vec<f32> = numbers(case, "scales").iter().map(|v| *v as f32).collect();
    let (mut boxes, mut image_idx) = (Vec::new(), Vec::new());
    for (image, name) in (0..).zip(numbered(case, "boxes_")) {
        let own = case.f32(&name);
        image_idx.extend(vec![image; own.shape[0]]);
        boxes.extend(own.data);
    }
    let rows = image_idx.len();
    let boxes = || floats(Role::Box, &[rows, 4], boxes.clone());
    let image_idx = || index(&[rows], image_idx.clone());
    let op = level_op(case, 1 + scales.len() as i32);
    let levels = Ran::new(case.name(), op, vec![boxes(), image_idx()]);
    report.equal(case, "level", levels.i32(0));
    let op = RoiAlign {
        pooled: case.usize("output"),
        sampling_ratio: case.usize("sampling_ratio"),
        aligned: true,
        spatial_scales: scales,
        gradient_scale: 1.0,
    };
    let maps = numbered(case, "feat");
    let mut inputs: Vec<_> =
        maps.iter().map(|name| host(Role::Activation, &case.f32(name))).collect();
    let levels = index(&[rows], levels.i32(0).to_vec());
    inputs.extend([boxes(), image_idx(), levels, count(rows)]);
    let ran = Ran::new(case.name(), op, inputs);
    report.compare_within(case, "y", ran.f32(0), GRAD_TOLERANCE);
    for map in 0..maps.len() {
        let name = format!("dfeat{map}");
        let grad = ran.grad(&case.f32("dy").data, map).data;
        report.compare_within(case, &name, &grad, GRAD_TOLERANCE);
    }
    true
}

/// Probabilities of the objects that have them recorded, and the pixels inside of all.
fn paste(report: &mut Report, case: Case<'_>) -> bool {
    let hw = numbers(case, "image_hw");
    let (height, width) = (hw[0] as usize, hw[1] as usize);
    let (boxes, masks) = (case.f32("boxes").data, case.f32("masks"));
    let (soft, binary) = (case.f32("soft"), case.u8("binary").data);
    let (side, area) = (masks.shape[1], height * width);
    let threshold = case.float("threshold") as f32;
    let objects = as_boxes(&boxes).iter().zip(masks.data.chunks_exact(side * side));
    for (i, (bbox, mask)) in objects.enumerate() {
        let pasted = paste_mask(mask, side, *bbox, height, width, PasteRule::GridSample);
        if i < soft.shape[0] {
            let want = &soft.data[i * area..(i + 1) * area];
            report.close(case.name(), "soft", &pasted.soft_image(), want);
        }
        let got = pasted.bitmap(threshold).pixels;
        report.exact(case.name(), "binary", &got, &binary[i * area..(i + 1) * area]);
    }
    true
}

/// Targets from polygons; no key makes bitmaps binary.
fn mask_targets(report: &mut Report, case: Case<'_>) -> bool {
    let hw = image_hw(case);
    let op = MaskTargets {
        side: case.usize("mask_size"),
        rule: MaskTargetRule::CocoPolygon,
        plus_one: false,
        min_side: 0.1,
    };
    polygon_targets(report, case, "targets_polygon", [hw[0], hw[1]], op);
    true
}
