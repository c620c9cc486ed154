//! Golden families `box_ops` and `box_coder`.

use kernels::boxes::{Box4, BoxColumns, ImageSize, area, as_boxes, clip, giou, iou, is_small};

use crate::convert::numbers;
use crate::formulas::{coder, giou_rows};
use crate::support::{Case, Report, each_case};

/// f32 against f64: 1.2e-7 measured, with margin for small boxes far from the origin, where
/// coordinate differences lose precision.
const TOLERANCE: f64 = 2e-6;

#[test]
fn box_ops_match_golden() {
    each_case("box_ops", TOLERANCE, |report, case| {
        if case.name().starts_with("distance_iou") || case.name().starts_with("complete_iou") {
            report.not_due();
        } else if case.has("iou") {
            overlaps(report, case);
        } else if case.has("dpred") {
            giou_rows(report, case, TOLERANCE);
        } else if case.has("clipped") {
            clip_and_small(report, case);
        } else {
            panic!("golden box_ops: {}: unknown kind", case.name());
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
    // `BoxColumns`, with which matching and NMS compute one row at a time, is bit-identical to
    // `iou`.
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

fn clip_and_small(report: &mut Report, case: Case<'_>) {
    let size = numbers(case, "size_hw");
    let size = ImageSize { height: size[0] as i32, width: size[1] as i32 };
    let boxes = case.f32("boxes");
    let clipped: Vec<Box4> = as_boxes(&boxes.data).iter().map(|b| clip(b, size, false)).collect();
    let want = case.f32("clipped").data;
    report.exact(case.name(), "clipped", clipped.as_flattened(), &want);
    // Each case records the boxes kept at two minimum sides.
    for (name, min_size) in [("keep_1e3", case.float("min_size") as f32), ("keep_16", 16.0)] {
        let keep: Vec<usize> =
            (0..clipped.len()).filter(|&i| !is_small(&clipped[i], min_size, false)).collect();
        let want_keep = case.i32(name).indices();
        report.exact(case.name(), name, &keep, &want_keep);
    }
}

/// Tests the functions that the ops call.
#[test]
fn box_coder_matches_golden() {
    each_case("box_coder", TOLERANCE, |report, case| {
        coder(report, case, ["proposals", "gt", "encoded"], false);
    });
}
