//! Family `d2_roi`: pooling, mask targets and pasting by detectron2's rules.

use engine::config::{MaskTargetRule, PasteRule};
use kernels::ops::mask_targets::MaskTargets;

use crate::convert::f32s;
use crate::d2_ops::{GRAD_TOLERANCE, check, image_hw, level_op};
use crate::formulas::{self, pool_by_level};
use crate::mlperf_maps::polygon_targets;
use crate::rois::pool_one_level;
use crate::support::{Case, Report};

#[test]
fn detectron2_roi_ops_match_golden() {
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
    let scales = f32s(case, "scales");
    let op = level_op(case, 1 + scales.len() as i32);
    pool_by_level(report, case, op, "boxes_", (true, scales), GRAD_TOLERANCE);
    true
}

fn paste(report: &mut Report, case: Case<'_>) -> bool {
    let size = image_hw(case).map(|v| v as usize);
    formulas::paste(report, case, size, PasteRule::GridSample, "binary");
    true
}

/// Mask targets from polygons; targets from bitmaps are skipped, since no config key selects them.
fn mask_targets(report: &mut Report, case: Case<'_>) -> bool {
    let op = MaskTargets {
        side: case.usize("mask_size"),
        rule: MaskTargetRule::CocoPolygon,
        plus_one: false,
        min_side: 0.1,
    };
    polygon_targets(report, case, "targets_polygon", image_hw(case), op);
    true
}
