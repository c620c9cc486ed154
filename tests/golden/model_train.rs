//! The first training step of each recorded model: all tensors up to the proposals, and the
//! gradients.

use kernels::isa::{GemmSettings, has_bf16};
use kernels::losses::sigmoid;

use crate::model_configs::{PLAIN, Recorded, V2, trained};
use crate::models::{Loaded, Model, norm};
use crate::samples::{KeyedStep, sampled};
use crate::support::{Case, Report, cases_of};

/// From the README of the golden data.
const TOLERANCE: f64 = 2e-5;
/// Relative tolerance of gradient norms, from the README of the golden data.
pub(crate) const GRAD_NORM_TOLERANCE: f64 = 1e-4;
/// Tolerance after consecutive bf16 GEMMs, relative to the largest value.
const BF16_TOLERANCE: f64 = 2e-2;
/// Step of the finite difference of the losses along the gradient.
const STEP: f64 = 5e-3;

#[test]
fn model_features_match_golden() {
    trained().for_each(|of| features(of, TOLERANCE, |model| model.observed().given));
}

/// Compares features with bf16 GEMMs, whose operands have 8-bit significands.
#[test]
fn bf16_model_features_match_golden() {
    if !has_bf16() {
        return println!("SKIPPED: this processor does not support bf16");
    }
    for (of, winograd) in [(&PLAIN, false), (&PLAIN, true), (&V2, false), (&V2, true)] {
        features(of, BF16_TOLERANCE, |model| {
            let exact = model.observed().given;
            let mut rounded = model.keyed().taking(GemmSettings { bf16: true, winograd });
            rounded.run(&model.config);
            let same = rounded.given.f32("P2") == exact.f32("P2");
            assert!(!same, "bf16 GEMMs are bit-identical to f32");
            rounded.given
        });
    }
}

fn features(of: &'static Recorded, tolerance: f64, run: impl Fn(&Model) -> Loaded) {
    let Some(model) = Model::open(of) else { return };
    cases_of(&of.family("features"), "features", tolerance, |report, case| {
        let loaded = run(&model);
        let batch = loaded.f32("batch");
        if of.is_detectron2() {
            network_images(report, &model, batch);
        }
        let has_batch = of.is_torchvision() || of.is_detectron2();
        let of_batch = if has_batch { case } else { model.inputs.case("inputs") };
        thinned(report, of_batch, "batch", batch, tolerance);
        let theirs = if of.is_detectron2() { ["res", "p"] } else { ["C", "P"] };
        let mut compared = 0;
        for (ours, theirs) in ["C", "P"].into_iter().zip(theirs) {
            for level in (2..=6).filter(|level| case.has_some(&format!("{theirs}{level}"))) {
                let got = loaded.f32(&format!("{ours}{level}"));
                thinned(report, case, &format!("{theirs}{level}"), got, tolerance);
                compared += 1;
            }
        }
        assert_eq!(compared, of.maps, "{}: maps", of.name);
    });
}

/// Compares the bytes of each resized and flipped image with the batch plus the mean.
fn network_images(report: &mut Report, model: &Model, batch: &[f32]) {
    let highest = model.network.iter().map(|size| size.0).max().expect("an image");
    let height = highest.next_multiple_of(model.config.input.size_divisor);
    let width = batch.len() / model.num_images() / height / 3;
    let mean = model.config.input.mean;
    for (i, &(h, w)) in model.network.iter().enumerate() {
        let from = i * height * width * 3;
        let lines = (0..h).flat_map(|y| &batch[from + 3 * y * width..][..3 * w]);
        let got: Vec<u8> =
            lines.enumerate().map(|(k, v)| (v + mean[k % 3]).round() as u8).collect();
        report.equal(model.inputs.case("inputs"), &format!("network_image{i}_bgr_u8_hwc"), &got);
    }
}

/// Compares a tensor of which all values, or every n-th value, were recorded.
pub(crate) fn thinned(
    report: &mut Report,
    case: Case<'_>,
    name: &str,
    got: &[f32],
    tolerance: f64,
) {
    let (stride, want) = case.every(name);
    let got: Vec<f32> = got.iter().step_by(stride).copied().collect();
    report.close_within(case.name(), name, &got, &want, tolerance);
}

#[test]
fn model_rpn_matches_golden() {
    trained().for_each(rpn);
}

/// Compares maps, anchors, labels, samples and proposals.
fn rpn(of: &'static Recorded) {
    let Some(model) = Model::open(of) else { return };
    cases_of(&of.family("rpn"), "rpn", TOLERANCE, |report, case| {
        let KeyedStep { free: e, given } = model.observed();
        let n = model.num_images();
        for level in 0..model.config.num_levels() {
            for what in ["logits", "deltas"] {
                let ours = format!("{what}_P{}", level + 2);
                let theirs = format!("{what}_l{level}");
                let name = if of.is_detectron2() { &theirs } else { &ours };
                thinned(report, case, name, e.f32(&ours), TOLERANCE);
            }
        }
        let of_anchors = if of.is_detectron2() { 0.0 } else { TOLERANCE };
        thinned(report, case, "anchors", e.f32("anchors"), of_anchors);
        let (labels, drawn) = (e.i32("rpn_labels"), given.i32("rpn_sample_idx"));
        let capacity = e.f32("proposal_scores").len() / n;
        for i in 0..n {
            let key = |what: &str| format!("{what}_{i}");
            let want: Vec<i32> = match of.name == PLAIN.name {
                true => case.f32(&key("labels")).data.iter().map(|v| *v as i32).collect(),
                false => case.i32(&key("labels")).data,
            };
            let own = &labels[i * labels.len() / n..(i + 1) * labels.len() / n];
            report.exact(case.name(), &key("labels"), own, &want);
            let mut want = sampled(case, "", i);
            let mut got = drawn[i * drawn.len() / n..(i + 1) * drawn.len() / n].to_vec();
            got.retain(|idx| *idx >= 0);
            if !of.is_detectron2() {
                want.sort_unstable();
                got.sort_unstable();
            }
            report.exact(case.name(), &key("sampled"), &got, &want);
            let (from, count) = (i * capacity, e.i32("proposal_counts")[i] as usize);
            let boxes = &e.f32("proposals")[4 * from..4 * (from + count)];
            report.compare(case, &key("proposals"), boxes);
            let want: Vec<f32> = if of.is_detectron2() {
                let logits = case.f32(&key("proposal_logits")).data;
                logits.iter().map(|logit| sigmoid(*logit)).collect()
            } else {
                case.f32(&key("scores")).data
            };
            let scores = &e.f32("proposal_scores")[from..from + count];
            report.close(case.name(), &key("scores"), scores, &want);
        }
    });
}

#[test]
fn model_gradients_match_golden() {
    trained().for_each(grads);
}

/// Compares every gradient of the first step, with the recorded samples.
fn grads(of: &'static Recorded) {
    let (Some(model), Some(golden)) = (Model::open(of), of.open("grads")) else { return };
    let Some(loaded) = model.recorded_step().map(Loaded::run) else { return };
    let mut report = Report::new(&of.family("grads"), GRAD_NORM_TOLERANCE);
    let (case, gradients) = (golden.case("grads"), model.gradients(&loaded));
    let tolerances = [GRAD_NORM_TOLERANCE, of.tolerances.grad_values];
    let mut compared = 0;
    for name in case.tensors().filter_map(|key| key.strip_prefix("norm/").map(str::to_owned)) {
        if !is_zero(&name, &gradients[&name]) {
            recorded_gradient(&mut report, case, &name, &gradients[&name], tolerances);
        }
        compared += 1;
    }
    report.exact("grads", "number of gradients", &[compared], &[loaded.trained().count()]);
    report.done_case();
    report.finish();
}

/// True for a gradient that is 0 up to rounding, because a constant added to all inputs of a
/// softmax has no effect.
pub(crate) fn is_zero(name: &str, gradient: &[f32]) -> bool {
    let is_blind = name.ends_with("score_lowres.bias");
    assert!(!is_blind || norm(gradient) < 1e-6, "{name}: {gradient:?}");
    is_blind
}

/// Compares the norm and the recorded values of a parameter's gradient in the reference's layout;
/// the tolerances are for the norm and for the values.
pub(crate) fn recorded_gradient(
    report: &mut Report,
    case: Case<'_>,
    name: &str,
    got: &[f32],
    [of_norm, of_values]: [f64; 2],
) {
    report.compare_within(case, &format!("norm/{name}"), &[norm(got)], of_norm);
    thinned(report, case, name, got, of_values);
}

/// In a model with an additional RPN convolution, only the last two convolutions are computed from
/// gathered patches; the change in the losses along each gradient is its squared norm times the
/// step.
#[test]
fn extra_rpn_conv_gradients_match_finite_differences() {
    let Some(model) = Model::open(&V2) else { return };
    let model = model.with_another_rpn_conv();
    let Some(mut loaded) = model.recorded_step() else { return };
    let start = loaded.state.clone();
    for name in ["rpn.head.conv.0.0.weight", "backbone.fpn.layer_blocks.0.0.weight"] {
        loaded.state.clone_from(&start);
        loaded.executor.run(&mut loaded.state);
        let grad = loaded.f32(&format!("grad/{name}")).to_vec();
        let square: f64 = grad.iter().map(|g| f64::from(*g).powi(2)).sum();
        let mut loss = |share: f64| -> f64 {
            loaded.state.clone_from(&start);
            let weights = loaded.state.get_mut(name).expect("a parameter").as_f32_mut();
            weights.iter_mut().zip(&grad).for_each(|(w, g)| *w += (share / square) as f32 * g);
            loaded.executor.run(&mut loaded.state);
            let losses = loaded.losses.iter().map(|loss| loaded.f32(loss));
            losses.map(|loss| f64::from(loss[0])).sum()
        };
        let change = (loss(STEP) - loss(-STEP)) / (2.0 * STEP);
        assert!((change - 1.0).abs() < 0.02, "{name}: {change}");
    }
}
