//! Families model_eval and tv_maskrcnn_v2_heads: detections and pasted masks, also with
//! weights that went through files.

use configs::{NormKind, PasteRule};
use engine::weights::{Dialect, ExportForm};
use kernels::paste::paste_mask;

use crate::model_setup::{GoldenModel, Recorded};
use crate::support::{Case, Family, Report};

pub(crate) fn run(of: Recorded) {
    let (Some(mut model), Some(golden)) = (GoldenModel::open(of), of.open("eval")) else { return };
    compare(&model, &golden);
    // Norms of constants detect the same as those that were trained.
    let parts = &mut model.config.model;
    parts.backbone.norm = NormKind::FrozenBatchNorm;
    for norm in [&mut parts.fpn.norm, &mut parts.box_head.norm, &mut parts.mask_head.norm] {
        *norm = norm.map(|_| NormKind::FrozenBatchNorm);
    }
    compare(&model, &golden);
}

/// With the weights exported in each form and under each project's names.
pub(crate) fn exchanged(of: Recorded) {
    for dialect in [Dialect::Torchvision, Dialect::Detectron2] {
        for form in [ExportForm::Torch, ExportForm::Safetensors] {
            let (Some(model), Some(golden)) = (GoldenModel::open(of), of.open("eval")) else {
                return;
            };
            compare(&model.through(form, dialect), &golden);
        }
    }
}

fn compare(model: &GoldenModel, golden: &Family) {
    let mut loaded = model.detection();
    loaded.executor.run(&mut loaded.state);
    let e = &loaded.executor;
    let f32 = |name: &str| e.f32(name).expect("a kept tensor");
    let i32 = |name: &str| e.i32(name).expect("a kept tensor");
    let mut report = Report::new(model.of.family("eval"), 1e-4);
    let case = golden.case("eval");
    let side = 2 * model.config.model.mask_head.pooled;
    let mut at = 0;
    for i in 0..model.num_images() {
        let key = |what: &str| format!("{what}_{i}");
        let labels = case.i32(&key("labels")).data;
        let n = labels.len();
        report.exact(case.name(), &key("counts"), &[i32("det_counts")[i]], &[n as i32]);
        report.exact(case.name(), &key("labels"), &i32("det_labels")[at..at + n], &labels);
        let boxes = &f32("det_boxes")[4 * at..4 * (at + n)];
        let want = case.f32(&key("boxes_resized")).data;
        report.close(case.name(), &key("boxes_resized"), boxes, &want);
        let scores = &f32("det_scores")[at..at + n];
        report.close(case.name(), &key("scores"), scores, &case.f32(&key("scores")).data);
        if model.of == Recorded::Keypoint {
            let peaks = &f32("keypoint_peaks")[4 * at * model.keypoints()..];
            keypoints(&mut report, model, case, i, [boxes, peaks]);
            at += n;
            continue;
        }
        let area = side * side;
        let probs = &f32("mask_probs")[at * area..(at + n) * area];
        report.close(case.name(), &key("mask_probs"), probs, &case.f32(&key("mask_probs")).data);
        masks(model, i, boxes, probs, golden, &mut report);
        at += n;
    }
    report.done_case();
    report.finish();
}

/// Keypoints and their logits, in the network's image and in the original one.
fn keypoints(
    report: &mut Report,
    model: &GoldenModel,
    case: Case<'_>,
    image: usize,
    [boxes, peaks]: [&[f32]; 2],
) {
    let ((h, w), (nh, nw)) = (model.image_sizes()[image], model.network_sizes()[image]);
    let ratios = [w as f32 / nw as f32, h as f32 / nh as f32];
    let (mut network, mut original, mut scores) = (Vec::new(), Vec::new(), Vec::new());
    let (peaks, _) = peaks.as_chunks::<4>();
    for (b, peaks) in boxes.chunks_exact(4).zip(peaks.chunks_exact(model.keypoints())) {
        for [across, down, logit, _] in peaks {
            let at = [b[0] + across * (b[2] - b[0]), b[1] + down * (b[3] - b[1])];
            network.extend([at[0], at[1], 1.0]);
            original.extend([at[0] * ratios[0], at[1] * ratios[1], 1.0]);
            scores.push(*logit);
        }
    }
    for (name, got) in
        [("keypoints_resized", network), ("keypoints", original), ("keypoints_scores", scores)]
    {
        let name = format!("{name}_{image}");
        report.close(case.name(), &name, &got, &case.f32(&name).data);
    }
}

/// Boxes and pasted masks in the pixels of the original image.
fn masks(
    model: &GoldenModel,
    image: usize,
    boxes: &[f32],
    probs: &[f32],
    golden: &Family,
    report: &mut Report,
) {
    let case = golden.case("eval");
    let side = 2 * model.config.model.mask_head.pooled;
    let (h, w) = model.image_sizes()[image];
    let (nh, nw) = model.network_sizes()[image];
    let (ry, rx) = (h as f32 / nh as f32, w as f32 / nw as f32);
    let scaled: Vec<f32> =
        boxes.iter().enumerate().map(|(k, v)| v * if k % 2 == 0 { rx } else { ry }).collect();
    let want = case.f32(&format!("boxes_{image}")).data;
    report.close(case.name(), &format!("boxes_{image}"), &scaled, &want);
    let binary = case.u8(&format!("masks_binary_{image}")).data;
    for (d, bbox) in scaled.chunks_exact(4).enumerate() {
        let bbox = [bbox[0], bbox[1], bbox[2], bbox[3]];
        let prob = &probs[d * side * side..(d + 1) * side * side];
        let pasted = paste_mask(prob, side, bbox, h, w, PasteRule::IntegerBox);
        let (soft, got) = (pasted.soft_image(), pasted.bitmap(0.5).pixels);
        let want = &binary[d * h * w..(d + 1) * h * w];
        // A pixel within 1e-4 of the threshold may fall on either side of it.
        let wrong =
            (0..h * w).filter(|p| got[*p] != want[*p] && (soft[*p] - 0.5).abs() >= 1e-4).count();
        report.exact(case.name(), &format!("masks_binary_{image}[{d}]"), &[wrong], &[0]);
    }
}
