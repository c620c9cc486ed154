//! Family mlperf_ops: boxes, anchors, labels, proposals, detections and learning rates by the rules
//! of the MLPerf reference. Images, masks and pooling are in `mlperf_maps.rs`.

use engine::config::LevelEps;
use engine::dataset::inclusive_box;
use kernels::Role;
use kernels::boxes::{
    AnchorLevel, Box4, ImageSize, Thresholds, area, as_boxes, cell_anchors_detectron, clip, encode,
    iou, match_iou, nms,
};
use kernels::ops::anchors::Anchors;
use kernels::ops::control_step::{ControlStep, LrSchedule};
use kernels::ops::detections::Detections;
use kernels::ops::match_anchors::MatchAnchors;
use kernels::ops::nms_proposals::{NmsProposals, ProposalScope};
use kernels::ops::roi_levels::RoiLevels;

use crate::convert::{Ran, count, f32s, flag, floats, host, index, numbered, numbers, repeated};
use crate::formulas::{self, control_step, controls, smooth_l1_of};
use crate::mlperf_maps;
use crate::support::{Case, Report, each_case};

/// From the README of the golden data.
pub(crate) const TOLERANCE: f64 = 2e-5;

/// Compares one kind of case.
type Check = fn(&mut Report, Case<'_>);

#[test]
fn mlperf_ops_match_golden() {
    each_case("mlperf_ops", TOLERANCE, |report, case| {
        let kinds: [(&str, Check); 22] = [
            ("anchors_summary", anchors_summary),
            ("anchors", all_anchors),
            ("cell_anchors", cells),
            ("box_coder", coder),
            ("iou", overlaps),
            ("nms", suppression),
            ("fpn_topn", top_n),
            ("clip_to_image", clipping),
            ("coco_target", targets),
            ("hflip", mlperf_maps::hflip),
            ("resize_targets", mlperf_maps::resize_targets),
            ("resize_rule", mlperf_maps::resize_rule),
            ("pil_resize", mlperf_maps::pil_resize),
            ("level_mapper", levels),
            ("matcher", matches),
            ("rpn_labels", rpn_labels),
            ("mask_targets", mlperf_maps::mask_targets),
            ("mask_paste", mlperf_maps::mask_paste),
            ("pooler", mlperf_maps::pooler),
            ("box_postprocess", detections),
            ("smooth_l1", losses),
            ("lr", rates),
        ];
        let kind = kinds.iter().find(|(prefix, _)| case.name().starts_with(prefix));
        let (_, check) = kind.unwrap_or_else(|| panic!("{} is of no known kind", case.name()));
        check(report, case);
    });
}

/// [width, height] of the image of a case.
pub(crate) fn image_size(case: Case<'_>) -> ImageSize {
    let wh = numbers(case, "image_wh");
    ImageSize { width: wh[0] as i32, height: wh[1] as i32 }
}

/// A list attribute of the case, or else the reference's default.
fn stated(case: Case<'_>, name: &str, reference: &[f32]) -> Vec<f32> {
    match case.attributes().get(name) {
        Some(_) => f32s(case, name),
        None => reference.to_vec(),
    }
}

/// The anchors' levels on the padded image, finest first.
fn levels_of(case: Case<'_>) -> Vec<AnchorLevel> {
    let strides = stated(case, "strides", &[4.0, 8.0, 16.0, 32.0, 64.0]);
    let sizes = stated(case, "sizes", &[32.0, 64.0, 128.0, 256.0, 512.0]);
    let ratios = stated(case, "ratios", &[0.5, 1.0, 2.0]);
    assert_eq!(strides.len(), sizes.len(), "{}: one size a level", case.name());
    let padded = numbers(case, "padded_wh");
    let of_level = |(&stride, &size): (&f32, &f32)| {
        let [width, height] = [0, 1].map(|i| (padded[i] as usize).div_ceil(stride as usize));
        let cells = cell_anchors_detectron(stride, &[size], &ratios);
        AnchorLevel { height, width, stride_h: stride, stride_w: stride, cells }
    };
    strides.iter().zip(&sizes).map(of_level).collect()
}

/// The anchors of the padded image, and their number per level.
fn anchors_of(case: Case<'_>) -> (Vec<f32>, Vec<i32>) {
    let levels = levels_of(case);
    let counts = levels.iter().map(|l| (l.cells.len() * l.height * l.width) as i32).collect();
    let ran = Ran::new(case.name(), Anchors { levels }, vec![]);
    (ran.f32(0).to_vec(), counts)
}

/// Labels computed by the RPN's op with the straddle filter, which ignores anchors that cross the
/// image border.
fn labelled(case: Case<'_>, anchors: &[f32], gt: &[f32]) -> Ran {
    let op = MatchAnchors {
        fg_iou: 0.7,
        bg_iou: 0.3,
        low_quality: true,
        plus_one: true,
        straddle_filter: true,
    };
    let size = image_size(case);
    let inputs = vec![
        floats(Role::Box, &[anchors.len() / 4, 4], anchors.to_vec()),
        floats(Role::Box, &[1, gt.len() / 4, 4], gt.to_vec()),
        count(gt.len() / 4),
        index(&[1, 2], vec![size.height, size.width]),
        count(1),
    ];
    Ran::new(case.name(), op, inputs)
}

/// 1 for each anchor inside the image: without objects, these anchors are background and all others
/// are labelled -1.
fn visibility(case: Case<'_>, anchors: &[f32]) -> Vec<u8> {
    let ran = labelled(case, anchors, &[]);
    ran.i32(0).iter().map(|label| u8::from(*label == 0)).collect()
}

fn all_anchors(report: &mut Report, case: Case<'_>) {
    let (anchors, counts) = anchors_of(case);
    for (level, AnchorLevel { cells, .. }) in levels_of(case).iter().enumerate() {
        let name = format!("cell_anchors_l{level}");
        report.equal(case, &name, cells.as_flattened());
    }
    report.equal(case, "level_counts", &counts);
    report.equal(case, "anchors", &anchors);
    let visible = visibility(case, &anchors);
    report.equal(case, "visibility", &visible);
}

fn anchors_summary(report: &mut Report, case: Case<'_>) {
    let (anchors, counts) = anchors_of(case);
    let every = case.usize("every");
    report.equal(case, "level_counts", &counts);
    let got: Vec<Box4> = as_boxes(&anchors).iter().step_by(every).copied().collect();
    report.equal(case, "anchors_every", got.as_flattened());
    let visible = visibility(case, &anchors);
    let got: Vec<u8> = visible.iter().step_by(every).copied().collect();
    report.equal(case, "visibility_every", &got);
    let mut from = 0;
    let of_level = |n: &i32| {
        let level = &visible[from..from + *n as usize];
        from += *n as usize;
        level.iter().map(|v| i32::from(*v)).sum::<i32>()
    };
    let got: Vec<i32> = counts.iter().map(of_level).collect();
    report.equal(case, "visible_counts", &got);
    let sum: f64 = (0..visible.len()).filter(|i| visible[*i] == 1).map(|i| i as f64).sum();
    let want = case.f64("visible_index_sum_f64").data;
    report.exact(case.name(), "visible_index_sum", &[sum], &want);
}

fn cells(report: &mut Report, case: Case<'_>) {
    let [sizes, ratios] = ["sizes", "ratios"].map(|name| f32s(case, name));
    let cells = cell_anchors_detectron(case.float("stride") as f32, &sizes, &ratios);
    report.equal(case, "cell", cells.as_flattened());
}

fn coder(report: &mut Report, case: Case<'_>) {
    formulas::coder(report, case, ["proposals", "gt", "encoded"], true);
}

fn overlaps(report: &mut Report, case: Case<'_>) {
    let (a, b) = (case.f32("a").data, case.f32("b").data);
    let areas: Vec<f32> = as_boxes(&a).iter().map(|a| area(a, true)).collect();
    report.compare(case, "area", &areas);
    let of_row = |a: &Box4| as_boxes(&b).iter().map(|b| iou(a, b, true)).collect::<Vec<_>>();
    let got: Vec<f32> = as_boxes(&a).iter().flat_map(of_row).collect();
    report.compare(case, "iou", &got);
}

/// Compares the kept boxes in the order of their scores; the reference lists them by index.
fn suppression(report: &mut Report, case: Case<'_>) {
    let (boxes, scores) = (case.f32("boxes").data, case.f32("scores").data);
    let mut kept = nms(as_boxes(&boxes), &scores, case.float("threshold") as f32, true);
    report.exact(case.name(), "by score", &kept, &case.i32("keep_score_order").indices());
    kept.sort_unstable();
    report.exact(case.name(), "by index", &kept, &case.i32("keep_reference").indices());
}

/// Uses distant boxes on separate levels, so that nothing is suppressed and the order of the list
/// is kept.
fn top_n(report: &mut Report, case: Case<'_>) {
    let names = numbered(case, "objectness_");
    let lists: Vec<_> = names.iter().map(|name| case.f32(name).data).collect();
    let (images, rows) = (lists.len(), lists.iter().map(Vec::len).max().unwrap_or(0));
    let mut scores = Vec::new();
    for list in &lists {
        scores.extend(list);
        // Rows with a negative score are unused.
        scores.resize(scores.len() + rows - list.len(), -1.0);
    }
    let kept = |scope, post_top_n: &str| {
        let post_top_n = case.usize(post_top_n);
        let op =
            NmsProposals { threshold: 0.7, post_top_n, level_top_n: None, plus_one: true, scope };
        let boxes = vec![[0.0, 0.0, 9.0, 9.0]; images * rows];
        let of_each = 0..rows as i32;
        let inputs = vec![
            floats(Role::Box, &[images, rows, 4], boxes.concat()),
            floats(Role::Score, &[images, rows], scores.clone()),
            index(&[rows], of_each.clone().collect()),
            index(&[images, rows], (0..images).flat_map(|_| of_each.clone()).collect()),
        ];
        let ran = Ran::new(case.name(), op, inputs);
        let capacity = ran.shape(2)[1];
        let of_image = |i| ran.i32(2)[i * capacity..][..ran.i32(3)[i] as usize].to_vec();
        (0..images).map(of_image).collect::<Vec<_>>()
    };
    let train = kept(ProposalScope::Batch { images }, "train_top_n_per_batch");
    let test = kept(ProposalScope::Image, "test_top_n_per_image");
    for i in 0..images {
        for (what, got) in [("train_keep", &train[i]), ("test_keep", &test[i])] {
            let name = format!("{what}_{i}");
            report.equal(case, &name, got);
        }
    }
}

fn clipping(report: &mut Report, case: Case<'_>) {
    let size = image_size(case);
    let boxes = case.f32("boxes").data;
    let mut clipped: Vec<Box4> = as_boxes(&boxes).iter().map(|b| clip(b, size, true)).collect();
    report.equal(case, "clipped", clipped.as_flattened());
    clipped.retain(|b| b[2] > b[0] && b[3] > b[1]);
    let want = case.f32("clipped_nonempty").data;
    report.exact(case.name(), "clipped_nonempty", clipped.as_flattened(), &want);
}

fn targets(report: &mut Report, case: Case<'_>) {
    let size = image_size(case);
    let xywh = case.f32("xywh").data;
    let of = |b: &Box4, [height, width]: [i32; 2]| inclusive_box(*b, height as u32, width as u32);
    let boxes: Vec<_> = as_boxes(&xywh).iter().map(|b| of(b, [size.height, size.width])).collect();
    let keep: Vec<usize> = (0..boxes.len()).filter(|i| boxes[*i].is_some()).collect();
    report.exact(case.name(), "keep", &keep, &case.i32("keep").indices());
    let clipped: Vec<Box4> = boxes.into_iter().flatten().collect();
    report.compare(case, "clipped", clipped.as_flattened());
    let back = |b: &Box4| [b[0], b[1], b[2] - b[0] + 1.0, b[3] - b[1] + 1.0];
    let back: Vec<Box4> = clipped.iter().map(back).collect();
    report.compare(case, "back_xywh", back.as_flattened());
}

fn levels(report: &mut Report, case: Case<'_>) {
    let boxes = case.f32("boxes");
    let op = RoiLevels {
        rule: LevelEps::AfterLog,
        min_level: 2,
        max_level: 5,
        canonical_size: 224.0,
        canonical_level: 4,
        plus_one: true,
    };
    let inputs = vec![host(Role::Box, &boxes), repeated(boxes.shape[0], 0)];
    let ran = Ran::new(case.name(), op, inputs);
    report.equal(case, "level", ran.i32(0));
}

fn matches(report: &mut Report, case: Case<'_>) {
    let iou = case.f32("iou");
    let thresholds =
        Thresholds { fg_iou: case.float("high") as f32, bg_iou: case.float("low") as f32 };
    let low_quality = flag(case, "allow_low_quality");
    let got = match_iou(&iou.data, iou.shape[1], thresholds, low_quality);
    report.equal(case, "matches", &got);
}

fn rpn_labels(report: &mut Report, case: Case<'_>) {
    let (anchors, _) = anchors_of(case);
    let gt = case.f32("gt").data;
    let ran = labelled(case, &anchors, &gt);
    report.equal(case, "labels", ran.i32(0));
    let positives = case.i32("pos_index").indices();
    let got: Vec<usize> = (0..ran.i32(0).len()).filter(|i| ran.i32(0)[*i] == 1).collect();
    report.exact(case.name(), "pos_index", &got, &positives);
    let matched = case.i32("matched_idxs").data;
    let objects: Vec<usize> = positives.iter().map(|i| matched[*i] as usize).collect();
    let got: Vec<usize> = positives.iter().map(|i| ran.i32(1)[*i] as usize).collect();
    report.exact(case.name(), "matched of positives", &got, &objects);
    let (anchors, gt) = (as_boxes(&anchors), as_boxes(&gt));
    let pairs = positives.iter().zip(&objects);
    let encoded: Vec<Box4> =
        pairs.map(|(&a, &g)| encode(&anchors[a], &gt[g], &[1.0; 4], true)).collect();
    let want = case.f32("pos_regression_targets").data;
    report.close(case.name(), "pos_regression_targets", encoded.as_flattened(), &want);
}

/// Compares the detections as a set: the reference lists them class by class, and includes all ties
/// at the last place.
fn detections(report: &mut Report, case: Case<'_>) {
    let (logits, size) = (case.f32("class_logits"), image_size(case));
    let rows = logits.shape[0];
    let op = Detections {
        score_threshold: case.float("score_thresh") as f32,
        nms_threshold: case.float("nms") as f32,
        per_image: case.usize("detections_per_img"),
        weights: [10.0, 10.0, 5.0, 5.0],
        min_size: 0.0,
        plus_one: true,
    };
    let inputs = vec![
        host(Role::Activation, &logits),
        host(Role::Activation, &case.f32("box_regression")),
        host(Role::Box, &case.f32("proposals")),
        repeated(rows, 0),
        count(rows),
        index(&[1, 2], vec![size.height, size.width]),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    let (scores, labels) = (case.f32("scores").data, case.i32("labels").data);
    let (boxes, n) = (case.f32("boxes").data, labels.len());
    report.exact(case.name(), "number", ran.i32(5), &[n as i32]);
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let by_score: Vec<f32> = order.iter().map(|&d| scores[d]).collect();
    report.close(case.name(), "scores", &ran.f32(1)[..n], &by_score);
    let by_score: Vec<i32> = order.iter().map(|&d| labels[d]).collect();
    report.exact(case.name(), "labels", &ran.i32(2)[..n], &by_score);
    let by_score: Vec<Box4> = order.iter().map(|&d| as_boxes(&boxes)[d]).collect();
    report.close(case.name(), "boxes", &ran.f32(0)[..4 * n], by_score.as_flattened());
}

fn losses(report: &mut Report, case: Case<'_>) {
    let (losses, slopes) = smooth_l1_of(case, "input");
    let sum: f64 = losses.iter().map(|v| f64::from(*v)).sum();
    report.compare(case, "loss_sum", &[sum]);
    report.compare(case, "dinput", &slopes);
}

/// Compares the op's learning rates of weights and biases at each recorded scheduler count.
fn rates(report: &mut Report, case: Case<'_>) {
    let (base, factor) = (case.float("base_lr"), case.float("warmup_factor"));
    let shared_warmup = case.attribute("method") == "mlperf_linear";
    let warmup_steps = case.usize("warmup_iters") as u64;
    let start = if shared_warmup { 1.0 - warmup_steps as f64 * factor / base } else { factor };
    let milestones = numbers(case, "steps").iter().map(|m| *m as u64).collect();
    let gamma = case.float("gamma");
    let schedule =
        LrSchedule::Multistep { base, warmup_steps, warmup_factor: start, milestones, gamma };
    let want = case.f64("lr_weight_bias_f64").data;
    let of = |first: i32| {
        let first_step = first as u64;
        let op = ControlStep { shared_warmup, first_step, ..control_step(&schedule) };
        let control = controls(&op).next().expect("a step");
        [1.0, 2.0].map(|factor| control.rate(factor))
    };
    let got: Vec<f32> = case.i32("t").data.into_iter().flat_map(of).collect();
    report.close(case.name(), "lr_weight_bias", &got, &want);
}
