//! Families mlperf_model_*: a narrow Mask R-CNN by the rules of the MLPerf reference.

use std::collections::BTreeMap;

use configs::Config;
use engine::dataset::inclusive_box;
use engine::model::{SlotShape, detection_program, training_program};
use kernels::paste::paste_mask;
use score::encode_mask;
use serde_json::Value;
use tests::SAMPLES;

use crate::model_setup::{
    Build, Fixture, Loaded, Sizes, check_sizes, optimizer_of, pairs, row, stated, usizes,
    write_images, write_polygons,
};
use crate::model_train::{gradient, rpn_outputs, tolerance};
use crate::onnx_files;
use crate::recorded::Settings;
use crate::samples::{KeyedStep, Rois, write_anchors};
use crate::support::{Case, Family, Report, golden_dir, need};

/// README of the golden data; where a ReLU's input is within rounding of 0, a value may be off by
/// more.
const GRAD_TOLERANCE: f64 = 1e-4;
const GRAD_VALUE_TOLERANCE: f64 = 5e-3;

struct Reference {
    config: Config,
    inputs: Family,
    tensors: BTreeMap<String, (Vec<usize>, Vec<f32>)>,
    /// The reference's name of each parameter.
    names: BTreeMap<String, String>,
    classes: usize,
    /// (height, width) in the file and in the network.
    images: Vec<(usize, usize)>,
    network: Vec<(usize, usize)>,
    flips: Vec<i32>,
}

impl Reference {
    fn open() -> Option<Self> {
        let weights = Family::open("mlperf_model_weights")?;
        let inputs = Family::open("mlperf_model_inputs_losses")?;
        let map = std::fs::read(need(golden_dir().join("mlperf_name_map.json"))?).expect("a file");
        let map: Value = serde_json::from_slice(&map).expect("JSON");
        let ours = |name: &str| map["map"][name].as_str().expect("a mapped name").to_owned();
        let tensors = weights.keys().into_iter().map(|key| {
            let t = weights.tensor::<f32>(&key);
            (ours(&key), (t.shape, t.data))
        });
        let tensors = tensors.collect();
        let names = weights.keys().into_iter().map(|key| (ours(&key), key)).collect();
        let (config, classes, images, network, flips) =
            settings(weights.case("state_dict"), inputs.case("sgd5"));
        Some(Self { config, inputs, tensors, names, classes, images, network, flips })
    }

    fn num_images(&self) -> usize {
        self.images.len()
    }

    fn load(&self, given: &[&str], build: Build) -> Loaded {
        let fixture = Fixture {
            config: &self.config,
            tensors: self.tensors.clone(),
            classes: self.classes,
            network: &self.network,
            slot: self.slot(),
        };
        let mut loaded = fixture.load(given, build);
        let sizes = [&self.images[..], &self.network];
        write_images(&mut loaded.executor, self.inputs.case("inputs"), sizes, &self.flips);
        loaded
    }

    fn slot(&self) -> SlotShape {
        let case = self.inputs.case("inputs");
        let most = |f: &dyn Fn(usize) -> usize| (0..self.num_images()).map(f).max().unwrap_or(0);
        SlotShape {
            pixels: most(&|i| 3 * self.images[i].0 * self.images[i].1),
            objects: most(&|i| case.i32(&format!("labels{i}")).data.len()),
            parts: most(&|i| case.i32(&format!("raw_poly_offsets{i}")).data.len() - 1),
            coords: most(&|i| case.f32(&format!("raw_poly_xy{i}")).data.len()),
            runs: 1,
        }
    }

    /// The training step with its inputs written, but for those of `given`.
    fn training(&self, given: &[&str]) -> Loaded {
        let mut loaded = self.load(given, training_program);
        let (e, case, slot) = (&mut loaded.executor, self.inputs.case("inputs"), self.slot());
        for i in 0..self.num_images() {
            row(e, "image_keys", i, 4, &[i as i32, 0, i as i32, 0]);
            let (height, width) = (self.images[i].0 as u32, self.images[i].1 as u32);
            let xywh = case.f32(&format!("boxes_xywh{i}")).data;
            let boxes: Vec<[f32; 4]> = xywh
                .chunks_exact(4)
                .map(|b| inclusive_box([b[0], b[1], b[2], b[3]], height, width).expect("a box"))
                .collect();
            let labels = case.i32(&format!("labels{i}")).data;
            row(e, "gt_boxes", i, 4 * slot.objects, boxes.as_flattened());
            row(e, "gt_classes", i, slot.objects, &labels);
            row(e, "gt_counts", i, 1, &[labels.len() as i32]);
            write_polygons(e, case, slot, i);
        }
        loaded
    }

    fn detection(&self) -> Loaded {
        self.load(&[], detection_program)
    }
}

fn keyed(model: &Reference) -> KeyedStep {
    KeyedStep { free: model.training(&[]), given: model.training(&SAMPLES) }
}

/// Step 1 with samples by the golden data's keys.
fn observed(model: &Reference) -> Loaded {
    let mut step = keyed(model);
    step.run(&model.config);
    step.given
}

/// The metadata: the config, the classes, the sizes of the images in the file and in the
/// network, and which of them are mirrored.
pub(crate) fn settings(meta: Case<'_>, sgd: Case<'_>) -> (Config, usize, Sizes, Sizes, Vec<i32>) {
    let swap = |(width, height)| (height, width);
    let images: Vec<_> = pairs(meta.attribute("raw_wh")).into_iter().map(swap).collect();
    let s = Settings(meta.attributes());
    let config = config(s, Settings(sgd.attributes()), images.len());
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
    let (Some(model), Some(golden)) = (Reference::open(), Family::open("mlperf_model_features"))
    else {
        return;
    };
    let loaded = observed(&model);
    let mut report = Report::new("mlperf_model_features", 2e-5);
    let batch = model.inputs.case("inputs").f32("batch");
    let got = loaded.executor.f32("batch").expect("observed");
    report.close("inputs", "batch", got, &batch.data);
    let case = golden.case("features");
    for name in ["C3", "C4", "C5", "P2", "P3", "P4", "P5", "P6"] {
        let got = loaded.executor.f32(name).expect("an observed tensor");
        report.close(case.name(), name, got, &case.f32(name).data);
    }
    report.done_case();
    report.finish();
}

#[test]
fn golden_mlperf_model_rpn() {
    let (Some(model), Some(golden)) = (Reference::open(), Family::open("mlperf_model_rpn")) else {
        return;
    };
    let loaded = observed(&model);
    let mut report = Report::new("mlperf_model_rpn", 2e-5);
    let case = golden.case("rpn");
    let n = model.num_images();
    let labels = loaded.executor.i32("rpn_labels").expect("an observed tensor");
    for (i, got) in labels.chunks_exact(labels.len() / n).enumerate() {
        let name = format!("labels_{i}");
        report.exact(case.name(), &name, got, &case.i32(&name).data);
    }
    rpn_outputs(&mut report, case, &loaded, n);
    report.done_case();
    report.finish();
}

#[test]
fn golden_mlperf_model_roi() {
    let (Some(model), Some(golden)) = (Reference::open(), Family::open("mlperf_model_roi")) else {
        return;
    };
    let loaded = observed(&model);
    let e = &loaded.executor;
    let mut report = Report::new("mlperf_model_roi", 5e-5);
    let case = golden.case("roi");
    let rois: Vec<f32> = (0..model.num_images())
        .flat_map(|i| case.f32(&format!("sampled_boxes_{i}")).data)
        .collect();
    let labels: Vec<i32> = (0..model.num_images())
        .flat_map(|i| case.i32(&format!("sampled_labels_{i}")).data)
        .collect();
    let count = e.i32("num_rois").expect("observed")[0] as usize;
    report.close(case.name(), "rois", &e.f32("rois").expect("observed")[..4 * count], &rois);
    report.exact(case.name(), "labels", &e.i32("roi_labels").expect("observed")[..count], &labels);
    for name in ["box_features", "class_logits", "box_regression"] {
        let want = case.f32(name).data;
        let got = &e.f32(name).expect("observed")[..want.len()];
        report.close_within(case.name(), name, got, &want, tolerance(case, name).max(5e-5));
    }
    let targets: Vec<f32> = case.u8("mask_targets").data.iter().map(|v| f32::from(*v)).collect();
    let got = &e.f32("mask_targets").expect("observed")[..targets.len()];
    report.exact(case.name(), "mask_targets", got, &targets);
    // The step makes only the channel of each row's class.
    let all = case.f32("mask_logits");
    let labels = e.i32("mask_roi_labels").expect("observed");
    let want = all.own_channel(&labels[..all.shape[0]]).data;
    let got = &e.f32("mask_logits").expect("observed")[..want.len()];
    report.close(case.name(), "mask_logits", got, &want);
    report.done_case();
    report.finish();
}

/// Step 1 with the recorded samples: every gradient.
#[test]
fn golden_mlperf_model_grads() {
    let (Some(model), Some(golden)) = (Reference::open(), Family::open("mlperf_model_grads"))
    else {
        return;
    };
    let Some(loaded) = recorded_step(&model) else { return };
    let mut report = Report::new("mlperf_model_grads", GRAD_TOLERANCE);
    let trained: Vec<_> = loaded.params.iter().filter(|p| p.trained.is_some()).collect();
    for &param in &trained {
        let theirs = &model.names[&param.name];
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
    let Some(model) = Reference::open() else { return };
    let Some(loaded) = recorded_step(&model) else { return };
    let mut report = Report::new("mlperf_model_inputs_losses", 2e-5);
    let losses = model.inputs.case("losses");
    for name in &loaded.losses {
        let got = loaded.executor.f32(name).expect("a loss");
        report.close("losses", name, got, &losses.f32(name).data);
    }
    report.done_case();
    let sgd = model.inputs.case("sgd5");
    let (want, rates) = (sgd.f64("losses_f64_f64"), sgd.f64("lr_weight_bias_f64").data);
    let columns = sgd.attribute("columns").as_array().expect("a list");
    let columns: Vec<&str> = columns.iter().filter_map(|v| v.as_str()).collect();
    let factors = [1.0, sgd.float("bias_lr_factor") as f32];
    let mut keyed = keyed(&model);
    for step in 0..want.shape[0] {
        keyed.run(&model.config);
        let loaded = &keyed.given;
        for (i, name) in columns.iter().enumerate() {
            let want = want.data[step * columns.len() + i];
            let got = loaded.executor.f32(name).expect("a loss");
            let label = format!("step {} {name}", step + 1);
            report.close("sgd5", &label, got, &[want]);
        }
        let control = loaded.executor.f32("control").expect("kept");
        let control = kernels::ops::control_step::Control::read(control);
        let got = factors.map(|factor| control.rate(factor));
        report.close("sgd5", "rates", &got, &rates[2 * step..2 * step + 2]);
    }
    let parameters = sgd.attribute("parameters").as_array().expect("a list");
    let norms = sgd.f64("weight_norms_after_f64_f64").data;
    for (name, want) in parameters.iter().filter_map(|v| v.as_str()).zip(&norms) {
        let ours = model.names.iter().find(|(_, theirs)| *theirs == name).expect("mapped").0;
        let weight = keyed.given.state.get(ours).expect("a parameter").as_f32();
        let norm = weight.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        report.close("sgd5", &format!("norm of {name}"), &[norm], &[*want]);
    }
    report.done_case();
    report.finish();
}

/// Step 1 with the recorded anchors and RoIs in place of the samplers' choice.
fn recorded_step(model: &Reference) -> Option<Loaded> {
    let (rpn, roi) = (Family::open("mlperf_model_rpn")?, Family::open("mlperf_model_roi")?);
    let (rpn, roi) = (rpn.case("rpn"), roi.case("roi"));
    let mut loaded = model.training(&SAMPLES);
    let e = &mut loaded.executor;
    let batch = model.config.model.rpn.batch_size_per_image;
    let mut rois = Rois::default();
    for i in 0..model.num_images() {
        let key = |what: &str| format!("{what}_{i}");
        let mut idx = rpn.i32(&key("pos_idx")).data;
        idx.extend(rpn.i32(&key("neg_idx")).data);
        write_anchors(e, i, batch, idx);
        let boxes = roi.f32(&key("sampled_boxes")).data;
        let labels = roi.i32(&key("sampled_labels")).data;
        // Samples are in ascending order of their candidates, whose matches are recorded.
        let matched = roi.i32(&key("candidate_matched_idxs")).data;
        let mut candidates = roi.i32(&key("pos_idx")).data;
        candidates.extend(roi.i32(&key("neg_idx")).data);
        candidates.sort_unstable();
        for (r, bbox) in boxes.chunks_exact(4).enumerate() {
            let object = matched[candidates[r] as usize].max(0);
            rois.push(bbox, i, labels[r], object);
        }
    }
    rois.write(e);
    loaded.executor.run(&mut loaded.state);
    Some(loaded)
}

/// Its ONNX file: inclusive boxes, blue first, resized in bytes.
#[test]
fn onnx_of_mlperf() {
    let Some(model) = Reference::open() else { return };
    onnx_files::agrees("mlperf_model", &model.config, &model.detection());
}

#[test]
fn golden_mlperf_model_eval() {
    let (Some(model), Some(golden)) = (Reference::open(), Family::open("mlperf_model_eval")) else {
        return;
    };
    let mut loaded = model.detection();
    loaded.executor.run(&mut loaded.state);
    let e = &loaded.executor;
    let f32 = |name: &str| e.f32(name).expect("a kept tensor");
    let i32 = |name: &str| e.i32(name).expect("a kept tensor");
    let mut report = Report::new("mlperf_model_eval", 5e-5);
    let case = golden.case("eval");
    let capacity = f32("proposal_scores").len() / model.num_images();
    let area = (2 * model.config.model.mask_head.pooled).pow(2);
    let mut at = 0;
    for i in 0..model.num_images() {
        let key = |what: &str| format!("{what}_{i}");
        let count = i32("proposal_counts")[i] as usize;
        let proposals = &f32("proposals")[4 * i * capacity..][..4 * count];
        report.close(case.name(), &key("proposals"), proposals, &case.f32(&key("proposals")).data);
        let (labels, scores) = (case.i32(&key("labels")).data, case.f32(&key("scores")).data);
        let n = labels.len();
        report.exact(case.name(), &key("counts"), &[i32("det_counts")[i]], &[n as i32]);
        // The reference lists class by class, ours are best first.
        let mut order: Vec<usize> = (0..n).collect();
        order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
        let pick = |values: &[f32], width: usize| -> Vec<f32> {
            order.iter().flat_map(|&d| values[d * width..(d + 1) * width].to_vec()).collect()
        };
        let labels: Vec<i32> = order.iter().map(|&d| labels[d]).collect();
        report.exact(case.name(), &key("labels"), &i32("det_labels")[at..at + n], &labels);
        report.close(
            case.name(),
            &key("scores"),
            &f32("det_scores")[at..at + n],
            &pick(&scores, 1),
        );
        let boxes = &f32("det_boxes")[4 * at..4 * (at + n)];
        let want = case.f32(&key("boxes_resized_image")).data;
        report.close(case.name(), &key("boxes_resized_image"), boxes, &pick(&want, 4));
        let probs = &f32("mask_probs")[at * area..(at + n) * area];
        let want = pick(&case.f32(&key("mask_probs")).data, area);
        report.close(case.name(), &key("mask_probs"), probs, &want);
        masks(&model, i, &order, boxes, probs, case, &mut report);
        at += n;
    }
    report.done_case();
    report.finish();
}

/// Boxes, masks and run lengths in the pixels of the original image.
fn masks(
    model: &Reference,
    image: usize,
    order: &[usize],
    boxes: &[f32],
    probs: &[f32],
    case: Case<'_>,
    report: &mut Report,
) {
    let side = 2 * model.config.model.mask_head.pooled;
    let ((h, w), (nh, nw)) = (model.images[image], model.network[image]);
    let ratios = [w as f32 / nw as f32, h as f32 / nh as f32];
    let scaled: Vec<f32> = boxes.iter().enumerate().map(|(k, v)| v * ratios[k % 2]).collect();
    let want = case.f32(&format!("boxes_{image}")).data;
    let binary = case.u8(&format!("masks_binary_{image}")).data;
    let counts = case.u8(&format!("rle_counts_{image}")).data;
    let offsets = case.i32(&format!("rle_offsets_{image}")).indices();
    for (d, (bbox, &theirs)) in scaled.chunks_exact(4).zip(order).enumerate() {
        report.close(case.name(), "boxes", bbox, &want[4 * theirs..4 * theirs + 4]);
        let bbox = [bbox[0], bbox[1], bbox[2], bbox[3]];
        let rule = model.config.model.detections.paste_rule;
        let pasted = paste_mask(&probs[d * side * side..][..side * side], side, bbox, h, w, rule);
        let (soft, got) = (pasted.soft_image(), pasted.bitmap(0.5).pixels);
        let want = &binary[theirs * h * w..(theirs + 1) * h * w];
        // A pixel within 1e-4 of the threshold may fall on either side of it.
        let differs = |p: &usize| got[*p] != want[*p];
        let wrong = (0..h * w).filter(differs).filter(|p| (soft[*p] - 0.5).abs() >= 1e-4).count();
        report.exact(case.name(), &format!("masks_binary_{image}[{d}]"), &[wrong], &[0]);
        let string = encode_mask(h as u32, w as u32, want).to_leb();
        let recorded = &counts[offsets[theirs]..offsets[theirs + 1]];
        report.exact(case.name(), "rle_counts", string.as_bytes(), recorded);
    }
}
