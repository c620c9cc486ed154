//! Golden families `box_ops` and `box_coder`.

use kernels::Role;
use kernels::boxes::{
    Box4, BoxColumns, ImageSize, area, as_boxes, clip, giou, height, iou, is_small, width,
};
use kernels::ops::decode_proposals::DecodeProposals;
use kernels::ops::encode_boxes::EncodeBoxes;
use kernels::ops::giou_loss::GiouLoss;

use crate::convert::{Ran, array, count, floats, host, index, numbers, repeated};
use crate::formulas::{coder, giou_rows};
use crate::support::{Case, Report, each_case};

/// f32 against f64: 1.2e-7 measured, with room for small boxes far from the origin, where the
/// differences of coordinates lose digits.
const TOLERANCE: f64 = 2e-6;
/// A side of an image that cuts no box off.
const HUGE: i32 = 1 << 20;

#[test]
fn golden_box_ops() {
    each_case("box_ops", TOLERANCE, |report, case| {
        if case.name().starts_with("distance_iou") || case.name().starts_with("complete_iou") {
            report.not_due();
        } else if case.has("iou") {
            overlaps(report, case);
        } else if case.has("dpred") {
            giou_losses(report, case);
        } else if case.has("clipped") {
            clip_and_small(report, case);
        } else {
            panic!("golden box_ops: {} is of no known kind", case.name());
        }
    });
}

fn overlaps(report: &mut Report, case: Case<'_>) {
    let (a, b) = (case.f32("a").data, case.f32("b").data);
    let (a, b) = (as_boxes(&a), as_boxes(&b));
    let pairs = |f: &dyn Fn(&Box4, &Box4) -> f32| -> Vec<f32> {
        a.iter().flat_map(|a| b.iter().map(move |b| f(a, b))).collect()
    };
    let want = case.f32("iou").data;
    let got = pairs(&|a, b| iou(a, b, false));
    report.close(case.name(), "iou", &got, &want);
    // The function of matching and suppression: the same bits, a row at once.
    let columns = BoxColumns::new(b, false);
    let mut rows = vec![f32::NAN; want.len()];
    for (a, row) in a.iter().zip(rows.chunks_exact_mut(b.len().max(1))) {
        columns.iou_into(a, 0, row);
    }
    report.exact(case.name(), "iou by columns", &rows, &got);
    report.compare(case, "giou", &pairs(&giou));
    let areas: Vec<f32> = b.iter().map(|b| area(b, false)).collect();
    report.compare(case, "area_b", &areas);
}

/// The loss of each row and its derivative by the corners, then the op, which takes deltas: zeros,
/// with the predictions themselves as RoIs.
fn giou_losses(report: &mut Report, case: Case<'_>) {
    giou_rows(report, case, TOLERANCE);
    let (pred, target) = (case.f32("pred").data, case.f32("target").data);
    let (loss, dpred) = (case.f32("loss").data, case.f32("dpred").data);
    let rows = loss.len();
    let op = GiouLoss { weights: [1.0; 4], ipg: 1 };
    let inputs = |pred: &[f32], target: &[f32]| {
        let len = pred.len() / 4;
        let boxes = |values: &[f32]| floats(Role::Box, &[len, 4], values.to_vec());
        let deltas = floats(Role::Activation, &[len, 4], vec![0.0; 4 * len]);
        let rest = [repeated(len, 1), repeated(len, 0), count(1)];
        [vec![deltas, boxes(pred), boxes(target)], rest.to_vec()].concat()
    };
    let all = Ran::new(case.name(), op, inputs(&pred, &target));
    // The op divides by the rows; the file's gradient is that of the sum.
    let sum: f64 = loss.iter().map(|&l| f64::from(l)).sum();
    report.close(case.name(), "loss", all.f32(0), &[sum / rows as f64]);
    let by_deltas: Vec<f32> = as_boxes(&pred)
        .iter()
        .zip(as_boxes(&dpred))
        .flat_map(|(p, d)| {
            let [w, h] = [width(p, false), height(p, false)];
            let (dx, dy) = ((d[0] + d[2]) * w, (d[1] + d[3]) * h);
            [dx, dy, 0.5 * (d[2] - d[0]) * w, 0.5 * (d[3] - d[1]) * h]
        })
        .collect();
    report.close(case.name(), "dpred", &all.grad(&[rows as f32], 0).data, &by_deltas);
    let single = |(p, t): (&Box4, &Box4)| Ran::new(case.name(), op, inputs(p, t)).f32(0)[0];
    let losses: Vec<f32> = as_boxes(&pred).iter().zip(as_boxes(&target)).map(single).collect();
    report.close(case.name(), "loss (op, row)", &losses, &loss);
}

fn clip_and_small(report: &mut Report, case: Case<'_>) {
    let size = numbers(case, "size_hw");
    let size = ImageSize { height: size[0] as i32, width: size[1] as i32 };
    let boxes = case.f32("boxes");
    let clipped: Vec<Box4> = as_boxes(&boxes.data).iter().map(|b| clip(b, size, false)).collect();
    let want = case.f32("clipped").data;
    report.exact(case.name(), "clipped", clipped.as_flattened(), &want);
    // The two names that the family has for the least side.
    for (name, min_size) in [("keep_1e3", case.float("min_size") as f32), ("keep_16", 16.0)] {
        let keep: Vec<usize> =
            (0..clipped.len()).filter(|&i| !is_small(&clipped[i], min_size, false)).collect();
        let want_keep = case.i32(name).indices();
        report.exact(case.name(), name, &keep, &want_keep);
        let rows = clipped.len();
        let deltas = vec![0.0; 4 * rows];
        let ran = decode_op(case, &boxes.data, &deltas, [1.0; 4], size, min_size);
        report.close(case.name(), "clipped (op)", ran.f32(0), &want);
        let keep: Vec<usize> = (0..rows).filter(|&i| ran.f32(1)[i] >= 0.0).collect();
        report.exact(case.name(), &format!("{name} (op)"), &keep, &want_keep);
    }
}

/// Decodes `deltas` (`K` of each box) with the RPN's op: a map of one column, K anchors per cell.
fn decode_op(
    case: Case<'_>,
    boxes: &[f32],
    deltas: &[f32],
    weights: [f32; 4],
    size: ImageSize,
    min_size: f32,
) -> Ran {
    let rows = boxes.len() / 4;
    let per_box = deltas.len() / boxes.len();
    let anchors: Vec<f32> =
        as_boxes(boxes).iter().flat_map(|b| vec![*b; per_box].concat()).collect();
    let total = rows * per_box;
    let inputs = vec![
        index(&[1, total], (0..total as i32).collect()),
        floats(Role::Box, &[total, 4], anchors),
        index(&[1, 2], vec![size.height, size.width]),
        floats(Role::Activation, &[1, rows, 1, per_box], vec![0.0; total]),
        floats(Role::Activation, &[1, rows, 1, 4 * per_box], deltas.to_vec()),
    ];
    let op = DecodeProposals { plus_one: false, min_size, score_threshold: 0.0, weights };
    Ran::new(case.name(), op, inputs)
}

/// By the formula and by the ops.
#[test]
fn golden_box_coder() {
    each_case("box_coder", TOLERANCE, |report, case| {
        coder(report, case, ["proposals", "gt", "encoded", "clip"], false);
        let (weights, proposals, gt) =
            (array(case, "weights"), case.f32("proposals"), case.f32("gt").data);
        let rows = proposals.shape[0];
        let inputs = vec![
            host(Role::Box, &proposals),
            repeated(rows, 0),
            index(&[rows], (0..rows as i32).collect()),
            floats(Role::Box, &[1, rows, 4], gt.clone()),
            repeated(rows, 1),
        ];
        let ran = Ran::new(case.name(), EncodeBoxes { weights, plus_one: false }, inputs);
        report.compare(case, "encoded", ran.f32(0));
        report.exact(case.name(), "gt (op)", ran.f32(1), &gt);
        // The op clips to the image, at 0 if nowhere else.
        let size = ImageSize { height: HUGE, width: HUGE };
        let want = case.f32("decoded").data;
        let clipped: Vec<Box4> = as_boxes(&want).iter().map(|b| clip(b, size, false)).collect();
        let deltas = case.f32("deltas").data;
        let ran = decode_op(case, &proposals.data, &deltas, weights, size, 0.0);
        report.close(case.name(), "decoded (op)", ran.f32(0), clipped.as_flattened());
    });
}
