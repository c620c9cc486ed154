//! The RoIs and heads of each recorded model in its first step.

use crate::convert::permute;
use crate::model_configs::{Recorded, trained};
use crate::model_train::thinned;
use crate::models::{Loaded, Model};
use crate::samples::{KeyedStep, sampled};
use crate::support::{Case, Report, cases_of};

#[test]
fn model_roi_heads_match_golden() {
    trained().for_each(roi);
}

fn roi(of: &'static Recorded) {
    let Some(model) = Model::open(of) else { return };
    cases_of(&of.family("roi"), "roi", of.tolerances.roi, |report, case| {
        let Some(loaded) = step_of(report, &model, case) else { return };
        if model.has_keypoints() {
            return keypoints(report, &model, case, &loaded);
        }
        let (targets, labels) = ("mask_targets", loaded.i32("mask_roi_labels"));
        let (shape, want) = if of.is_torchvision() {
            let want = case.f32(targets);
            (want.shape, want.data)
        } else {
            let want = case.u8(targets);
            (want.shape, want.data.into_iter().map(f32::from).collect())
        };
        let got = &loaded.f32(targets)[..want.len()];
        let of_targets = if of.is_torchvision() { tolerance(case, targets) } else { 0.0 };
        report.close_within(case.name(), targets, got, &want, of_targets);
        // The step computes only the channel of each row's class; detectron2 has no channel for the
        // background.
        let (name, (stride, all)) = ("mask_logits", case.every("mask_logits"));
        let area = shape[1] * shape[2];
        let first = i32::from(of.is_detectron2());
        let classes = model.classes + 1 - first as usize;
        let logits = loaded.f32(name);
        let pair = |(i, want): (usize, &f32)| {
            let at = i * stride;
            let is_own = at % classes == (labels[at / classes / area] - first) as usize;
            is_own.then(|| (logits[at / classes], *want))
        };
        let (got, want): (Vec<f32>, Vec<f32>) = all.iter().enumerate().filter_map(pair).unzip();
        assert!(want.len() > all.len() / classes / 2, "{} of {}", want.len(), all.len());
        let of_logits = match of.is_torchvision() {
            true => tolerance(case, name),
            false => of.tolerances.roi,
        };
        report.close_within(case.name(), name, &got, &want, of_logits);
    });
}

/// Three times the recorded difference between the reference's f32 and f64 runs, and at least 2e-5
/// (README of the golden data): values sampled at computed coordinates amplify rounding errors.
fn tolerance(case: Case<'_>, tensor: &str) -> f64 {
    let stated = &case.attribute("err_f32_vs_f64")[tensor];
    let value = |i: usize| stated[i].as_f64().unwrap_or(0.0);
    (3.0 * value(0) / value(1).max(1e-30)).max(2e-5)
}

/// Compares RoIs and box heads, and returns the step: for detectron2, which lists positives first,
/// with the recorded samples, otherwise with samples chosen by the golden data's keys.
fn step_of(report: &mut Report, model: &Model, case: Case<'_>) -> Option<Loaded> {
    if model.of.is_detectron2() {
        let loaded = model.recorded_step()?.run();
        candidates(report, model, case);
        for stage in model.stages() {
            heads(report, model, case, &loaded, stage);
        }
        if model.config.model.backbone.is_c4() {
            let (stride, want) = case.every("res5_out");
            let got = loaded.f32("res5").iter().step_by(stride).copied().take(want.len());
            report.close(case.name(), "res5_out", &got.collect::<Vec<_>>(), &want);
        }
        return Some(loaded);
    }
    let loaded = model.observed().given;
    let count = loaded.i32("num_rois")[0] as usize;
    let boxes = if model.of.is_torchvision() { "sampled_proposals" } else { "sampled_boxes" };
    let images = 0..model.num_images();
    let rois: Vec<f32> =
        images.clone().flat_map(|i| case.f32(&format!("{boxes}_{i}")).data).collect();
    report.close(case.name(), "rois", &loaded.f32("rois")[..4 * count], &rois);
    let matched = ("roi_matched", "sampled_matched_idxs");
    let matched = [matched].into_iter().filter(|_| model.of.is_torchvision());
    for (ours, theirs) in [("roi_labels", "sampled_labels")].into_iter().chain(matched) {
        let own = |i| case.i32(&format!("{theirs}_{i}")).data;
        let want: Vec<i32> = images.clone().flat_map(own).collect();
        report.exact(case.name(), theirs, &loaded.i32(ours)[..count], &want);
    }
    for name in ["box_features", "class_logits", "box_regression"] {
        let want = case.f32(name).data;
        let got = &loaded.f32(name)[..want.len()];
        let tolerance = tolerance(case, name).max(model.of.tolerances.roi);
        report.close_within(case.name(), name, got, &want, tolerance);
    }
    Some(loaded)
}

/// Compares the heatmaps of positives, and the cell of each keypoint.
fn keypoints(report: &mut Report, model: &Model, case: Case<'_>, e: &Loaded) {
    let is_torchvision = model.of.is_torchvision();
    let of_cells = if is_torchvision { "keypoint" } else { "heatmap" };
    let name = format!("{of_cells}_targets");
    let (targets, valid) = (case.i32(&name), case.i32(&format!("{of_cells}_valid")).data);
    let pairs = targets.data.iter().zip(&valid);
    let want: Vec<i32> = pairs.map(|(cell, valid)| if *valid != 0 { *cell } else { -1 }).collect();
    report.exact(case.name(), &name, &e.i32("keypoint_targets")[..want.len()], &want);
    let logits = e.f32("keypoint_logits");
    if is_torchvision {
        let low = ("keypoint_lowres_first4", case.f32("keypoint_lowres_first4").data);
        let name = "keypoint_logits_first1";
        let high = (name, permute(&case.f32(name), &[0, 3, 1, 2]).data);
        for ((name, want), got) in [(low, e.f32("keypoint_lowres")), (high, logits)] {
            let (got, tolerance) = (&got[..want.len()], tolerance(case, name));
            report.close_within(case.name(), name, got, &want, tolerance);
        }
        return;
    }
    let (stride, all) = case.every("keypoint_logits");
    let (per_roi, cells) = (targets.shape[1], logits.len() / e.i32("keypoint_targets").len());
    // The recorded maps have the keypoint axis last.
    let got = (0..all.len()).map(|i| {
        let (roi, cell, k) =
            (i * stride / per_roi / cells, i * stride / per_roi % cells, i * stride % per_roi);
        logits[(roi * per_roi + k) * cells + cell]
    });
    report.close(case.name(), "keypoint_logits", &got.collect::<Vec<_>>(), &all);
}

/// Compares the outputs of a box head and, from the second stage of a cascade on, its RoIs.
fn heads(report: &mut Report, model: &Model, case: Case<'_>, e: &Loaded, stage: Option<usize>) {
    let theirs = |what: &str| stage.map_or(what.into(), |stage| format!("{what}_stage{stage}"));
    let ours = |what: &str| of_stage(what, stage);
    let f32 = |name: &str, len: usize| &e.f32(&ours(name))[..len];
    let rows = case.f32(&theirs("class_logits")).shape[0];
    let shapes = case.attribute("full_shapes").as_object().expect("an object");
    let ending = format!("/{}", theirs("box_features"));
    let features = shapes.iter().find(|(name, _)| name.ends_with(&ending));
    let features = features.and_then(|(_, shape)| shape.as_array());
    let len = features.expect("a shape").iter().map(|v| v.as_u64().expect("a size") as usize);
    let got = f32("box_features", len.product());
    thinned(report, case, &theirs("box_features"), got, model.of.tolerances.roi);
    let width = model.classes + 1;
    let logits = background_last(f32("class_logits", rows * width), width);
    report.compare(case, &theirs("class_logits"), &logits);
    // detectron2's background has no deltas.
    let is_shared = model.config.model.box_head.class_agnostic;
    let (of_row, skipped) = if is_shared { (4, 0) } else { (4 * width, 4) };
    let deltas = f32("box_regression", rows * of_row).chunks_exact(of_row);
    let deltas: Vec<f32> = deltas.flat_map(|row| row[skipped..].to_vec()).collect();
    report.compare(case, &theirs("box_deltas"), &deltas);
    let Some(stage) = stage.filter(|stage| *stage > 0) else { return };
    let labels = e.i32(&ours("roi_labels"));
    let mut at = 0;
    for i in 0..model.num_images() {
        let name = format!("stage{stage}_boxes_{i}");
        let boxes = case.f32(&name).data;
        let rows = boxes.len() / 4;
        report.close(case.name(), &name, &f32("rois", 4 * (at + rows))[4 * at..], &boxes);
        let name = format!("stage{stage}_classes_{i}");
        let classes = case.i32(&name).data;
        let want: Vec<i32> = classes.iter().map(|class| model.label(*class)).collect();
        report.exact(case.name(), &name, &labels[at..at + rows], &want);
        at += rows;
    }
}

/// onegraph's name for a tensor of a cascade stage.
pub(crate) fn of_stage(what: &str, stage: Option<usize>) -> String {
    match stage {
        None | Some(0) => what.to_string(),
        Some(stage) => format!("{what}_stage{stage}"),
    }
}

/// Logits in detectron2's order, with the background last.
pub(crate) fn background_last(logits: &[f32], width: usize) -> Vec<f32> {
    let mut logits = logits.to_vec();
    logits.chunks_exact_mut(width).for_each(|row| row.rotate_left(1));
    logits
}

/// Compares the classes and objects of all candidates and of the sampled ones; detectron2 lists
/// positives first.
fn candidates(report: &mut Report, model: &Model, case: Case<'_>) {
    let KeyedStep { free, given } = model.observed();
    let i32 = |name: &str| free.i32(name);
    let (labels, matched) = (i32("roi_candidate_labels"), i32("roi_candidate_matched"));
    let capacity = labels.len() / model.num_images();
    let drawn = given.f32("rois");
    let mut at = 0;
    for i in 0..model.num_images() {
        let key = |what: &str| format!("{what}_{i}");
        let classes = case.i32(&key("candidate_classes")).data;
        let want: Vec<i32> = classes.iter().map(|class| model.label(*class)).collect();
        let own = i * capacity..i * capacity + i32("roi_candidate_counts")[i] as usize;
        report.exact(case.name(), &key("candidate_classes"), &labels[own.clone()], &want);
        let theirs = case.i32(&key("candidate_matched_idxs")).data;
        let pairs =
            want.iter().zip(&matched[own]).zip(&theirs).filter(|((label, _), _)| **label > 0);
        let (got, want): (Vec<i32>, Vec<i32>) = pairs.map(|((_, got), want)| (*got, *want)).unzip();
        report.exact(case.name(), &key("candidate_matched_idxs"), &got, &want);
        at += sampled_boxes(report, case, "", i, &drawn[at..]);
    }
}

/// Compares the sampled boxes of an image with the first values of `got`, which are in candidate
/// order; returns the number of compared values.
pub(crate) fn sampled_boxes(
    report: &mut Report,
    case: Case<'_>,
    what: &str,
    image: usize,
    got: &[f32],
) -> usize {
    let name = format!("sampled_boxes_{image}");
    let (boxes, idx) = (case.f32(&name).data, sampled(case, what, image));
    let mut order: Vec<usize> = (0..idx.len()).collect();
    order.sort_unstable_by_key(|&r| idx[r]);
    let want: Vec<f32> = order.iter().flat_map(|&r| boxes[4 * r..4 * r + 4].to_vec()).collect();
    report.close(case.name(), &name, &got[..want.len()], &want);
    want.len()
}
