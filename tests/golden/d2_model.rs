//! Families d2_fpn_* and `d2_empty`: a narrow Mask R-CNN of detectron2, from raw images to
//! gradients. Losses and updates are in `d2_steps.rs`, detections in `d2_eval.rs`.

use std::collections::BTreeMap;

use engine::config::Config;
use engine::model::training_program;
use engine::weights::{Dialect, ExportForm, export_weights};
use kernels::losses::sigmoid;
use safetensors::SafeTensors;

use crate::d2_keypoints::{is_zero, keypoints};
use crate::model_setup::Loaded;
use crate::recorded::Settings;
use crate::reference::{C4, CASCADE, DC5, FPN, Files, GN, LSJ, Reference, TOLERANCE};
use crate::samples::{KeyedStep, sampled};
use crate::support::{Case, Family, Report, cases_of, golden_dir};

const ROI_TOLERANCE: f64 = 5e-5;
pub(crate) const NORM_TOLERANCE: f64 = 1e-4;
/// Where a ReLU's input is within rounding of 0, a value of a gradient may be off by more.
const GRAD_VALUE_TOLERANCE: f64 = 5e-3;
/// Our loss of each of detectron2's, whose cascade numbers all of its stages.
pub(crate) const LOSSES: [(&str, &str); 12] = [
    ("loss_cls", "loss_classifier"),
    ("loss_box_reg", "loss_box_reg"),
    ("loss_cls_stage0", "loss_classifier"),
    ("loss_box_reg_stage0", "loss_box_reg"),
    ("loss_cls_stage1", "loss_classifier_stage1"),
    ("loss_box_reg_stage1", "loss_box_reg_stage1"),
    ("loss_cls_stage2", "loss_classifier_stage2"),
    ("loss_box_reg_stage2", "loss_box_reg_stage2"),
    ("loss_mask", "loss_mask"),
    ("loss_keypoint", "loss_keypoint"),
    ("loss_rpn_cls", "loss_objectness"),
    ("loss_rpn_loc", "loss_rpn_box_reg"),
];

/// A loss of a step times its weight, which detectron2's losses contain.
pub(crate) fn weighted(config: &Config, loaded: &Loaded, loss: &str) -> [f32; 1] {
    let weights = serde_json::to_value(&config.loss_weights).expect("JSON");
    let name = loss.strip_prefix("loss_").and_then(|name| name.split("_stage").next());
    let weight = Settings(&weights, "").f32(name.expect("the name of a loss"));
    [weight * loaded.f32(loss)[0]]
}

/// Compares a tensor that the case has whole, or every so many values of it.
pub(crate) fn thinned(
    report: &mut Report,
    case: Case<'_>,
    name: &str,
    got: &[f32],
    tolerance: f64,
) {
    if case.has(name) {
        return report.compare_within(case, name, got, tolerance);
    }
    let (stride, want) = every(case, name);
    let got: Vec<f32> = got.iter().step_by(stride).copied().collect();
    report.close_within(case.name(), name, &got, &want, tolerance);
}

/// Every how many values of a tensor the case has, and these.
pub(crate) fn every(case: Case<'_>, name: &str) -> (usize, Vec<f32>) {
    if case.has(name) {
        return (1, case.f32(name).data);
    }
    let key = |stride: usize| format!("every{stride}/{name}");
    let stride = (2..10_000).find(|stride| case.has(&key(*stride)));
    let stride = stride.unwrap_or_else(|| panic!("{}: no {name}", case.name()));
    (stride, case.f32(&key(stride)).data)
}

pub(crate) fn features(of: &'static Files) {
    let (Some(model), Some(golden)) = (Reference::open(of), Family::open(of.features)) else {
        return;
    };
    let loaded = model.observed().given;
    let e = &loaded;
    let mut report = Report::new(of.features, TOLERANCE);
    let case = golden.case("features");
    let batch = e.f32("batch");
    // The bytes of each resized and mirrored image, less the mean.
    let width = batch.len() / model.num_images() / largest_height(&model) / 3;
    for (i, &(h, w)) in model.network.iter().enumerate() {
        let name = format!("network_image{i}_bgr_u8_hwc");
        let bytes = model.inputs.case("inputs").u8(&name).data;
        let from = i * largest_height(&model) * width * 3;
        let lines = (0..h).flat_map(|y| &batch[from + 3 * y * width..][..3 * w]);
        let mean = model.config.input.mean;
        let got: Vec<u8> =
            lines.enumerate().map(|(k, v)| (v + mean[k % 3]).round() as u8).collect();
        report.exact("inputs", &name, &got, &bytes);
    }
    thinned(&mut report, case, "batch", batch, TOLERANCE);
    let keys = golden.keys();
    for (ours, theirs) in ["C", "P"].into_iter().zip(["res", "p"]) {
        let has = |level: &usize| keys.iter().any(|k| k.ends_with(&format!("/{theirs}{level}")));
        let levels = (2..=6).filter(has).collect::<Vec<_>>();
        let all = if model.config.model.backbone.has_pyramid() { 4 } else { 0 };
        let single = levels == [4] || levels == [5];
        assert!(levels.len() >= all || ours == "C" && single, "{levels:?}");
        for level in levels {
            let got = e.f32(&format!("{ours}{level}"));
            thinned(&mut report, case, &format!("{theirs}{level}"), got, TOLERANCE);
        }
    }
    report.done_case();
    report.finish();
}

/// Height of the padded batch.
fn largest_height(model: &Reference) -> usize {
    let most = model.network.iter().map(|size| size.0).max().expect("an image");
    most.next_multiple_of(model.config.input.size_divisor)
}

pub(crate) fn rpn(of: &'static Files) {
    let Some(model) = Reference::open(of) else { return };
    cases_of(of.rpn, "rpn", TOLERANCE, |report, case| {
        let KeyedStep { free, given } = model.observed();
        let e = &free;
        let n = model.num_images();
        for level in 0..model.config.num_levels() {
            for what in ["logits", "deltas"] {
                let got = e.f32(&format!("{what}_P{}", level + 2));
                thinned(report, case, &format!("{what}_l{level}"), got, TOLERANCE);
            }
        }
        thinned(report, case, "anchors", e.f32("anchors"), 0.0);
        let drawn = given.i32("rpn_sample_idx");
        for i in 0..n {
            let key = |what: &str| format!("{what}_{i}");
            let labels = e.i32("rpn_labels");
            let labels = &labels[i * labels.len() / n..(i + 1) * labels.len() / n];
            report.equal(case, &key("labels"), labels);
            let want = sampled(case, "", i);
            let got = &drawn[i * drawn.len() / n..][..want.len()];
            report.exact(case.name(), &key("sampled"), got, &want);
            let capacity = e.f32("proposal_scores").len() / n;
            let (from, count) = (i * capacity, e.i32("proposal_counts")[i] as usize);
            let boxes = &e.f32("proposals")[4 * from..4 * (from + count)];
            report.compare(case, &key("proposals"), boxes);
            let logits = case.f32(&key("proposal_logits")).data;
            let want: Vec<f32> = logits.iter().map(|logit| sigmoid(*logit)).collect();
            let scores = &e.f32("proposal_scores")[from..from + count];
            report.close(case.name(), &key("scores"), scores, &want);
        }
    });
}

pub(crate) fn roi(of: &'static Files) {
    let Some(model) = Reference::open(of) else { return };
    cases_of(of.roi, "roi", ROI_TOLERANCE, |report, case| {
        let Some(loaded) = model.recorded_step() else { return };
        candidates(report, &model, case);
        let e = &loaded;
        let f32 = |name: &str, len: usize| &e.f32(name)[..len];
        for stage in model.stages() {
            heads(report, &model, case, e, stage);
        }
        if model.config.model.backbone.is_c4() {
            let (stride, want) = every(case, "res5_out");
            let got: Vec<f32> =
                e.f32("res5").iter().step_by(stride).copied().take(want.len()).collect();
            report.close(case.name(), "res5_out", &got, &want);
        }
        if model.has_keypoints() {
            keypoints(report, case, e);
            return;
        }
        let targets = case.u8("mask_targets");
        let want: Vec<f32> = targets.data.iter().map(|v| f32::from(*v)).collect();
        report.exact(case.name(), "mask_targets", f32("mask_targets", want.len()), &want);
        // The step makes only the channel of each row's class.
        let labels = e.i32("mask_roi_labels");
        let (stride, all) = every(case, "mask_logits");
        let classes = model.classes;
        let area = targets.shape[1] * targets.shape[2];
        let logits = f32("mask_logits", want.len());
        let pair = |(i, want): (usize, &f32)| {
            let at = i * stride;
            let is_own = at % classes + 1 == labels[at / classes / area] as usize;
            is_own.then(|| (logits[at / classes], *want))
        };
        let (got, want): (Vec<f32>, Vec<f32>) = all.iter().enumerate().filter_map(pair).unzip();
        assert!(want.len() > all.len() / classes / 2, "{} of {}", want.len(), all.len());
        report.close(case.name(), "mask_logits", &got, &want);
    });
}

/// A box head's outputs; in a further stage of a cascade, its RoIs too.
fn heads(report: &mut Report, model: &Reference, case: Case<'_>, e: &Loaded, stage: Option<usize>) {
    let theirs = |what: &str| stage.map_or(what.into(), |stage| format!("{what}_stage{stage}"));
    let ours = |what: &str| match stage {
        None | Some(0) => what.to_string(),
        Some(stage) => format!("{what}_stage{stage}"),
    };
    let f32 = |name: &str, len: usize| &e.f32(&ours(name))[..len];
    let rows = case.f32(&theirs("class_logits")).shape[0];
    let shapes = case.attribute("full_shapes").as_object().expect("an object");
    let ending = format!("/{}", theirs("box_features"));
    let features = shapes.iter().find(|(name, _)| name.ends_with(&ending));
    let features = features.and_then(|(_, shape)| shape.as_array());
    let len = features.expect("a shape").iter().map(|v| v.as_u64().expect("a size") as usize);
    let got = f32("box_features", len.product());
    thinned(report, case, &theirs("box_features"), got, ROI_TOLERANCE);
    // The background is the last class there, and has no deltas.
    let width = model.classes + 1;
    let mut logits = f32("class_logits", rows * width).to_vec();
    logits.chunks_exact_mut(width).for_each(|row| row.rotate_left(1));
    let name = theirs("class_logits");
    report.compare(case, &name, &logits);
    let is_shared = model.config.model.box_head.class_agnostic;
    let (of_row, skipped) = if is_shared { (4, 0) } else { (4 * width, 4) };
    let deltas = f32("box_regression", rows * of_row).chunks_exact(of_row);
    let deltas: Vec<f32> = deltas.flat_map(|row| row[skipped..].to_vec()).collect();
    let name = theirs("box_deltas");
    report.compare(case, &name, &deltas);
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

/// The classes and objects of all candidates, and the sampled ones, which detectron2 lists with the
/// positives first.
fn candidates(report: &mut Report, model: &Reference, case: Case<'_>) {
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

/// Compares the sampled boxes of an image with the first of `got`, which are in the candidates'
/// order; returns the number of values.
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

/// The parameters as detectron2 has them, or what stands in their place in `state`.
pub(crate) fn exported(loaded: &Loaded, state: &graph::StateSet) -> BTreeMap<String, Vec<f32>> {
    let (form, dialect) = (ExportForm::Safetensors, Dialect::Detectron2);
    let bytes = export_weights(&loaded.params, state, None, form, dialect).expect("an export");
    let file = SafeTensors::deserialize(&bytes).expect("sound");
    let values = |data: &[u8]| bytemuck::pod_collect_to_vec(data);
    file.iter().map(|(name, view)| (name.to_owned(), values(view.data()))).collect()
}

/// The file of each model, loaded and exported, has the same bits, but for what no model needs.
#[test]
fn golden_d2_weights_there_and_back() {
    for of in [&FPN, &C4, &DC5, &CASCADE, &GN, &LSJ] {
        let Some(model) = Reference::open(of) else { continue };
        let loaded = model.load(&[], training_program, &model.flips);
        let ours = exported(&loaded, &loaded.state);
        let path = golden_dir().join(format!("{}.safetensors", of.weights));
        let bytes = std::fs::read(path).expect("a file");
        let file = SafeTensors::deserialize(&bytes).expect("sound");
        let names = file.iter().filter(|(name, _)| !name.ends_with(".num_batches_tracked"));
        let mut compared = 0;
        for (name, view) in names {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let theirs: Vec<f32> = bytemuck::pod_collect_to_vec(view.data());
            let ours = ours.get(name).map(|values| bits(values));
            assert_eq!(ours, Some(bits(&theirs)), "{}: {name}", of.name);
            compared += 1;
        }
        assert_eq!(compared, ours.len(), "{}: tensors", of.name);
    }
}

/// The gradient of each trained parameter under detectron2's names.
pub(crate) fn gradients(loaded: &Loaded) -> BTreeMap<String, Vec<f32>> {
    let mut state = loaded.state.clone();
    for param in loaded.params.iter().filter(|param| param.trained.is_some()) {
        let grad = loaded.f32(&format!("grad/{}", param.name));
        state.get_mut(&param.name).expect("a parameter").as_f32_mut().copy_from_slice(grad);
    }
    exported(loaded, &state)
}

pub(crate) fn norm(values: &[f32]) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}

/// The first step with the recorded samples: every gradient.
pub(crate) fn grads(of: &'static Files) {
    let (Some(model), Some(golden)) = (Reference::open(of), Family::open(of.grads)) else {
        return;
    };
    let Some(loaded) = model.recorded_step() else { return };
    let mut report = Report::new(of.grads, NORM_TOLERANCE);
    let (case, gradients) = (golden.case("grads"), gradients(&loaded));
    let keys = golden.keys();
    let names = keys.iter().filter_map(|key| key.strip_prefix("grads/norm/"));
    let mut compared = 0;
    for name in names {
        let got = &gradients[name];
        if is_zero(name, got) {
            compared += 1;
            continue;
        }
        let key = format!("norm/{name}");
        report.compare(case, &key, &[norm(got)]);
        let full = format!("full/{name}");
        let (stride, want) =
            if case.has(&full) { (1, case.f32(&full).data) } else { every(case, name) };
        let got: Vec<f32> = got.iter().step_by(stride).copied().collect();
        report.close_within(case.name(), name, &got, &want, GRAD_VALUE_TOLERANCE);
        compared += 1;
    }
    let trained = loaded.params.iter().filter(|param| param.trained.is_some()).count();
    report.exact("grads", "number of gradients", &[compared], &[trained]);
    report.done_case();
    report.finish();
}
