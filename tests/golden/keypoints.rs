//! Families tv_keypoint_ops and d2_kpops: heatmap cells, losses, maps, peaks and views of
//! keypoints.

use engine::model::roi_heads::seen_keypoints;
use kernels::Role;
use kernels::cpu::HostTensor;
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::keypoint_maps::KeypointMaps;
use kernels::ops::keypoint_peaks::KeypointPeaks;
use kernels::ops::keypoint_targets::KeypointTargets;
use kernels::ops::softmax_cross_entropy::SoftmaxCrossEntropy;
use kernels::view::View;
use serde_json::Value;

use crate::convert::{
    Ran, channels_last, channels_second, count, floats, host, index, permute, repeated,
};
use crate::model_configs::{number, usizes};
use crate::support::{Case, Report, Tensor, each_case};

const TOLERANCE: f64 = 2e-5;
#[test]
fn torchvision_keypoint_ops_match_golden() {
    each_case("tv_keypoint_ops", TOLERANCE, |report, case| {
        match case.attribute("kind").as_str().expect("a word") {
            "heatmap_targets" => {
                targets(report, case, "rois", case.usize("heatmap_size"));
            }
            "keypoint_loss" => {
                let logits = permute(&case.f32("logits"), &[0, 3, 1, 2]);
                let grad = permute(&case.f32("dlogits"), &[0, 3, 1, 2]).data;
                loss(report, case, "rois", &logits, |got| (got, grad.clone()));
            }
            "predictor" => predictor(report, case),
            "decode" => {
                let maps = permute(&case.f32("maps"), &[0, 3, 1, 2]);
                let peaks = peaks(case, "rois", &maps);
                let want = case.f32("keypoints").data;
                let points: Vec<f32> = want.chunks_exact(3).flat_map(|p| [p[0], p[1]]).collect();
                let got: Vec<f32> = peaks.iter().flat_map(|p| [p[0], p[1]]).collect();
                report.close(case.name(), "keypoints", &got, &points);
                let got: Vec<f32> = peaks.iter().map(|p| p[2]).collect();
                report.compare(case, "scores", &got);
            }
            "hflip" => {
                let width = case.usize("width") as i32;
                let mut view = View::whole([width; 2], [width; 2]);
                view.x.mirrored = 1;
                seen(report, case, &view, "flipped", "flip_inds");
            }
            other => panic!("{}: {other}", case.name()),
        }
    });
}

#[test]
fn detectron2_keypoint_ops_match_golden() {
    each_case("d2_kpops", TOLERANCE, |report, case| {
        let name = case.name();
        let is = |start: &str| name.starts_with(start);
        if is("keypoints_to_heatmap") {
            targets(report, case, "boxes", case.usize("heatmap_size"));
        } else if is("keypoint_loss") {
            let every = |got: Vec<f32>| got.into_iter().step_by(7).collect::<Vec<_>>();
            let want = case.f32("dlogits_every7").data;
            let logits = case.f32("logits");
            loss(report, case, "boxes", &logits, |got| (every(got), want.clone()));
        } else if is("heatmaps_to_keypoints") {
            let got = peaks(case, "boxes", &case.f32("maps"));
            let want = case.f32("out").data;
            for (i, what) in ["x", "y", "logit", "share"].into_iter().enumerate() {
                let of = |peaks: &[[f32; 4]]| peaks.iter().map(|p| p[i]).collect::<Vec<_>>();
                report.close(name, what, &of(&got), &of(want.as_chunks().0));
            }
        } else if is("keypoint_transform") {
            seen(report, case, &view_of(case), "out", "flip_indices");
        } else if is("select_visible") {
            visible(report, case);
        } else {
            // `detectron2_oks_matches_golden` compares scores, `model_eval.rs` results.
            assert!(is("oks_") || is("instances_to_coco_json"), "{name}");
            report.not_due();
        }
    });
}

/// The heatmap cells of the keypoints of each box; all boxes are in one image and belong to
/// separate objects.
fn cells(case: Case<'_>, boxes: &str, side: usize) -> Ran {
    let (boxes, keypoints) = (case.f32(boxes), case.f32("keypoints"));
    let rows = boxes.shape[0];
    let shape = [&[1][..], &keypoints.shape].concat();
    let inputs = vec![
        host(Role::Box, &boxes),
        repeated(rows, 0),
        index(&[rows], (0..rows as i32).collect()),
        count(rows),
        floats(Role::Box, &shape, keypoints.data),
    ];
    Ran::new(case.name(), KeypointTargets { side }, inputs)
}

fn targets(report: &mut Report, case: Case<'_>, boxes: &str, side: usize) {
    let ran = cells(case, boxes, side);
    let (target, valid) = (case.i32("target").data, case.i32("valid").data);
    let want = target.iter().zip(&valid).map(|(cell, valid)| if *valid != 0 { *cell } else { -1 });
    report.exact(case.name(), "cells", ran.i32(0), &want.collect::<Vec<_>>());
}

/// Compares the indices of the kept proposals, which have a heatmap cell for at least one keypoint.
fn visible(report: &mut Report, case: Case<'_>) {
    let ran = cells(case, "boxes", 56);
    let per_box = case.f32("keypoints").shape[1];
    let rows = ran.i32(0).chunks_exact(per_box).enumerate();
    let kept = rows.filter(|(_, cells)| cells.iter().any(|cell| *cell >= 0));
    let kept: Vec<i32> = kept.map(|(row, _)| row as i32).collect();
    report.equal(case, "kept", &kept);
}

/// The loss of `logits [N, K, S, S]`, and its gradient at the positions for which `pick` returns
/// recorded values.
fn loss(
    report: &mut Report,
    case: Case<'_>,
    boxes: &str,
    logits: &Tensor<f32>,
    pick: impl Fn(Vec<f32>) -> (Vec<f32>, Vec<f32>),
) {
    let side = logits.shape[2];
    let cells = cells(case, boxes, side);
    let rows = cells.i32(0).len();
    let stated = case.attributes().get("normalizer").and_then(Value::as_f64);
    let inputs = vec![
        floats(Role::Activation, &[rows, side * side], logits.data.clone()),
        index(&[rows], cells.i32(0).to_vec()),
        repeated(rows, 0),
        count(1),
    ];
    // The op divides only by an integer: with 1 it computes the sum, to which `scale` is applied
    // below.
    let rows_per_image = stated.map(|_| 1);
    let scale = 1.0 / stated.unwrap_or(1.0) as f32;
    let op = SoftmaxCrossEntropy { ipg: 1, rows_per_image };
    let ran = Ran::new(case.name(), op, inputs);
    report.compare(case, "loss", &[scale * ran.f32(0)[0]]);
    let (got, want) = pick(ran.grad(&[scale], 0).data);
    report.close(case.name(), "dlogits", &got, &want);
}

/// Compares the transposed convolution, and its maps upsampled by two.
fn predictor(report: &mut Report, case: Case<'_>) {
    let inputs = vec![
        host(Role::Activation, &case.f32("x")),
        host(Role::Weight, &channels_last(&case.f32("w"))),
        host(Role::Master, &case.f32("b")),
    ];
    let op = ConvTranspose { pad: case.usize("pad"), relu: false, counted: false, masked: false };
    let low = Ran::new(case.name(), op, inputs);
    report.compare(case, "lowres", low.f32(0));
    let rows = low.shape(0)[0];
    let map: HostTensor = floats(Role::Activation, low.shape(0), low.f32(0).to_vec());
    let maps = Ran::new(case.name(), KeypointMaps, vec![map, count(rows)]);
    let rows_first = |name: &str| permute(&case.f32(name), &[0, 3, 1, 2]).data;
    report.close(case.name(), "y", maps.f32(0), &rows_first("y"));
    let of_low = maps.grad(&rows_first("dy"), 0).data;
    report.compare(case, "dx", &low.grad(&of_low, 0).data);
    let of_weights = channels_second(&low.grad(&of_low, 1)).data;
    report.compare(case, "dw", &of_weights);
    report.compare(case, "db", &low.grad(&of_low, 2).data);
}

/// x, y in pixels, logit and softmax probability of the peak of each map `[N, K, S, S]`.
fn peaks(case: Case<'_>, boxes: &str, maps: &Tensor<f32>) -> Vec<[f32; 4]> {
    let boxes = case.f32(boxes);
    let (rows, pixels) = (maps.shape[0] * maps.shape[1], maps.shape[2] * maps.shape[3]);
    let inputs = vec![
        floats(Role::Activation, &[rows, pixels], maps.data.clone()),
        host(Role::Box, &boxes),
        count(boxes.shape[0]),
    ];
    let ran = Ran::new(case.name(), KeypointPeaks, inputs);
    let (peaks, _) = ran.f32(0).as_chunks::<4>();
    let placed = peaks.iter().enumerate().map(|(i, [x, y, logit, share])| {
        let b = &boxes.data[4 * (i / maps.shape[1])..];
        [b[0] + x * (b[2] - b[0]), b[1] + y * (b[3] - b[1]), *logit, *share]
    });
    placed.collect()
}

/// Compares keypoints in a view, and their left/right partners in a flipped view; labelled
/// keypoints are recorded with visibility 1 or 2.
fn seen(report: &mut Report, case: Case<'_>, view: &View, recorded: &str, partners: &str) {
    let partners = usizes(case.attribute(partners));
    let (points, want) = (case.f32("keypoints").data, case.f32(recorded).data);
    let (points, _) = points.as_chunks::<3>();
    let objects = points.chunks_exact(partners.len());
    let got: Vec<f32> = objects
        .flat_map(|object| seen_keypoints(object, &partners, view, 0.0).into_flattened())
        .collect();
    let want: Vec<f32> = want.chunks_exact(3).flat_map(|p| [p[0], p[1], p[2].min(1.0)]).collect();
    report.close(case.name(), recorded, &got, &want);
}

/// The recorded list of transforms as a view.
fn view_of(case: Case<'_>) -> View {
    let side = |name: &str| usizes(case.attribute(name)).iter().map(|v| *v as i32).collect();
    let size: Vec<i32> = side("image_hw");
    let mut view = View::whole([size[0], size[1]], [size[0], size[1]]);
    for step in case.attribute("transforms").as_array().expect("a list") {
        let get = |key: &str| number(step, key) as i32;
        match step["type"].as_str().expect("a word") {
            "ResizeTransform" => {
                for (axis, new) in [(&mut view.y, get("new_h")), (&mut view.x, get("new_w"))] {
                    (axis.resized, axis.network) = (new, new);
                }
            }
            "HFlipTransform" => view.x.mirrored = 1,
            "CropTransform" => {
                let along = [(&mut view.y, "y0", "h"), (&mut view.x, "x0", "w")];
                for (axis, first, length) in along {
                    let (first, length) = (get(first), get(length));
                    axis.network = length;
                    // The offset is applied before the flip.
                    let mirrored = axis.mirrored != 0;
                    axis.offset = if mirrored { axis.resized - first - length } else { first };
                }
            }
            other => panic!("{}: {other}", case.name()),
        }
    }
    view
}
