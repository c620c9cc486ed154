//! The keypoint head in families d2_keypoint_roi and d2_keypoint_grads.

use crate::d2_model::{every, norm};
use crate::model_setup::Loaded;
use crate::support::{Case, Report};

/// Maps of the positives, and the cell of each keypoint.
pub(crate) fn keypoints(report: &mut Report, case: Case<'_>, e: &Loaded) {
    let (targets, valid) = (case.i32("heatmap_targets"), case.i32("heatmap_valid").data);
    let pairs = targets.data.iter().zip(&valid);
    let want: Vec<i32> = pairs.map(|(cell, valid)| if *valid != 0 { *cell } else { -1 }).collect();
    let got = &e.i32("keypoint_targets")[..want.len()];
    report.exact(case.name(), "heatmap_targets", got, &want);
    let (stride, all) = every(case, "keypoint_logits");
    let logits = e.f32("keypoint_logits");
    let (per_roi, cells) = (targets.shape[1], logits.len() / e.i32("keypoint_targets").len());
    // Recorded with keypoints last.
    let got = (0..all.len()).map(|i| {
        let (roi, cell, k) =
            (i * stride / per_roi / cells, i * stride / per_roi % cells, i * stride % per_roi);
        logits[(roi * per_roi + k) * cells + cell]
    });
    report.close(case.name(), "keypoint_logits", &got.collect::<Vec<_>>(), &all);
}

/// True of a gradient that is 0 but for rounding: a softmax does not see what is added to all of
/// its cells.
pub(crate) fn is_zero(name: &str, gradient: &[f32]) -> bool {
    let is_blind = name.ends_with("score_lowres.bias");
    assert!(!is_blind || norm(gradient) < 1e-6, "{name}: {gradient:?}");
    is_blind
}
