//! Families mlperf_model_*: a narrow Mask R-CNN by the rules of the MLPerf reference.

use std::collections::BTreeMap;

use configs::Config;
use engine::model::detection_program;
use serde_json::Value;

use crate::d2_model::norm;
use crate::model_eval::masks;
use crate::model_setup::{Sizes, check_sizes, optimizer_of, pairs, stated, usizes};
use crate::model_train::{gradient, rpn_outputs, tolerance};
use crate::onnx_files;
use crate::recorded::Settings;
use crate::reference::{MLPERF, Reference};
use crate::support::{Case, Family, Report, cases_of, golden_dir, need};

/// README of the golden data; where a ReLU's input is within rounding of 0, a value may be off by
/// more.
const GRAD_TOLERANCE: f64 = 1e-4;
const GRAD_VALUE_TOLERANCE: f64 = 5e-3;

/// The reference's name of each parameter.
fn names() -> Option<BTreeMap<String, String>> {
    let map = std::fs::read(need(golden_dir().join("mlperf_name_map.json"))?).expect("a file");
    let map: Value = serde_json::from_slice(&map).expect("JSON");
    let pairs = map["map"].as_object().expect("a map").iter();
    Some(
        pairs
            .map(|(theirs, ours)| (ours.as_str().expect("a name").into(), theirs.clone()))
            .collect(),
    )
}

/// The metadata: the config, the classes, the sizes of the images in the file and in the
/// network, and which of them are mirrored.
pub(crate) fn settings(meta: Case<'_>, sgd: Case<'_>) -> (Config, usize, Sizes, Sizes, Vec<i32>) {
    let swap = |(width, height)| (height, width);
    let images: Vec<_> = pairs(meta.attribute("raw_wh")).into_iter().map(swap).collect();
    let s = Settings(meta.attributes(), "");
    let config = config(s, Settings(sgd.attributes(), ""), images.len());
    let network = pairs(meta.attribute("image_sizes_hw"));
    check_sizes(&config, s, &images, &network);
    let flips = usizes(meta.attribute("flip")).iter().map(|v| *v as i32).collect();
    (config, s.usize("classes") - 1, images, network, flips)
}

/// The preset's conventions with every value of the metadata.
fn config(s: Settings<'_>, sgd: Settings<'_>, images: usize) -> Config {
    let mut c = Config::load("mlperf_r50", &[]).expect("the preset loads");
    stated(&mut c, s, images);
    optimizer_of(&mut c, sgd);
    s.is("frozen_bn_eps", Value::Null);
    c.model.backbone.stride_in_1x1 = s.flag("stride_in_1x1");
    c.input.size_divisor = s.usize("size_divisible");
    c.input.mean = s.array("pixel_mean_bgr");
    c.input.std = s.array("pixel_std");
    s.agree(&["sizes", "anchor.sizes"]);
    c.model.anchors.ratios = s.f32s("anchor.ratios");
    s.is("anchor.strides", c.level_strides());
    s.is("anchor.straddle_thresh", 0);
    let rpn = &mut c.model.rpn;
    let counts = |name: &str| s.array::<2>(name).map(|n| n as usize);
    [rpn.pre_nms_top_n_train, rpn.pre_nms_top_n_test] = counts("rpn.pre_nms_per_level");
    let of_level = counts("rpn.post_nms_per_level").map(Some);
    [rpn.post_nms_top_n_level_train, rpn.post_nms_top_n_level_test] = of_level;
    rpn.post_nms_top_n_train = s.usize("rpn.fpn_post_nms_train_per_batch");
    rpn.post_nms_top_n_test = s.usize("rpn.fpn_post_nms_test_per_image");
    rpn.min_size = s.f32("rpn.min_size");
    rpn.beta = s.f32("rpn.beta");
    c.model.box_head.beta = s.f32("roi.beta");
    c.model.box_head.pooled = s.usize("roi.box_pool.0");
    c.model.mask_head.pooled = s.usize("roi.mask_pool.0");
    c.model.roi.sampling_ratio = s.usize("roi.box_pool.1");
    s.agree(&["roi.box_pool.1", "roi.mask_pool.1"]);
    let side = 2 * c.model.mask_head.pooled;
    assert_eq!(s.usize("roi.mask_resolution"), side, "roi.mask_resolution of roi.mask_pool");
    // The reference's deconvolution has as many outputs as the last of the convolutions.
    c.model.mask_head.deconv_channels = *c.model.mask_head.channels.last().expect("a convolution");
    let (base, steps) = (sgd.float("base_lr"), sgd.usize("warmup.1"));
    sgd.is("warmup.0", "mlperf_linear");
    c.solver.learning_rate = base;
    c.solver.bias_lr_factor = sgd.float("bias_lr_factor");
    c.solver.bias_weight_decay = Some(sgd.float("bias_weight_decay"));
    c.solver.gamma = sgd.float("gamma");
    c.solver.warmup_steps = steps as u64;
    c.solver.warmup_factor = 1.0 - steps as f64 * sgd.float("warmup.2") / base;
    c.solver.milestones = sgd.usizes("steps").iter().map(|m| *m as u64).collect();
    c
}

#[test]
fn golden_mlperf_model_features() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    cases_of(MLPERF.features, "features", 2e-5, |report, case| {
        let loaded = model.observed().given;
        let batch = model.inputs.case("inputs").f32("batch");
        let got = loaded.f32("batch");
        report.close("inputs", "batch", got, &batch.data);
        for name in ["C3", "C4", "C5", "P2", "P3", "P4", "P5", "P6"] {
            let got = loaded.f32(name);
            report.compare(case, name, got);
        }
    });
}

#[test]
fn golden_mlperf_model_rpn() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    cases_of(MLPERF.rpn, "rpn", 2e-5, |report, case| {
        let loaded = model.observed().given;
        let n = model.num_images();
        let labels = loaded.i32("rpn_labels");
        for (i, got) in labels.chunks_exact(labels.len() / n).enumerate() {
            let name = format!("labels_{i}");
            report.equal(case, &name, got);
        }
        rpn_outputs(report, case, &loaded, n);
    });
}

#[test]
fn golden_mlperf_model_roi() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    cases_of(MLPERF.roi, "roi", 5e-5, |report, case| {
        let loaded = model.observed().given;
        let e = &loaded;
        let rois: Vec<f32> = (0..model.num_images())
            .flat_map(|i| case.f32(&format!("sampled_boxes_{i}")).data)
            .collect();
        let labels: Vec<i32> = (0..model.num_images())
            .flat_map(|i| case.i32(&format!("sampled_labels_{i}")).data)
            .collect();
        let count = e.i32("num_rois")[0] as usize;
        report.close(case.name(), "rois", &e.f32("rois")[..4 * count], &rois);
        report.exact(case.name(), "labels", &e.i32("roi_labels")[..count], &labels);
        for name in ["box_features", "class_logits", "box_regression"] {
            let want = case.f32(name).data;
            let got = &e.f32(name)[..want.len()];
            report.close_within(case.name(), name, got, &want, tolerance(case, name).max(5e-5));
        }
        let targets: Vec<f32> =
            case.u8("mask_targets").data.iter().map(|v| f32::from(*v)).collect();
        let got = &e.f32("mask_targets")[..targets.len()];
        report.exact(case.name(), "mask_targets", got, &targets);
        // The step makes only the channel of each row's class.
        let all = case.f32("mask_logits");
        let labels = e.i32("mask_roi_labels");
        let want = all.own_channel(&labels[..all.shape[0]]).data;
        let got = &e.f32("mask_logits")[..want.len()];
        report.close(case.name(), "mask_logits", got, &want);
    });
}

/// Step 1 with the recorded samples: every gradient.
#[test]
fn golden_mlperf_model_grads() {
    let (Some(model), Some(golden)) = (Reference::open(&MLPERF), Family::open(MLPERF.grads)) else {
        return;
    };
    let (Some(loaded), Some(names)) = (model.recorded_step(), names()) else { return };
    let mut report = Report::new(MLPERF.grads, GRAD_TOLERANCE);
    let trained: Vec<_> = loaded.params.iter().filter(|p| p.trained.is_some()).collect();
    for &param in &trained {
        let theirs = &names[&param.name];
        gradient(&mut report, &golden, &loaded, param, theirs, GRAD_VALUE_TOLERANCE);
    }
    let norms = golden.keys().iter().filter(|key| key.starts_with("grads/norm/")).count();
    report.exact("grads", "number of gradients", &[trained.len()], &[norms]);
    report.done_case();
    report.finish();
}

/// The losses of step 1 with recorded samples, then five steps by the reference's optimizer, with
/// the rate of each, and the norms of the weights after them.
#[test]
fn golden_mlperf_model_inputs_losses() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    let (Some(loaded), Some(names)) = (model.recorded_step(), names()) else { return };
    let mut report = Report::new(MLPERF.inputs_losses, 2e-5);
    let losses = model.inputs.case("losses");
    for name in &loaded.losses {
        let got = loaded.f32(name);
        report.close("losses", name, got, &losses.f32(name).data);
    }
    report.done_case();
    let sgd = model.inputs.case("sgd5");
    let (want, rates) = (sgd.f64("losses_f64_f64"), sgd.f64("lr_weight_bias_f64").data);
    let columns = sgd.texts("columns");
    let factors = [1.0, sgd.float("bias_lr_factor") as f32];
    let mut keyed = model.keyed();
    for step in 0..want.shape[0] {
        keyed.run(&model.config);
        let loaded = &keyed.given;
        for (i, name) in columns.iter().enumerate() {
            let want = want.data[step * columns.len() + i];
            let got = loaded.f32(name);
            let label = format!("step {} {name}", step + 1);
            report.close("sgd5", &label, got, &[want]);
        }
        let control = loaded.f32("control");
        let control = kernels::ops::control_step::Control::read(control);
        let got = factors.map(|factor| control.rate(factor));
        report.close("sgd5", "rates", &got, &rates[2 * step..2 * step + 2]);
    }
    let norms = sgd.f64("weight_norms_after_f64_f64").data;
    for (name, want) in sgd.texts("parameters").into_iter().zip(&norms) {
        let ours = names.iter().find(|(_, theirs)| *theirs == name).expect("mapped").0;
        let weight = keyed.given.state.get(ours).expect("a parameter").as_f32();
        report.close("sgd5", &format!("norm of {name}"), &[norm(weight)], &[*want]);
    }
    report.done_case();
    report.finish();
}

/// Its ONNX file: inclusive boxes, blue first, resized in bytes.
#[test]
fn onnx_of_mlperf() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    onnx_files::agrees(
        "mlperf_model",
        &model.config,
        &model.load(&[], detection_program, &model.flips),
    );
}

#[test]
fn golden_mlperf_model_eval() {
    let Some(model) = Reference::open(&MLPERF) else { return };
    cases_of(MLPERF.eval, "eval", 5e-5, |report, case| {
        let mut loaded = model.load(&[], detection_program, &model.flips);
        loaded.executor.run(&mut loaded.state);
        let e = &loaded;
        let capacity = e.f32("proposal_scores").len() / model.num_images();
        let area = (2 * model.config.model.mask_head.pooled).pow(2);
        let mut at = 0;
        for i in 0..model.num_images() {
            let key = |what: &str| format!("{what}_{i}");
            let count = e.i32("proposal_counts")[i] as usize;
            let proposals = &e.f32("proposals")[4 * i * capacity..][..4 * count];
            report.compare(case, &key("proposals"), proposals);
            let (labels, scores) = (case.i32(&key("labels")).data, case.f32(&key("scores")).data);
            let n = labels.len();
            report.exact(case.name(), &key("counts"), &[e.i32("det_counts")[i]], &[n as i32]);
            // The reference lists class by class, ours are best first.
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let pick = |values: &[f32], width: usize| -> Vec<f32> {
                order.iter().flat_map(|&d| values[d * width..(d + 1) * width].to_vec()).collect()
            };
            let labels: Vec<i32> = order.iter().map(|&d| labels[d]).collect();
            report.exact(case.name(), &key("labels"), &e.i32("det_labels")[at..at + n], &labels);
            report.close(
                case.name(),
                &key("scores"),
                &e.f32("det_scores")[at..at + n],
                &pick(&scores, 1),
            );
            let boxes = &e.f32("det_boxes")[4 * at..4 * (at + n)];
            let want = case.f32(&key("boxes_resized_image")).data;
            report.close(case.name(), &key("boxes_resized_image"), boxes, &pick(&want, 4));
            let probs = &e.f32("mask_probs")[at * area..(at + n) * area];
            let want = pick(&case.f32(&key("mask_probs")).data, area);
            report.close(case.name(), &key("mask_probs"), probs, &want);
            let (place, rule) = (
                (i, [model.images[i], model.network[i]]),
                model.config.model.detections.paste_rule,
            );
            masks(report, case, place, &order, [boxes, probs], rule, 1e-4);
            at += n;
        }
    });
}
