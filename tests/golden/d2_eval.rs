//! Family d2_fpn_eval: detections and pasted masks of a narrow Mask R-CNN of detectron2, from raw
//! images.

use engine::config::BodyOutput;
use engine::model::detection_program;

use crate::d2_model::thinned;
use crate::model_eval::masks;
use crate::reference::{Files, Reference};
use crate::support::{Case, Report, cases_of};

/// README of the golden data.
const EVAL_TOLERANCE: f64 = 1e-4;

pub(crate) fn run(of: &'static Files) {
    let Some(model) = Reference::open(of) else { return };
    cases_of(of.eval, "eval", EVAL_TOLERANCE, |report, case| {
        let mut loaded = model.load(&[], detection_program, &vec![0; model.num_images()]);
        loaded.executor.run(&mut loaded.state);
        let e = &loaded;
        let [theirs, ours] = match model.config.model.backbone.output {
            BodyOutput::C4 => ["feature_res4", "C4"],
            BodyOutput::Dc5 => ["feature_res5", "C5"],
            BodyOutput::Pyramid => ["feature_p2", "P2"],
        };
        thinned(report, case, theirs, e.f32(ours), EVAL_TOLERANCE);
        for stage in model.stages() {
            let ours = match stage {
                None | Some(0) => "class_logits".to_string(),
                Some(stage) => format!("class_logits_stage{stage}"),
            };
            let theirs = stage.map_or(ours.clone(), |stage| format!("class_logits_stage{stage}"));
            let (want, width) = (case.f32(&theirs), model.classes + 1);
            let mut logits = e.f32(&ours)[..want.data.len()].to_vec();
            logits.chunks_exact_mut(width).for_each(|row| row.rotate_left(1));
            report.close(case.name(), &theirs, &logits, &want.data);
        }
        let capacity = e.f32("proposal_scores").len() / model.num_images();
        let area = mask_side(&model).pow(2);
        let mut at = 0;
        for i in 0..model.num_images() {
            let key = |what: &str| format!("{what}_{i}");
            let count = e.i32("proposal_counts")[i] as usize;
            let proposals = &e.f32("proposals")[4 * i * capacity..][..4 * count];
            report.compare(case, &key("proposals"), proposals);
            let classes = case.i32(&key("classes")).data;
            let n = classes.len();
            report.exact(case.name(), &key("counts"), &[e.i32("det_counts")[i]], &[n as i32]);
            let got: Vec<i32> =
                e.i32("det_labels")[at..at + n].iter().map(|label| label - 1).collect();
            report.exact(case.name(), &key("classes"), &got, &classes);
            let (scores, boxes) =
                (&e.f32("det_scores")[at..at + n], &e.f32("det_boxes")[4 * at..][..4 * n]);
            report.compare(case, &key("scores"), scores);
            let name = key("boxes_network");
            report.compare(case, &name, boxes);
            if model.config.model.kind.has_keypoints() {
                let per_object = model.config.model.keypoint_head.keypoints;
                let peaks = &e.f32("keypoint_peaks")[4 * at * per_object..][..4 * n * per_object];
                keypoints(report, &model, case, i, [boxes, peaks]);
                at += n;
                continue;
            }
            let probs = &e.f32("mask_probs")[at * area..(at + n) * area];
            report.compare(case, &key("mask_probs"), probs);
            let (all, rule) = (Vec::from_iter(0..n), model.config.model.detections.paste_rule);
            let place = (i, [model.images[i], model.network[i]]);
            masks(report, case, place, &all, [boxes, probs], rule, 0.0);
            at += n;
        }
    });
}

/// Boxes, and keypoints with their shares of the map, in the network's image and in the original.
fn keypoints(
    report: &mut Report,
    model: &Reference,
    case: Case<'_>,
    image: usize,
    [boxes, peaks]: [&[f32]; 2],
) {
    let ((h, w), (nh, nw)) = (model.images[image], model.network[image]);
    let ratios = [w as f32 / nw as f32, h as f32 / nh as f32];
    let scaled: Vec<f32> = boxes.iter().enumerate().map(|(k, v)| v * ratios[k % 2]).collect();
    report.close(case.name(), "boxes", &scaled, &case.f32(&format!("boxes_{image}")).data);
    let (peaks, _) = peaks.as_chunks::<4>();
    let per_object = model.config.model.keypoint_head.keypoints;
    for (name, boxes) in [("keypoints_network", boxes), ("keypoints", &scaled)] {
        let of_box = |(b, peaks): (&[f32], &[[f32; 4]])| -> Vec<[f32; 3]> {
            let at = |low: usize, share: f32| b[low] + share * (b[low + 2] - b[low]);
            peaks.iter().map(|[x, y, _, share]| [at(0, *x), at(1, *y), *share]).collect()
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

/// Side of a mask before it is pasted.
fn mask_side(model: &Reference) -> usize {
    let model = &model.config.model;
    if model.backbone.is_c4() { model.mask_head.pooled } else { 2 * model.mask_head.pooled }
}
