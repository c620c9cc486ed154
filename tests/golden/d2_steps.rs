//! Families d2_*_inputs_losses and `d2_empty`: losses and updates of narrow models of detectron2.

use kernels::ops::control_step::Control;

use crate::d2_keypoints::is_zero;
use crate::d2_model::{LOSSES, NORM_TOLERANCE, exported, gradients, norm, sampled_boxes, weighted};
use crate::model_setup::{Loaded, numbers};
use crate::reference::{DC5, Files, Reference, TOLERANCE, TRAINED};
use crate::samples::{KeyedStep, sampled};
use crate::support::{Case, Family, Report};

/// The losses of the first step with recorded samples, then five steps.
pub(crate) fn inputs_losses(of: &'static Files) {
    let Some(model) = Reference::open(of) else { return };
    let Some(loaded) = model.recorded_step() else { return };
    let mut report = Report::new(of.inputs_losses, TOLERANCE);
    let losses = model.inputs.case("losses");
    for (theirs, ours) in LOSSES.iter().filter(|(theirs, _)| losses.has(theirs)) {
        let got = weighted(&model.config, &loaded, ours);
        report.close("losses", theirs, &got, &losses.f32(theirs).data);
    }
    report.done_case();
    sgd5(&mut report, &model);
    report.finish();
}

/// Five steps by detectron2's optimizer, and the norms of the weights after them. Where a
/// derivative jumps within rounding of where it is taken, an update may take the other side: the
/// steps are those from the recorded weights, or from weights within 2e-7 of each.
fn sgd5(report: &mut Report, model: &Reference) {
    let sgd = model.inputs.case("sgd5");
    let run = |seed: u32| {
        let mut keyed = model.keyed();
        nudge(&mut keyed.given, seed);
        let steps = follow(model, sgd, &mut keyed);
        (keyed, steps)
    };
    let is_close = |steps: &Steps| {
        steps.iter().all(|(_, got, want)| (got - want).abs() <= TOLERANCE * want.abs())
    };
    let (keyed, steps) =
        (0..NUDGES).map(run).find(|(_, steps)| is_close(steps)).unwrap_or_else(|| run(0));
    for (what, got, want) in steps {
        report.close("sgd5", &what, &[got], &[want]);
    }
    let weights = exported(&keyed.given, &keyed.given.state);
    let norms = sgd.f64("weight_norms_after_f64_f64").data;
    for (name, want) in sgd.texts("parameters").into_iter().zip(&norms) {
        if is_zero(name, &weights[name]) {
            continue;
        }
        report.close("sgd5", &format!("norm of {name}"), &[norm(&weights[name])], &[*want]);
    }
    report.done_case();
}

/// Runs from weights that differ within rounding, the recorded ones first.
const NUDGES: u32 = 4;
/// Name, value and recorded value of each comparison.
type Steps = Vec<(String, f64, f64)>;

/// The losses before each step, and its rate, while the reference's own f32 follows (README).
fn follow(model: &Reference, sgd: Case<'_>, keyed: &mut KeyedStep) -> Steps {
    let (want, rates) = (sgd.f64("losses_f64_f64"), numbers(sgd.attribute("lr_per_step")));
    let deviations = numbers(sgd.attribute("f32_relative_deviation_per_step"));
    let columns = sgd.texts("columns");
    let mut steps = vec![];
    for (step, rate) in rates.iter().enumerate() {
        keyed.run(&model.config);
        if deviations[..=step].iter().any(|deviation| *deviation >= 1e-5) {
            continue;
        }
        for (i, name) in columns.iter().enumerate() {
            let ours = LOSSES.iter().find(|(theirs, _)| name == theirs).expect("a loss").1;
            let [got] = weighted(&model.config, &keyed.given, ours);
            let want = want.data[step * columns.len() + i];
            steps.push((format!("step {}: {name}", step + 1), got.into(), want));
        }
        let control = keyed.given.f32("control");
        steps.push((format!("rate {}", step + 1), Control::read(control).rate(1.0).into(), *rate));
    }
    assert!(!steps.is_empty(), "{deviations:?}");
    steps
}

/// Multiplies each trained weight by 1 plus or minus up to 2e-7, but for seed 0.
fn nudge(loaded: &mut Loaded, seed: u32) {
    if seed == 0 {
        return;
    }
    let mut word = (seed + 2).wrapping_mul(747_796_405).wrapping_add(1);
    for param in loaded.params.iter().filter(|param| param.trained.is_some()) {
        for v in loaded.state.get_mut(&param.name).expect("a parameter").as_f32_mut() {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *v *= 1.0 + 2e-7 * ((word >> 8) as f32 / 8_388_608.0 - 1.0);
        }
    }
}

/// A step in which an image has no objects: the sampled sets, losses and gradients.
#[test]
fn golden_d2_empty() {
    let Some(golden) = Family::open("d2_empty") else { return };
    let mut report = Report::new("d2_empty", TOLERANCE);
    for case in golden.cases() {
        let mut due = TRAINED.into_iter().filter(|of| of.name != DC5.name);
        let Some(of) = due.find(|of| of.name == case.name()) else {
            report.not_due();
            continue;
        };
        let Some(mut model) = Reference::open(of) else { continue };
        model.emptied = vec![1];
        let loaded = model.observed().given;
        let drawn = loaded.i32("rpn_sample_idx");
        let (rois, mut at) = (loaded.f32("rois"), 0);
        for i in 0..model.num_images() {
            let want = sampled(case, "rpn_", i);
            let got = &drawn[i * drawn.len() / model.num_images()..][..want.len()];
            report.exact(case.name(), &format!("rpn_sampled_{i}"), got, &want);
            at += sampled_boxes(&mut report, case, "roi_", i, &rois[at..]);
        }
        for (theirs, ours) in LOSSES.iter().filter(|(theirs, _)| case.has(theirs)) {
            let got = weighted(&model.config, &loaded, ours);
            report.compare(case, theirs, &got);
        }
        let (norms, gradients) = (case.f64("grad_norms_f64").data, gradients(&loaded));
        for (name, want) in case.texts("parameters").into_iter().zip(norms) {
            if is_zero(name, &gradients[name]) {
                continue;
            }
            let got = norm(&gradients[name]);
            report.close_within(case.name(), name, &[got], &[want], NORM_TOLERANCE);
        }
        report.done_case();
    }
    report.finish();
}
