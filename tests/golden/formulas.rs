//! Comparisons shared by the families of several projects, which differ in names and rules.

use engine::config::PasteRule;
use kernels::Role;
use kernels::boxes::{Box4, as_boxes, decode, encode};
use kernels::coco::encode_runs;
use kernels::losses::{giou_loss, smooth_l1};
use kernels::on_cpu::run_updating;
use kernels::ops::control_step::{Control, ControlStep, LrSchedule};
use kernels::ops::roi_align::RoiAlign;
use kernels::ops::roi_levels::RoiLevels;
use kernels::paste::paste_mask;

use crate::convert::{Ran, array, count, floats, host, index, numbered};
use crate::support::{Case, Report};

/// Encodes and decodes box deltas; the arguments are the tensor names of the boxes, their targets,
/// and the deltas between them. Returns the decoded boxes.
pub(crate) fn coder(
    report: &mut Report,
    case: Case<'_>,
    [boxes, targets, encoded]: [&str; 3],
    plus_one: bool,
) -> Vec<Box4> {
    let weights = array(case, "weights");
    let (boxes, targets) = (case.f32(boxes).data, case.f32(targets).data);
    let pairs = as_boxes(&boxes).iter().zip(as_boxes(&targets));
    let deltas: Vec<Box4> = pairs.map(|(b, t)| encode(b, t, &weights, plus_one)).collect();
    report.compare(case, encoded, deltas.as_flattened());
    if case.has("roundtrip") {
        let pairs = as_boxes(&boxes).iter().zip(&deltas);
        let back: Vec<Box4> = pairs.map(|(b, d)| decode(b, d, &weights, plus_one)).collect();
        report.compare(case, "roundtrip", back.as_flattened());
    }
    let deltas = case.f32("deltas");
    let of_each = as_boxes(&deltas.data).chunks_exact(deltas.shape[1] / 4);
    let decoded: Vec<Box4> = as_boxes(&boxes)
        .iter()
        .zip(of_each)
        .flat_map(|(b, deltas)| deltas.iter().map(|d| decode(b, d, &weights, plus_one)))
        .collect();
    report.compare(case, "decoded", decoded.as_flattened());
    decoded
}

/// Values and derivatives of the smooth L1 loss.
pub(crate) fn smooth_l1_of(case: Case<'_>, pred: &str) -> (Vec<f32>, Vec<f32>) {
    let beta = case.float("beta") as f32;
    let (pred, target) = (case.f32(pred).data, case.f32("target").data);
    pred.iter().zip(&target).map(|(p, t)| smooth_l1(p - t, beta)).unzip()
}

/// The GIoU loss of each row, and its derivative with respect to the corners.
pub(crate) fn giou_rows(report: &mut Report, case: Case<'_>, slope_tolerance: f64) {
    let (pred, target) = (case.f32("pred").data, case.f32("target").data);
    let pairs = as_boxes(&pred).iter().zip(as_boxes(&target));
    let (losses, slopes): (Vec<f32>, Vec<Box4>) = pairs.map(|(p, t)| giou_loss(*p, *t)).unzip();
    report.compare(case, "loss", &losses);
    report.compare_within(case, "dpred", slopes.as_flattened(), slope_tolerance);
}

/// Compares the levels of the boxes of several images, the features pooled from these levels, and
/// the gradients of all maps.
pub(crate) fn pool_by_level(
    report: &mut Report,
    case: Case<'_>,
    op: RoiLevels,
    boxes_of_image: &str,
    (aligned, spatial_scales): (bool, Vec<f32>),
    tolerance: f64,
) {
    let (mut boxes, mut image_idx) = (Vec::new(), Vec::new());
    for (image, name) in (0..).zip(numbered(case, boxes_of_image)) {
        let own = case.f32(&name);
        image_idx.extend(vec![image; own.shape[0]]);
        boxes.extend(own.data);
    }
    let rows = image_idx.len();
    let boxes = floats(Role::Box, &[rows, 4], boxes);
    let image_idx = index(&[rows], image_idx);
    let levels = Ran::new(case.name(), op, vec![boxes.clone(), image_idx.clone()]);
    report.equal(case, "level", levels.i32(0));
    let op = RoiAlign {
        pooled: case.usize("output"),
        sampling_ratio: case.usize("sampling_ratio"),
        aligned,
        spatial_scales,
        gradient_scale: 1.0,
    };
    let inputs = [boxes, image_idx, index(&[rows], levels.i32(0).to_vec())];
    pool(report, case, case, op, inputs, &case.f32("dy").data, tolerance);
}

/// Pools RoIs from the maps of `source`, and compares the map gradients that the case contains.
pub(crate) fn pool(
    report: &mut Report,
    case: Case<'_>,
    source: Case<'_>,
    op: RoiAlign,
    [boxes, image_idx, levels]: [kernels::cpu::HostTensor; 3],
    dy: &[f32],
    tolerance: f64,
) {
    let maps = numbered(source, "feat");
    let map = |name: &String| host(Role::Activation, &source.f32(name));
    let mut inputs: Vec<_> = maps.iter().map(map).collect();
    assert_eq!(maps.len(), op.spatial_scales.len(), "{}", case.name());
    let rows = count(image_idx.desc.len());
    inputs.extend([boxes, image_idx, levels, rows]);
    let ran = Ran::new(case.name(), op, inputs);
    report.compare_within(case, "y", ran.f32(0), tolerance);
    for (level, name) in numbered(case, "dfeat").iter().enumerate() {
        report.compare_within(case, name, &ran.grad(dy, level).data, tolerance);
    }
}

/// Compares the pasted probabilities, if they were recorded, and the pixels inside each mask.
pub(crate) fn paste(
    report: &mut Report,
    case: Case<'_>,
    [height, width]: [usize; 2],
    rule: PasteRule,
    binary: &str,
) {
    let (boxes, masks, inside) = (case.f32("boxes").data, case.f32("masks"), case.u8(binary).data);
    let soft = if case.has("soft") { case.f32("soft").data } else { vec![] };
    let (side, threshold) = (masks.shape[1], case.float("threshold") as f32);
    let objects = as_boxes(&boxes).iter().zip(masks.data.chunks_exact(side * side));
    let mut soft = soft.chunks_exact(height * width);
    for ((bbox, mask), inside) in objects.zip(inside.chunks_exact(height * width)) {
        let pasted = paste_mask(mask, side, *bbox, height, width, rule);
        if let Some(soft) = soft.next() {
            report.close(case.name(), "soft", &pasted.soft_image(), soft);
        }
        let bitmap = pasted.bitmap(threshold);
        report.exact(case.name(), binary, &bitmap.pixels, inside);
        report.exact(case.name(), "runs", &pasted.runs(threshold), &encode_runs(&bitmap));
    }
}

/// A step control op with only a schedule: no warm-up, clipping or loss scaling.
pub(crate) fn control_step(schedule: &LrSchedule) -> ControlStep {
    ControlStep {
        schedule: schedule.clone(),
        clip_norm: 0.0,
        growth_interval: 0,
        dynamic: false,
        shared_warmup: false,
        first_step: 0,
        count_skipped: false,
        micro_steps: 1,
    }
}

/// The values that the op passes to the optimizer, step by step.
pub(crate) fn controls(op: &ControlStep) -> impl Iterator<Item = Control> {
    let one = floats(Role::Scalar, &[1], vec![1.0]);
    let inputs = [one.clone(), count(1)];
    let zero = index(&[1], vec![0]);
    let mut state = [zero.clone(), one, zero.clone(), zero];
    std::iter::repeat_with(move || {
        let control = run_updating(op, &inputs, &mut state).expect("it runs");
        Control::read(control[0].as_f32())
    })
}
