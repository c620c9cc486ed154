//! Detections, pasted masks and keypoints of the recorded models, including with weights that were
//! exported and loaded again.

use engine::config::{BodyOutput, NormKind};
use engine::weights::{Dialect, ExportForm};
use kernels::paste::paste_mask;
use score::encode_mask;

use crate::model_configs::{LSJ, TORCHVISION, trained};
use crate::model_roi::{background_last, of_stage};
use crate::model_train::thinned;
use crate::models::{Loaded, Model};
use crate::support::{Case, Report, cases_of};

#[test]
fn model_eval_matches_golden() {
    trained().chain([&LSJ]).filter_map(Model::open).for_each(|model| compare(&model));
}

/// Detections with frozen norms equal those with trained norms.
#[test]
fn frozen_norm_model_eval_matches_golden() {
    for mut model in TORCHVISION.into_iter().filter_map(Model::open) {
        let parts = &mut model.config.model;
        parts.backbone.norm = NormKind::FrozenBatchNorm;
        for norm in [&mut parts.fpn.norm, &mut parts.box_head.norm, &mut parts.mask_head.norm] {
            *norm = norm.map(|_| NormKind::FrozenBatchNorm);
        }
        compare(&model);
    }
}

/// Detections with weights that were exported in each format and with the names of each project.
#[test]
fn exchanged_weights_eval_matches_golden() {
    for of in TORCHVISION {
        for dialect in [Dialect::Torchvision, Dialect::Detectron2] {
            for form in [ExportForm::Torch, ExportForm::Safetensors] {
                let Some(model) = Model::open(of) else { return };
                compare(&model.through(form, dialect));
            }
        }
    }
}

fn compare(model: &Model) {
    let of = model.of;
    cases_of(&of.family("eval"), "eval", of.tolerances.eval, |report, case| {
        let loaded = model.detection().run();
        let e = &loaded;
        if of.is_detectron2() {
            maps(report, model, case, e);
        }
        let boxes_name = match of.dialect {
            Dialect::Detectron2 => "boxes_network",
            Dialect::Benchmark => "boxes_resized_image",
            _ => "boxes_resized",
        };
        let capacity = e.f32("proposal_scores").len() / model.num_images();
        let area = mask_side(model).pow(2);
        let mut at = 0;
        for i in 0..model.num_images() {
            let key = |what: &str| format!("{what}_{i}");
            let count = e.i32("proposal_counts")[i] as usize;
            let proposals = &e.f32("proposals")[4 * i * capacity..][..4 * count];
            report.compare(case, &key("proposals"), proposals);
            let labels: Vec<i32> = match of.is_detectron2() {
                true => case.i32(&key("classes")).data.iter().map(|class| class + 1).collect(),
                false => case.i32(&key("labels")).data,
            };
            let n = labels.len();
            report.exact(case.name(), &key("counts"), &[e.i32("det_counts")[i]], &[n as i32]);
            let scores = case.f32(&key("scores")).data;
            let mut order: Vec<usize> = (0..n).collect();
            if of.dialect == Dialect::Benchmark {
                // The reference lists detections class by class, onegraph by decreasing score.
                order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            }
            let labels: Vec<i32> = order.iter().map(|&d| labels[d]).collect();
            report.exact(case.name(), &key("labels"), &e.i32("det_labels")[at..at + n], &labels);
            let mut check = |what: &str, got: &[f32]| {
                let (want, width) = (case.f32(&key(what)).data, got.len() / n.max(1));
                let want = order.iter().flat_map(|&d| want[d * width..(d + 1) * width].to_vec());
                report.close(case.name(), &key(what), got, &want.collect::<Vec<_>>());
            };
            check("scores", &e.f32("det_scores")[at..at + n]);
            let boxes = &e.f32("det_boxes")[4 * at..4 * (at + n)];
            check(boxes_name, boxes);
            if model.has_keypoints() {
                let per_object = model.config.model.keypoint_head.keypoints;
                let peaks = &e.f32("keypoint_peaks")[4 * at * per_object..][..4 * n * per_object];
                keypoints(report, model, case, i, [boxes, peaks]);
            } else {
                let probs = &e.f32("mask_probs")[at * area..(at + n) * area];
                check("mask_probs", probs);
                masks(report, model, case, i, &order, [boxes, probs]);
            }
            at += n;
        }
    });
}

/// Compares a map of the backbone, and the class logits of each cascade stage.
fn maps(report: &mut Report, model: &Model, case: Case<'_>, e: &Loaded) {
    let [theirs, ours] = match model.config.model.backbone.output {
        BodyOutput::C4 => ["feature_res4", "C4"],
        BodyOutput::Dc5 => ["feature_res5", "C5"],
        BodyOutput::Pyramid => ["feature_p2", "P2"],
    };
    thinned(report, case, theirs, e.f32(ours), model.of.tolerances.eval);
    for stage in model.stages() {
        let ours = of_stage("class_logits", stage);
        let theirs = stage.map_or(ours.clone(), |stage| format!("class_logits_stage{stage}"));
        let want = case.f32(&theirs).data;
        let logits = background_last(&e.f32(&ours)[..want.len()], model.classes + 1);
        report.close(case.name(), &theirs, &logits, &want);
    }
}

/// Side of a mask before it is pasted.
fn mask_side(model: &Model) -> usize {
    let model = &model.config.model;
    if model.backbone.is_c4() { model.mask_head.pooled } else { 2 * model.mask_head.pooled }
}

/// Boxes in the pixels of the original image.
fn in_file(model: &Model, image: usize, boxes: &[f32]) -> Vec<f32> {
    let ((h, w), (nh, nw)) = (model.images[image], model.network[image]);
    let ratios = [w as f32 / nw as f32, h as f32 / nh as f32];
    boxes.iter().enumerate().map(|(k, v)| v * ratios[k % 2]).collect()
}

/// Compares boxes, and keypoints in the network image and in the original image; torchvision
/// records the logit of each keypoint in a separate tensor, detectron2 its softmax probability with
/// the coordinates.
fn keypoints(
    report: &mut Report,
    model: &Model,
    case: Case<'_>,
    image: usize,
    [boxes, peaks]: [&[f32]; 2],
) {
    let scaled = in_file(model, image, boxes);
    report.close(case.name(), "boxes", &scaled, &case.f32(&format!("boxes_{image}")).data);
    let (peaks, _) = peaks.as_chunks::<4>();
    let is_torchvision = model.of.is_torchvision();
    let in_network = if is_torchvision { "keypoints_resized" } else { "keypoints_network" };
    if is_torchvision {
        let logits: Vec<f32> = peaks.iter().map(|[_, _, logit, _]| *logit).collect();
        report.compare(case, &format!("keypoints_scores_{image}"), &logits);
    }
    let per_object = model.config.model.keypoint_head.keypoints;
    for (name, boxes) in [(in_network, boxes), ("keypoints", &scaled)] {
        let of_box = |(b, peaks): (&[f32], &[[f32; 4]])| -> Vec<[f32; 3]> {
            let at = |low: usize, share: f32| b[low] + share * (b[low + 2] - b[low]);
            let score = |share: f32| if is_torchvision { 1.0 } else { share };
            peaks.iter().map(|[x, y, _, share]| [at(0, *x), at(1, *y), score(*share)]).collect()
        };
        let got: Vec<[f32; 3]> =
            boxes.chunks_exact(4).zip(peaks.chunks_exact(per_object)).flat_map(of_box).collect();
        let name = format!("{name}_{image}");
        let recorded = case.f32(&name).data;
        let (want, _) = recorded.as_chunks::<3>();
        for (k, what) in ["x", "y", "score"].iter().enumerate() {
            let of = |points: &[[f32; 3]]| points.iter().map(|p| p[k]).collect::<Vec<_>>();
            report.close(case.name(), &format!("{name}: {what}"), &of(&got), &of(want));
        }
    }
}

/// Compares boxes, masks and run lengths in pixels of the original image: object `i` of onegraph
/// corresponds to row `order[i]` of the recording.
fn masks(
    report: &mut Report,
    model: &Model,
    case: Case<'_>,
    image: usize,
    order: &[usize],
    [boxes, probs]: [&[f32]; 2],
) {
    let ((h, w), rule) = (model.images[image], model.config.model.detections.paste_rule);
    let scaled = in_file(model, image, boxes);
    let want = case.f32(&format!("boxes_{image}")).data;
    let binary = case.u8(&format!("masks_binary_{image}")).data;
    let area = probs.len() / order.len().max(1);
    for (d, (bbox, &theirs)) in scaled.as_chunks().0.iter().zip(order).enumerate() {
        report.close(case.name(), "boxes", bbox, &want[4 * theirs..4 * theirs + 4]);
        let pasted = paste_mask(&probs[d * area..][..area], area.isqrt(), *bbox, h, w, rule);
        let (soft, got) = (pasted.soft_image(), pasted.bitmap(0.5).pixels);
        let want = &binary[theirs * h * w..(theirs + 1) * h * w];
        let slack = model.of.tolerances.mask_slack;
        let differs = |p: &usize| got[*p] != want[*p] && (soft[*p] - 0.5).abs() >= slack;
        let wrong = (0..h * w).filter(differs).count();
        report.exact(case.name(), &format!("masks_binary_{image}[{d}]"), &[wrong], &[0]);
        if case.has(&format!("rle_counts_{image}")) {
            let counts = case.u8(&format!("rle_counts_{image}")).data;
            let offsets = case.i32(&format!("rle_offsets_{image}")).indices();
            let string = encode_mask(h as u32, w as u32, want).to_leb();
            let recorded = &counts[offsets[theirs]..offsets[theirs + 1]];
            report.exact(case.name(), "rle_counts", string.as_bytes(), recorded);
        }
    }
}
