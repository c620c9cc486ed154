//! Losses and updates of the recorded models, and `d2_empty`: a step with an image without objects.

use engine::config::Config;
use engine::weights::Dialect;
use kernels::ops::control_step::Control;

use crate::model_configs::{C4, CASCADE, DC5, FPN, GN, LSJ, Recorded, number, numbers, trained};
use crate::model_roi::sampled_boxes;
use crate::model_train::{GRAD_NORM_TOLERANCE, is_zero};
use crate::models::{Loaded, Model, norm};
use crate::samples::{KeyedStep, sampled};
use crate::support::{Case, Report, each_case};

/// onegraph's names of detectron2's losses, where the names differ; detectron2 also numbers the
/// first stage of a cascade.
const LOSSES: [(&str, &str); 9] = [
    ("loss_cls", "loss_classifier"),
    ("loss_cls_stage0", "loss_classifier"),
    ("loss_box_reg_stage0", "loss_box_reg"),
    ("loss_cls_stage1", "loss_classifier_stage1"),
    ("loss_box_reg_stage1", "loss_box_reg_stage1"),
    ("loss_cls_stage2", "loss_classifier_stage2"),
    ("loss_box_reg_stage2", "loss_box_reg_stage2"),
    ("loss_rpn_cls", "loss_objectness"),
    ("loss_rpn_loc", "loss_rpn_box_reg"),
];
/// Maximum number of tries of detectron2's steps: first with the recorded weights, then with
/// weights that differ by rounding errors.
const NUDGES: u32 = 4;

/// A loss by the reference's name, times its loss weight, since detectron2 records weighted losses.
fn weighted(config: &Config, loaded: &Loaded, theirs: &str) -> [f32; 1] {
    let ours = LOSSES.iter().find(|(name, _)| *name == theirs).map_or(theirs, |(_, ours)| ours);
    let weights = serde_json::to_value(&config.loss_weights).expect("JSON");
    let name = ours.strip_prefix("loss_").and_then(|name| name.split("_stage").next());
    let weight = number(&weights, name.expect("the name of a loss")) as f32;
    [weight * loaded.f32(ours)[0]]
}

#[test]
fn model_losses_and_steps_match_golden() {
    trained().for_each(inputs_losses);
}

/// Compares the losses of the first step with recorded samples, then the recorded steps.
fn inputs_losses(of: &'static Recorded) {
    let Some(model) = Model::open(of) else { return };
    let Some(loaded) = model.recorded_step().map(Loaded::run) else { return };
    let mut report = Report::new(&of.family("inputs_losses"), of.tolerances.losses);
    let losses = model.inputs.case("losses");
    for theirs in losses.tensors() {
        report.compare(losses, &theirs, &weighted(&model.config, &loaded, &theirs));
    }
    report.exact("losses", "count", &[losses.tensors().count()], &[loaded.losses.len()]);
    report.done_case();
    let Some(family) = of.open("steps") else { return };
    steps(&mut report, &model, family.case(of.steps));
    report.done_case();
    report.finish();
}

/// Compares the steps with the reference's optimizer, and the norms of the weights after them. Near
/// a discontinuity of a derivative, rounding can change an update: so detectron2's steps are tried
/// from the recorded weights and from weights that differ by up to 2e-7, and one of these runs must
/// agree.
fn steps(report: &mut Report, model: &Model, case: Case<'_>) {
    let run = |seed: u32| {
        let mut keyed = model.keyed();
        nudge(&mut keyed.given, seed);
        let steps = follow(model, case, &mut keyed);
        (keyed, steps)
    };
    let is_close = |steps: &[Compared]| {
        steps.iter().all(|of| (of.got - of.want).abs() <= of.tolerance * of.want.abs())
    };
    let nudges = if model.of.is_detectron2() { NUDGES } else { 1 };
    let found = (0..nudges).map(run).find(|(_, steps)| is_close(steps));
    let (keyed, steps) = found.unwrap_or_else(|| run(0));
    for of in steps {
        report.close_within(case.name(), &of.what, &[of.got], &[of.want], of.tolerance);
    }
    if model.of.is_torchvision() {
        return;
    }
    let weights = model.exported(&keyed.given, &keyed.given.state);
    let norms = case.f64("weight_norms_after_f64_f64").data;
    for (name, want) in case.texts("parameters").into_iter().zip(&norms) {
        if !is_zero(name, &weights[name]) {
            report.close(
                case.name(),
                &format!("norm of {name}"),
                &[norm(&weights[name])],
                &[*want],
            );
        }
    }
}

/// A compared value of a step.
struct Compared {
    what: String,
    got: f64,
    want: f64,
    tolerance: f64,
}

/// The losses before each step, and the learning rates. From the third step on, torchvision's
/// losses may differ by three times the drift of the reference's own f32 run; detectron2's losses
/// are compared only for steps in which the reference's own f32 run follows its f64 run (README).
fn follow(model: &Model, case: Case<'_>, keyed: &mut KeyedStep) -> Vec<Compared> {
    let (single, double) = (case.f64("losses_f32_f64").data, case.f64("losses_f64_f64").data);
    let columns = case.texts("columns");
    let mut deviations = vec![];
    let (factors, rates) = match model.of.dialect {
        Dialect::Detectron2 => {
            deviations = numbers(case.attribute("f32_relative_deviation_per_step"));
            (vec![1.0], numbers(case.attribute("lr_per_step")))
        }
        Dialect::Benchmark => {
            let of_bias = case.float("bias_lr_factor") as f32;
            (vec![1.0, of_bias], case.f64("lr_weight_bias_f64").data)
        }
        _ => (vec![], vec![]),
    };
    let mut drift = 0.0f64;
    let mut compared = vec![];
    for (step, want) in double.chunks_exact(columns.len()).enumerate() {
        keyed.run(&model.config);
        if deviations.iter().take(step + 1).any(|deviation| *deviation >= 1e-5) {
            continue;
        }
        let single = &single[step * columns.len()..];
        for ((name, &want), single) in columns.iter().zip(want).zip(single) {
            drift = drift.max((single - want).abs() / want.abs());
            let tolerance = match model.of.is_torchvision() && step >= 2 {
                true => (3.0 * drift).max(1e-3),
                false => model.of.tolerances.losses,
            };
            let [got] = weighted(&model.config, &keyed.given, name);
            let what = format!("step {}: {name}", step + 1);
            compared.push(Compared { what, got: got.into(), want, tolerance });
        }
        let control = Control::read(keyed.given.f32("control"));
        for (factor, &want) in factors.iter().zip(&rates[step * factors.len()..]) {
            let (what, got) = (format!("rate {}", step + 1), control.rate(*factor).into());
            compared.push(Compared { what, got, want, tolerance: model.of.tolerances.losses });
        }
    }
    assert!(!compared.is_empty(), "{deviations:?}");
    compared
}

/// Multiplies each trained weight by 1 plus or minus up to 2e-7, except for seed 0.
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

/// A step with an image without objects: the sampled sets, losses and gradients.
#[test]
fn detectron2_image_without_objects_matches_golden() {
    each_case("d2_empty", 2e-5, |report, case| {
        let mut due = trained().filter(|of| of.name != DC5.name);
        let Some(of) = due.find(|of| of.name == case.name()) else { return report.not_due() };
        let Some(mut model) = Model::open(of) else { return report.not_due() };
        model.emptied = vec![1];
        let loaded = model.observed().given;
        let drawn = loaded.i32("rpn_sample_idx");
        let (rois, mut at) = (loaded.f32("rois"), 0);
        for i in 0..model.num_images() {
            let want = sampled(case, "rpn_", i);
            let got = &drawn[i * drawn.len() / model.num_images()..][..want.len()];
            report.exact(case.name(), &format!("rpn_sampled_{i}"), got, &want);
            at += sampled_boxes(report, case, "roi_", i, &rois[at..]);
        }
        for theirs in case.tensors().filter(|name| name.starts_with("loss_")) {
            report.compare(case, &theirs, &weighted(&model.config, &loaded, &theirs));
        }
        let (norms, gradients) = (case.f64("grad_norms_f64").data, model.gradients(&loaded));
        for (name, want) in case.texts("parameters").into_iter().zip(norms) {
            let gradient = &gradients[name];
            if !is_zero(name, gradient) {
                let (got, tolerance) = ([norm(gradient)], GRAD_NORM_TOLERANCE);
                report.close_within(case.name(), name, &got, &[want], tolerance);
            }
        }
    });
}

/// Loading and exporting each model's file gives a bit-identical file, except for unused tensors.
#[test]
fn detectron2_weights_round_trip_matches_golden() {
    for of in [&FPN, &C4, &DC5, &CASCADE, &GN, &LSJ] {
        let (Some(model), Some(file)) = (Model::open(of), of.open("weights")) else { continue };
        let loaded = model.training(&[]);
        let ours = model.exported(&loaded, &loaded.state);
        let mut compared = 0;
        for name in file.keys().iter().filter(|name| !name.ends_with(".num_batches_tracked")) {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            let theirs = bits(&file.tensor::<f32>(name).data);
            let ours = ours.get(name).map(|values| bits(values));
            assert_eq!(ours, Some(theirs), "{}: {name}", of.name);
            compared += 1;
        }
        assert_eq!(compared, ours.len(), "{}: tensors", of.name);
    }
}
