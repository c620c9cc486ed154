//! Family `d2_ops` and the image sizes of `d2_data`: anchors, boxes, labels, proposals, detections,
//! losses, learning rates and resizes by detectron2's rules. Pooling and masks are in `d2_maps.rs`.

use dali::order::resized_size;
use engine::config::{LevelEps, ResizeRounding};
use kernels::Role;
use kernels::boxes::{
    AnchorLevel, Box4, Thresholds, as_boxes, cell_anchors_exact, encode, match_iou,
};
use kernels::losses::sigmoid;
use kernels::ops::anchors::Anchors;
use kernels::ops::bce_loss::BceLoss;
use kernels::ops::control_step::{ControlStep, LrSchedule};
use kernels::ops::decode_proposals::DecodeProposals;
use kernels::ops::detections::Detections;
use kernels::ops::nms_proposals::{NmsProposals, ProposalScope};
use kernels::ops::roi_levels::RoiLevels;
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::smooth_l1_loss::SmoothL1Loss;
use kernels::ops::top_k_per_level::TopKPerLevel;
use serde_json::Value;

use crate::convert::{Ran, array, count, floats, host, index, numbered, repeated};
use crate::formulas::{self, control_step, controls, giou_rows, smooth_l1_of};
use crate::losses::{box_loss_op, cross_entropy_op};
use crate::model_configs::{number, usizes};
use crate::support::{Case, Report, Tensor, cases_of, each_case};

/// From the README of the golden data: in general, and for gradients of losses and poolers.
const TOLERANCE: f64 = 2e-5;
pub(crate) const GRAD_TOLERANCE: f64 = 5e-5;

/// Compares one kind of case; returns false for a rule that no config key selects.
pub(crate) type Check = fn(&mut Report, Case<'_>) -> bool;

#[test]
fn detectron2_ops_match_golden() {
    check(
        "d2_ops",
        &[
            ("anchors_", anchors),
            ("box2box_", coder),
            ("matcher_", matcher),
            ("level_assignment", levels),
            ("fast_rcnn_inference_", detections),
            ("find_top_proposals_", proposals),
            ("smooth_l1_", smooth),
            ("giou_loss_", giou),
            // Losses that no config key selects.
            ("diou_loss_", not_due),
            ("ciou_loss_", not_due),
            ("rpn_losses_", rpn_losses),
            ("fast_rcnn_losses_", box_losses),
            ("lr_", rates),
        ],
    );
}

/// Compares network sizes; `detectron2_data_matches_golden` compares the images.
pub(crate) fn sizes() {
    cases_of("d2_data", "resize_rule_", 0.0, |report, case| {
        let (min, max) = (case.usize("short_edge"), case.usize("max_size"));
        let resized = |hw: &[i32]| {
            let (h, w) = (hw[0] as u32, hw[1] as u32);
            let (h, w) = resized_size(h, w, min, max, ResizeRounding::HalfUp);
            [h as i32, w as i32]
        };
        let got: Vec<i32> = case.i32("in_hw").data.chunks_exact(2).flat_map(resized).collect();
        // In onegraph a very thin image is at least one pixel wide.
        let want: Vec<i32> = case.i32("out_hw").data.iter().map(|side| *side.max(&1)).collect();
        report.exact(case.name(), "out_hw", &got, &want);
    });
}

pub(crate) fn check(name: &'static str, kinds: &[(&str, Check)]) {
    each_case(name, TOLERANCE, |report, case| {
        let kind = kinds.iter().find(|(prefix, _)| case.name().starts_with(prefix));
        let (_, check) = kind.unwrap_or_else(|| panic!("{}: unknown kind", case.name()));
        if !check(report, case) {
            report.not_due();
        }
    });
}

fn not_due(_: &mut Report, _: Case<'_>) -> bool {
    false
}

fn list(value: &Value) -> Vec<f32> {
    let number = |v: &Value| v.as_f64().expect("a number") as f32;
    value.as_array().expect("a list").iter().map(number).collect()
}

fn anchors(report: &mut Report, case: Case<'_>) -> bool {
    if case.float("offset") != 0.0 {
        return false;
    }
    let lists = |name: &str| -> Vec<Vec<f32>> {
        case.attribute(name).as_array().expect("a list").iter().map(list).collect()
    };
    let (sizes, ratios) = (lists("sizes"), lists("aspect_ratios"));
    let maps = case.attribute("feature_hw").as_array().expect("a list").iter().map(usizes);
    let strides = list(case.attribute("strides"));
    let levels: Vec<AnchorLevel> = sizes
        .iter()
        // A single list applies to all levels.
        .zip(ratios.iter().cycle())
        .zip(maps)
        .zip(strides)
        .map(|(((sizes, ratios), map), stride)| AnchorLevel {
            height: map[0],
            width: map[1],
            stride_h: stride,
            stride_w: stride,
            cells: cell_anchors_exact(sizes, ratios),
        })
        .collect();
    // onegraph stores anchor sizes as f32: if a size is not exact in f32, anchors agree with
    // detectron2's up to rounding.
    let of_f64 = case.attribute("sizes").to_string().contains('.');
    let mut compare = |name: &str, got: &[f32]| match (of_f64, case.f32(name).data) {
        (true, want) => report.close_within(case.name(), name, got, &want, 1e-7),
        (false, want) => report.exact(case.name(), name, got, &want),
    };
    for (level, AnchorLevel { cells, .. }) in levels.iter().enumerate() {
        compare(&format!("cell_anchors_l{level}"), cells.as_flattened());
    }
    let counts: Vec<i32> = levels.iter().map(|level| level.len() as i32).collect();
    compare("anchors", Ran::new(case.name(), Anchors { levels }, vec![]).f32(0));
    report.equal(case, "level_counts", &counts);
    true
}

fn coder(report: &mut Report, case: Case<'_>) -> bool {
    formulas::coder(report, case, ["src", "target", "deltas_encoded"], false);
    true
}

fn matcher(report: &mut Report, case: Case<'_>) -> bool {
    let iou = case.f32("iou");
    for (name, rule) in case.attribute("matchers").as_object().expect("an object") {
        let cuts = list(&rule["thresholds"]);
        let thresholds = Thresholds { bg_iou: cuts[0], fg_iou: *cuts.last().expect("a threshold") };
        let low_quality = rule["allow_low_quality_matches"].as_bool().expect("a flag");
        let got = match_iou(&iou.data, iou.shape[1], thresholds, low_quality);
        // A match becomes label 1; -1 (below the thresholds) becomes 0; -2 (between them) becomes
        // -1.
        let labels: Vec<i32> = got.iter().map(|&m| (m + 1).min(1)).collect();
        let name = |what: &str| format!("{name}_{what}");
        let want = case.i32(&name("labels")).data;
        report.exact(case.name(), &name("labels"), &labels, &want);
        let matched = case.i32(&name("matched_idxs")).data;
        let positives = || (0..want.len()).filter(|&i| want[i] == 1);
        let got: Vec<i32> = positives().map(|i| got[i]).collect();
        let want: Vec<i32> = positives().map(|i| matched[i]).collect();
        report.exact(case.name(), &name("matched_idxs"), &got, &want);
    }
    true
}

pub(crate) fn level_op(case: Case<'_>, max_level: i32) -> RoiLevels {
    RoiLevels {
        min_level: 2,
        max_level,
        canonical_size: case.float("canonical_box_size") as f32,
        canonical_level: case.usize("canonical_level") as i32,
        plus_one: false,
        rule: LevelEps::InLog,
    }
}

fn levels(report: &mut Report, case: Case<'_>) -> bool {
    assert_eq!(case.usize("min_level"), 2, "the finest level");
    let boxes = case.f32("boxes");
    let inputs = vec![host(Role::Box, &boxes), repeated(boxes.shape[0], 0)];
    let op = level_op(case, case.usize("max_level") as i32);
    let ran = Ran::new(case.name(), op, inputs);
    report.equal(case, "level", ran.i32(0));
    true
}

/// Height and width of one image.
pub(crate) fn image_hw(case: Case<'_>) -> [i32; 2] {
    array(case, "image_hw").map(|v: f32| v as i32)
}

/// Uses one RoI per row and class, with probability 0 for the other classes; the boxes are given,
/// so all deltas are 0.
fn detections(report: &mut Report, case: Case<'_>) -> bool {
    let (boxes, probs) = (case.f32("boxes"), case.f32("probs"));
    if boxes.data.iter().chain(&probs.data).any(|v| !v.is_finite()) {
        // detectron2 drops all classes of a row with non-finite values; onegraph never computes
        // such values from finite logits and deltas.
        return false;
    }
    let classes = case.usize("num_classes");
    let (rows, of_row) = (boxes.shape[0], boxes.shape[1] / 4);
    let (mut rois, mut logits) = (Vec::new(), Vec::new());
    for (row, probs) in probs.data.chunks_exact(classes + 1).enumerate() {
        for (class, &p) in probs[..classes].iter().enumerate() {
            rois.push(as_boxes(&boxes.data)[row * of_row + class.min(of_row - 1)]);
            let p = f64::from(p);
            let own = |c: usize| if c == class { p.ln() as f32 } else { f32::NEG_INFINITY };
            logits.push((1.0 - p).ln() as f32);
            logits.extend((0..classes).map(own));
        }
    }
    let (n, hw) = (rows * classes, image_hw(case));
    let topk = case.attribute("topk").as_i64().expect("a number");
    let op = Detections {
        score_threshold: case.float("score_thresh") as f32,
        nms_threshold: case.float("nms_thresh") as f32,
        per_image: usize::try_from(topk).unwrap_or(n),
        weights: [10.0, 10.0, 5.0, 5.0],
        min_size: 0.0,
        plus_one: false,
    };
    let inputs = vec![
        floats(Role::Activation, &[n, classes + 1], logits),
        floats(Role::Activation, &[n, 4 * (classes + 1)], vec![0.0; 4 * n * (classes + 1)]),
        floats(Role::Box, &[n, 4], rois.concat()),
        repeated(n, 0),
        count(n),
        index(&[1, 2], hw.to_vec()),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    let want = case.i32("out_classes").data;
    report.exact(case.name(), "number", &[ran.i32(5)[0]], &[want.len() as i32]);
    let labels: Vec<i32> = ran.i32(2)[..want.len()].iter().map(|label| label - 1).collect();
    report.exact(case.name(), "out_classes", &labels, &want);
    let got = &ran.f32(1)[..want.len()];
    report.compare(case, "out_scores", got);
    let got = &ran.f32(0)[..4 * want.len()];
    report.compare(case, "out_boxes", got);
    true
}

/// Runs the RPN's ops in sequence, one image at a time, with the recorded proposals as anchors and
/// deltas of 0.
fn proposals(report: &mut Report, case: Case<'_>) -> bool {
    let levels = numbered(case, "logits_l").len();
    let images = case.attribute("image_hw").as_array().expect("a list");
    for (image, hw) in images.iter().enumerate() {
        let hw: Vec<i32> = usizes(hw).iter().map(|v| *v as i32).collect();
        let own = |name: String| {
            let all = case.f32(&name).data;
            let len = all.len() / images.len();
            all[image * len..(image + 1) * len].to_vec()
        };
        let logits: Vec<Vec<f32>> = (0..levels).map(|l| own(format!("logits_l{l}"))).collect();
        let map = |values: &[f32], width: usize| {
            let shape = [1, 1, values.len() / width, width];
            floats(Role::Activation, &shape, values.to_vec())
        };
        let maps: Vec<_> = logits.iter().map(|values| map(values, 1)).collect();
        let top = TopKPerLevel { k: case.usize("pre_nms_topk") };
        let top = Ran::new(case.name(), top, maps.clone());
        let rows = top.shape(0)[1];
        let idx = || index(&[1, rows], top.i32(0).to_vec());
        let anchors: Vec<f32> = (0..levels).flat_map(|l| own(format!("proposals_l{l}"))).collect();
        let decode = DecodeProposals {
            plus_one: false,
            // detectron2 requires sides greater than the minimum, onegraph at least the minimum.
            min_size: (case.float("min_box_size") as f32).next_up(),
            score_threshold: 0.0,
            weights: [1.0; 4],
        };
        let mut inputs =
            vec![idx(), floats(Role::Box, &[anchors.len() / 4, 4], anchors), index(&[1, 2], hw)];
        inputs.extend(maps);
        inputs.extend(logits.iter().map(|values| map(&vec![0.0; 4 * values.len()], 4)));
        let decoded = Ran::new(case.name(), decode, inputs);
        let nms = NmsProposals {
            threshold: case.float("nms_thresh") as f32,
            post_top_n: case.usize("post_nms_topk"),
            level_top_n: None,
            plus_one: false,
            scope: ProposalScope::Image,
        };
        let inputs = vec![
            floats(Role::Box, &[1, rows, 4], decoded.f32(0).to_vec()),
            floats(Role::Score, &[1, rows], decoded.f32(1).to_vec()),
            index(&[rows], top.i32(1).to_vec()),
            idx(),
        ];
        let kept = Ran::new(case.name(), nms, inputs);
        let n = kept.i32(3)[0] as usize;
        let name = format!("out_boxes_{image}");
        report.compare(case, &name, &kept.f32(0)[..4 * n]);
        let name = format!("out_logits_{image}");
        let want: Vec<f32> = case.f32(&name).data.iter().map(|v| sigmoid(*v)).collect();
        report.close(case.name(), &name, &kept.f32(1)[..n], &want);
    }
    true
}

fn smooth(report: &mut Report, case: Case<'_>) -> bool {
    let (losses, slopes) = smooth_l1_of(case, "pred");
    report.compare(case, "loss", &losses);
    report.compare(case, "dpred", &slopes);
    true
}

fn giou(report: &mut Report, case: Case<'_>) -> bool {
    giou_rows(report, case, GRAD_TOLERANCE);
    true
}

/// Both losses of the RPN, divided by `batch_size_per_image` anchors per image, regardless of the
/// number of sampled anchors.
fn rpn_losses(report: &mut Report, case: Case<'_>) -> bool {
    if case.attribute("box_reg_loss_type") != "smooth_l1" {
        return false;
    }
    let weight = case.float("loc_loss_weight") as f32;
    let levels = usizes(case.attribute("level_counts"));
    let (images, total) = (case.usize("images"), levels.iter().sum::<usize>());
    // Gathers the samples image by image, in the order of the training step.
    let gathered = |what: &str, width: usize| -> Vec<f32> {
        let map = |l: usize| case.f32(&format!("{what}_l{l}")).data;
        let maps: Vec<_> = (0..levels.len()).map(map).collect();
        let of = |i: usize| {
            let level = move |(map, len): (&Vec<f32>, &usize)| {
                map[i * len * width..(i + 1) * len * width].to_vec()
            };
            maps.iter().zip(&levels).flat_map(level).collect::<Vec<_>>()
        };
        (0..images).flat_map(of).collect()
    };
    let rows = images * total;
    let rows_per_image = Some(case.usize("batch_size_per_image"));
    let labels = || index(&[rows], case.i32("labels").data);
    let image_idx = || index(&[rows], (0..rows).map(|row| (row / total) as i32).collect());
    let logits = floats(Role::Activation, &[rows], gathered("logits", 1));
    let inputs = vec![logits, labels(), image_idx(), count(images)];
    let ran = Ran::new(case.name(), BceLoss { ipg: images, rows_per_image }, inputs);
    report.compare(case, "loss_rpn_cls", ran.f32(0));
    let grad = ran.grad(&[1.0], 0).data;
    report.close_within(case.name(), "dlogits", &grad, &gathered("dlogits", 1), GRAD_TOLERANCE);

    let weights = array(case, "bbox_reg_weights");
    let (anchors, gt) = (case.f32("anchors").data, case.f32("gt_boxes").data);
    let target =
        |(row, gt): (usize, &Box4)| encode(&as_boxes(&anchors)[row % total], gt, &weights, false);
    let targets: Vec<Box4> = as_boxes(&gt).iter().enumerate().map(target).collect();
    let inputs = vec![
        floats(Role::Activation, &[rows, 4], gathered("deltas", 4)),
        floats(Role::Box, &[rows, 4], targets.concat()),
        labels(),
        image_idx(),
        count(images),
    ];
    let beta = case.float("smooth_l1_beta") as f32;
    let ran = Ran::new(case.name(), SmoothL1Loss { beta, ipg: images, rows_per_image }, inputs);
    let loss = [weight * ran.f32(0)[0]];
    report.compare(case, "loss_rpn_loc", &loss);
    let grad = ran.grad(&[weight], 0).data;
    report.close_within(case.name(), "ddeltas", &grad, &gathered("ddeltas", 4), GRAD_TOLERANCE);
    true
}

/// Class and box loss of the box head; the background is detectron2's last class, but onegraph's
/// first.
fn box_losses(report: &mut Report, case: Case<'_>) -> bool {
    let is_agnostic = case.attribute("cls_agnostic") == true;
    if case.attribute("box_reg_loss_type") != "smooth_l1" {
        return false;
    }
    let weight = case.float("box_loss_weight") as f32;
    let classes = case.usize("num_classes");
    let turned = |mut values: Vec<f32>| {
        values.chunks_exact_mut(classes + 1).for_each(|row| row.rotate_right(1));
        values
    };
    let theirs = case.i32("gt_classes").data;
    let ours = |&c: &i32| if c as usize == classes { 0 } else { c + 1 };
    let (rows, labels) = (theirs.len(), theirs.iter().map(ours).collect::<Vec<i32>>());
    // detectron2 has no deltas for the background; class-agnostic deltas are treated as those of a
    // single class.
    let (groups, of_box) = match is_agnostic {
        true => (1, labels.iter().map(|label| (*label).min(1)).collect()),
        false => (classes, labels.clone()),
    };
    let widened = |values: &[f32]| -> Vec<f32> {
        let row = |row: &[f32]| [&[0.0; 4], row].concat();
        values.chunks_exact(4 * groups).flat_map(row).collect()
    };
    let logits = case.f32("class_logits");
    let logits = Tensor { data: turned(logits.data), ..logits };
    let ran = cross_entropy_op(case, &logits, labels.clone());
    report.compare(case, "loss_cls", ran.f32(0));
    let want = turned(case.f32("dclass_logits").data);
    let grad = ran.grad(&[1.0], 0).data;
    report.close_within(case.name(), "dclass_logits", &grad, &want, GRAD_TOLERANCE);

    let weights = array(case, "bbox_reg_weights");
    let (proposals, gt) = (case.f32("proposal_boxes").data, case.f32("gt_boxes").data);
    let pairs = as_boxes(&proposals).iter().zip(as_boxes(&gt));
    let targets: Vec<Box4> = pairs.map(|(p, gt)| encode(p, gt, &weights, false)).collect();
    let shape = [rows, 4 * (groups + 1)];
    let deltas = floats(Role::Activation, &shape, widened(&case.f32("deltas").data));
    let select = SelectColumns { width: 4, modulo: false };
    let own = Ran::new(case.name(), select, vec![deltas, index(&[rows], of_box)]);
    let beta = case.float("smooth_l1_beta") as f32;
    let ran = box_loss_op(case, [own.f32(0).to_vec(), targets.concat()], beta, labels);
    let loss = [weight * ran.f32(0)[0]];
    report.compare(case, "loss_box_reg", &loss);
    let grad = own.grad(&ran.grad(&[weight], 0).data, 0).data;
    let want = widened(&case.f32("ddeltas").data);
    report.close_within(case.name(), "ddeltas", &grad, &want, GRAD_TOLERANCE);
    true
}

/// Learning rates of all updates. Cases whose warm-up ends at a scheduled rate below the full rate
/// are skipped, since no config key selects this rule.
fn rates(report: &mut Report, case: Case<'_>) -> bool {
    let solver = case.attribute("solver");
    let (base, warmup_steps) = (number(solver, "BASE_LR"), number(solver, "WARMUP_ITERS") as u64);
    let is_cosine = solver["LR_SCHEDULER_NAME"] == "WarmupCosineLR";
    let milestones: Vec<u64> = match is_cosine {
        true => vec![],
        false => usizes(&solver["STEPS"]).iter().map(|m| *m as u64).collect(),
    };
    let falls_in_warmup = milestones.iter().any(|m| *m < warmup_steps);
    if is_cosine || falls_in_warmup || solver["WARMUP_METHOD"] != "linear" {
        return false;
    }
    let schedule = LrSchedule::Multistep {
        base,
        warmup_steps,
        warmup_factor: number(solver, "WARMUP_FACTOR"),
        milestones,
        gamma: number(solver, "GAMMA"),
    };
    let want = case.f64("lr_f64").data;
    let of = |first_step: usize| {
        let op = ControlStep { first_step: first_step as u64, ..control_step(&schedule) };
        controls(&op).map(|control| control.rate(1.0)).next()
    };
    let got: Vec<f32> = (0..want.len()).filter_map(of).collect();
    report.close(case.name(), "lr", &got, &want);
    true
}
