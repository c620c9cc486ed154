//! Family mlperf_ops, image part: resizing, flipping, mask targets, pasting and pooling.

use dali::order::resized_size;
use engine::config::{MaskTargetRule, PasteRule, ResizeRounding};
use kernels::Role;
use kernels::ops::mask_targets::MaskTargets;
use kernels::ops::preprocess::Preprocess;
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::transform_boxes::TransformBoxes;
use kernels::view::View;

use crate::convert::{
    Ran, array, count, f32s, flag, flipped, floats, host, index, numbers, pixels, plain_preprocess,
    repeated, views,
};
use crate::formulas::{self, pool};
use crate::mlperf_ops::{TOLERANCE, image_size};
use crate::support::{Case, Report};

/// A pair (width, height) among the attributes, as (height, width).
fn size(case: Case<'_>, name: &str) -> [i32; 2] {
    let wh = numbers(case, name);
    [wh[1] as i32, wh[0] as i32]
}

/// Compares the boxes and polygons of an image that is resized to the size `new`.
fn moved(report: &mut Report, case: Case<'_>, new: [i32; 2], flip: bool, suffix: &str) {
    let source = image_size(case);
    let boxes = case.f32("boxes");
    let inputs = vec![
        floats(Role::Box, &[1, boxes.shape[0], 4], boxes.data.clone()),
        count(boxes.shape[0]),
        flipped([([[source.height, source.width], new], flip)]),
    ];
    let view = View::of(inputs[2].as_i32(), 0);
    let ran = Ran::new(case.name(), TransformBoxes { plus_one: true }, inputs);
    report.close(case.name(), "boxes", ran.f32(0), &case.f32(&format!("boxes_{suffix}")).data);
    let vertices = case.f32("poly_xy").data;
    let place = |(i, v): (usize, &f32)| [view.x, view.y][i % 2].place(*v, true) as f32;
    let got: Vec<f32> = vertices.iter().enumerate().map(place).collect();
    report.close(case.name(), "polygons", &got, &case.f32(&format!("poly_xy_{suffix}")).data);
}

pub(crate) fn hflip(report: &mut Report, case: Case<'_>) {
    moved(report, case, size(case, "image_wh"), true, "flipped");
}

pub(crate) fn resize_targets(report: &mut Report, case: Case<'_>) {
    moved(report, case, size(case, "new_wh"), false, "resized");
}

pub(crate) fn resize_rule(report: &mut Report, case: Case<'_>) {
    let (min, max) = (case.usize("min_size"), case.usize("max_size"));
    let got: Vec<i32> = case
        .i32("in_wh")
        .data
        .chunks_exact(2)
        .flat_map(|wh| {
            let (w, h) = (wh[0] as u32, wh[1] as u32);
            let (h, w) = resized_size(h, w, min, max, ResizeRounding::HalfEven);
            [w as i32, h as i32]
        })
        .collect();
    report.equal(case, "out_wh", &got);
}

/// Compares the bytes with Pillow's, and the normalised image.
pub(crate) fn pil_resize(report: &mut Report, case: Case<'_>) {
    let (source, network) = (size(case, "in_wh"), size(case, "out_wh"));
    let (min, max) = (case.usize("min_size"), case.usize("max_size"));
    let [height, width] = source.map(|v| v as u32);
    let by_rule = resized_size(height, width, min, max, ResizeRounding::HalfEven);
    report.exact(case.name(), "size", &[by_rule.0 as i32, by_rule.1 as i32], &network);
    let resized = |op: Preprocess| {
        let inputs = vec![pixels(case.u8("image_hwc").data), views([[source, network]]), count(1)];
        Ran::new(case.name(), op, inputs).f32(0).to_vec()
    };
    let plain = plain_preprocess(network.map(|v| v as usize));
    let want: Vec<f32> = case.u8("resized_hwc").data.iter().map(|v| f32::from(*v)).collect();
    report.exact(case.name(), "resized_hwc", &resized(plain), &want);
    let mean = array(case, "mean_bgr");
    let got = resized(Preprocess { mean, bgr: true, ..plain });
    let want = case.f32("normalised_bgr_hwc").data;
    report.close(case.name(), "normalised_bgr_hwc", &got, &want);
}

pub(crate) fn mask_targets(report: &mut Report, case: Case<'_>) {
    let op = MaskTargets {
        side: case.usize("M"),
        rule: MaskTargetRule::CocoPolygon,
        plus_one: true,
        min_side: 1.0,
    };
    polygon_targets(report, case, "y", [1000; 2], op);
}

/// The targets of polygons in pixels of a network image of this size, one object per RoI.
pub(crate) fn polygon_targets(
    report: &mut Report,
    case: Case<'_>,
    tensor: &str,
    size: [i32; 2],
    op: MaskTargets,
) {
    let boxes = case.f32("boxes");
    let rows = boxes.shape[0];
    let xy = case.f32("poly_xy").data;
    let pairs = |name: &str| -> Vec<[i32; 2]> {
        case.i32(name).data.windows(2).map(|o| [o[0], o[1] - o[0]]).collect()
    };
    let (parts, objects) = (pairs("poly_offsets"), pairs("poly_instance_offsets"));
    let segments: Vec<[i32; 3]> = objects.iter().map(|&[first, len]| [0, first, len]).collect();
    let inputs = vec![
        host(Role::Box, &boxes),
        repeated(rows, 0),
        index(&[rows], (0..rows as i32).collect()),
        count(rows),
        index(&[1, rows, 3], segments.concat()),
        index(&[1, parts.len(), 2], parts.concat()),
        floats(Role::Mask, &[1, xy.len()], xy),
        index(&[1, 0], vec![]),
        // No resize: source and network image have the same size.
        views([[size; 2]]),
    ];
    let ran = Ran::new(case.name(), op, inputs);
    let want: Vec<f32> = case.u8(tensor).data.iter().map(|v| f32::from(*v)).collect();
    report.exact(case.name(), tensor, ran.f32(0), &want);
}

pub(crate) fn mask_paste(report: &mut Report, case: Case<'_>) {
    let image = size(case, "image_wh").map(|v| v as usize);
    formulas::paste(report, case, image, PasteRule::IntegerBox, "y");
}

/// Pools RoIs on all four levels; maps and gradients were recorded for only one of the two sizes.
pub(crate) fn pooler(report: &mut Report, case: Case<'_>) {
    let pooled = case.f32("y").shape[1];
    let boxes = case.f32("boxes");
    let rows = boxes.shape[0];
    let op = RoiAlign {
        pooled,
        sampling_ratio: case.usize("sampling_ratio"),
        aligned: flag(case, "aligned"),
        spatial_scales: f32s(case, "scales"),
        gradient_scale: 1.0,
    };
    let with_maps = |of: &Case<'_>| of.name().starts_with("pooler") && of.has("feat0");
    let source = Some(case).filter(with_maps).or_else(|| case.siblings().find(with_maps));
    let source = source.expect("a case with maps");
    // dy is sin(i), where i is the flat index in [R, C, P, P]; our layout is channels last.
    let channels = case.f32("y").shape[3];
    let bins = pooled * pooled;
    let dy: Vec<f32> = (0..rows * bins * channels)
        .map(|i| {
            let (row, bin, channel) = (i / (bins * channels), i / channels % bins, i % channels);
            ((row * channels + channel) * bins + bin) as f64
        })
        .map(|at| at.sin() as f32)
        .collect();
    let inputs =
        [host(Role::Box, &boxes), repeated(rows, 0), index(&[rows], case.i32("level").data)];
    pool(report, case, source, op, inputs, &dy, TOLERANCE);
}
