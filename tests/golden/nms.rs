//! Golden family `nms`: NMS over all boxes and per class.
//!
//! `keep_coordinate_trick` is not compared: onegraph suppresses per class, without shifted boxes.

use kernels::Role;
use kernels::boxes::{as_boxes, batched_nms, nms, sort_by_score};
use kernels::ops::nms_proposals::{NmsProposals, ProposalScope};

use crate::convert::{Ran, floats, index};
use crate::support::{Case, Report, each_case};

/// Indices must be equal.
const TOLERANCE: f64 = 0.0;

#[test]
fn nms_matches_golden() {
    each_case("nms", TOLERANCE, |report, case| {
        let (boxes, scores) = (case.f32("boxes").data, case.f32("scores").data);
        let threshold = case.float("iou_threshold") as f32;
        let classes = case.has("idxs").then(|| case.i32("idxs").data);
        let kept = match &classes {
            Some(idxs) => batched_nms(as_boxes(&boxes), &scores, idxs, threshold, false),
            None => nms(as_boxes(&boxes), &scores, threshold, false),
        };
        report.exact(case.name(), "keep", &kept, &case.i32("keep").indices());
        if case.has("stable_order") {
            let order = case.i32("stable_order").indices();
            report.exact(case.name(), "stable_order", &sort_by_score(&scores), &order);
        }
        let levels = classes.unwrap_or_else(|| vec![0; scores.len()]);
        proposals(report, case, [boxes, scores], levels, threshold);
    });
}

/// Compares the op for one image's proposals, which applies NMS per level instead of per class.
fn proposals(
    report: &mut Report,
    case: Case<'_>,
    [boxes, scores]: [Vec<f32>; 2],
    levels: Vec<i32>,
    threshold: f32,
) {
    // The op's scores are probabilities: a negative score marks an unused row.
    if scores.iter().any(|&score| score < 0.0) {
        return;
    }
    let rows = scores.len();
    let scope = ProposalScope::Image;
    let op =
        NmsProposals { threshold, post_top_n: rows, level_top_n: None, plus_one: false, scope };
    let inputs = vec![
        floats(Role::Box, &[1, rows, 4], boxes.clone()),
        floats(Role::Score, &[1, rows], scores.clone()),
        index(&[rows], levels),
        index(&[1, rows], (0..rows as i32).collect()),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    let keep = case.i32("keep");
    let len = keep.data.len();
    report.exact(case.name(), "counts (op)", ran.i32(3), &[len as i32]);
    report.exact(case.name(), "keep (op)", &ran.i32(2)[..len], &keep.data);
    let keep = keep.indices();
    let kept: Vec<_> = keep.iter().map(|&i| as_boxes(&boxes)[i]).collect();
    report.exact(case.name(), "boxes (op)", &as_boxes(ran.f32(0))[..len], &kept);
    let kept: Vec<f32> = keep.iter().map(|&i| scores[i]).collect();
    report.exact(case.name(), "scores (op)", &ran.f32(1)[..len], &kept);
}
