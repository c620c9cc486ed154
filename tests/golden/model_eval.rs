//! Families model_eval and tv_maskrcnn_v2_heads: detections and pasted masks, also with
//! weights that went through files.

use engine::config::{NormKind, PasteRule};
use engine::weights::{Dialect, ExportForm};
use kernels::paste::paste_mask;
use score::encode_mask;

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
    let e = &loaded;
    let mut report = Report::new(model.of.family("eval"), 1e-4);
    let case = golden.case("eval");
    let side = 2 * model.config.model.mask_head.pooled;
    let mut at = 0;
    for i in 0..model.num_images() {
        let key = |what: &str| format!("{what}_{i}");
        let labels = case.i32(&key("labels")).data;
        let n = labels.len();
        report.exact(case.name(), &key("counts"), &[e.i32("det_counts")[i]], &[n as i32]);
        report.exact(case.name(), &key("labels"), &e.i32("det_labels")[at..at + n], &labels);
        let boxes = &e.f32("det_boxes")[4 * at..4 * (at + n)];
        let want = case.f32(&key("boxes_resized")).data;
        report.close(case.name(), &key("boxes_resized"), boxes, &want);
        let scores = &e.f32("det_scores")[at..at + n];
        report.compare(case, &key("scores"), scores);
        if model.of == Recorded::Keypoint {
            let peaks = &e.f32("keypoint_peaks")[4 * at * model.keypoints()..];
            keypoints(&mut report, model, case, i, [boxes, peaks]);
            at += n;
            continue;
        }
        let area = side * side;
        let probs = &e.f32("mask_probs")[at * area..(at + n) * area];
        report.compare(case, &key("mask_probs"), probs);
        let (all, rule) = (Vec::from_iter(0..n), PasteRule::IntegerBox);
        let place = (i, [model.image_sizes()[i], model.network_sizes()[i]]);
        masks(&mut report, case, place, &all, [boxes, probs], rule, 1e-4);
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
        report.compare(case, &name, &got);
    }
}

/// Boxes, masks and run lengths in the pixels of the original image, whose size and that in the
/// network are `sizes`: our objects are the rows `order` of the recorded ones. A pixel within
/// `slack` of the threshold may fall on either side of it.
pub(crate) fn masks(
    report: &mut Report,
    case: Case<'_>,
    (image, sizes): (usize, [(usize, usize); 2]),
    order: &[usize],
    [boxes, probs]: [&[f32]; 2],
    rule: PasteRule,
    slack: f32,
) {
    let [(h, w), (nh, nw)] = sizes;
    let ratios = [w as f32 / nw as f32, h as f32 / nh as f32];
    let scaled: Vec<f32> = boxes.iter().enumerate().map(|(k, v)| v * ratios[k % 2]).collect();
    let want = case.f32(&format!("boxes_{image}")).data;
    let binary = case.u8(&format!("masks_binary_{image}")).data;
    let area = probs.len() / order.len().max(1);
    for (d, (bbox, &theirs)) in scaled.as_chunks().0.iter().zip(order).enumerate() {
        report.close(case.name(), "boxes", bbox, &want[4 * theirs..4 * theirs + 4]);
        let pasted = paste_mask(&probs[d * area..][..area], area.isqrt(), *bbox, h, w, rule);
        let (soft, got) = (pasted.soft_image(), pasted.bitmap(0.5).pixels);
        let want = &binary[theirs * h * w..(theirs + 1) * h * w];
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
