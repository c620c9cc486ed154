//! Golden family `coco_masks`: polygon fill, RLE runs and strings, areas, boxes, overlaps and
//! merges.

use score::{Rle, bbox_iou, encode_mask, mask_iou};

use crate::support::{Case, Report, each_case};

/// Half a unit in the last place: areas, boxes and overlaps are computed in f64 and stored as f32.
const TOLERANCE: f64 = 6e-8;

#[test]
fn coco_masks_match_golden() {
    each_case("coco_masks", TOLERANCE, |report, case| {
        if case.has("poly_xy_f64") {
            polygons(report, case);
        } else if case.has("masks") {
            bitmaps(report, case);
        } else if case.has("boxes_f64") {
            boxes(report, case);
        } else {
            panic!("golden coco_masks: {}: unknown kind", case.name());
        }
    });
}

fn polygons(report: &mut Report, case: Case<'_>) {
    let (h, w) = (case.usize("h") as u32, case.usize("w") as u32);
    let xy = case.f64("poly_xy_f64").data;
    let polygons: Vec<Vec<f64>> =
        ragged(&xy, &case.i32("poly_offsets").indices()).map(<[f64]>::to_vec).collect();
    let objects = ragged(&polygons, &case.i32("part_offsets").indices())
        .map(|parts| Rle::from_polygons(h, w, parts).expect("golden polygons are sound"))
        .collect::<Vec<_>>();

    masks(report, case, &objects);
    let counts = case.i32("rle_counts");
    let want = ragged(&counts.data, &case.i32("rle_counts_offsets").indices())
        .map(|runs| runs.iter().map(|&run| run as u32).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    let got: Vec<Vec<u32>> = objects.iter().map(|o| o.counts.clone()).collect();
    report.exact(case.name(), "rle_counts", &got, &want);
    let crowd: Vec<bool> = case.u8("crowd").data.iter().map(|&c| c != 0).collect();
    let overlap = mask_iou(&objects, &objects, &crowd).concat();
    report.compare(case, "iou_crowd", &overlap);
    let overlap = mask_iou(&objects, &objects, &vec![false; objects.len()]).concat();
    report.compare(case, "iou_nocrowd", &overlap);
    for (tensor, objects, intersect) in
        [("merged_union", &objects[..3], false), ("merged_intersect", &objects[..2], true)]
    {
        let merged = Rle::merge(objects, intersect).expect("masks of one size");
        report.equal(case, tensor, &merged.decode());
    }
}

fn bitmaps(report: &mut Report, case: Case<'_>) {
    let masks_u8 = case.u8("masks");
    let (h, w) = (masks_u8.shape[1], masks_u8.shape[2]);
    let objects: Vec<Rle> =
        masks_u8.data.chunks(h * w).map(|m| encode_mask(h as u32, w as u32, m)).collect();
    masks(report, case, &objects);
    let overlap = mask_iou(&objects, &objects, &vec![false; objects.len()]).concat();
    report.compare(case, "iou", &overlap);
}

fn boxes(report: &mut Report, case: Case<'_>) {
    let boxes: Vec<[f64; 4]> =
        case.f64("boxes_f64").data.chunks_exact(4).map(|b| [b[0], b[1], b[2], b[3]]).collect();
    let crowd: Vec<bool> = case.u8("crowd").data.iter().map(|&c| c != 0).collect();
    let overlap = bbox_iou(&boxes, &boxes, &crowd).concat();
    report.compare(case, "iou", &overlap);
}

/// The checks for all mask cases: conversion to and from bitmaps and strings, areas and boxes.
fn masks(report: &mut Report, case: Case<'_>, objects: &[Rle]) {
    let name = case.name();
    let bitmaps = case.u8("masks");
    let pixels = bitmaps.shape[1] * bitmaps.shape[2];
    for (object, bitmap) in objects.iter().zip(bitmaps.data.chunks(pixels)) {
        report.exact(name, "masks", &object.decode(), bitmap);
        // Unlike the runs of a bitmap, pycocotools' runs of a polygon may be empty.
        let again = encode_mask(object.height, object.width, bitmap);
        report.exact(name, "masks (encoded)", &again.decode(), bitmap);
    }
    let strings = case.u8("rle_string").data;
    let strings: Vec<&str> = ragged(&strings, &case.i32("rle_string_offsets").indices())
        .map(|s| std::str::from_utf8(s).expect("RLE strings are ASCII"))
        .collect();
    let got: Vec<String> = objects.iter().map(Rle::to_leb).collect();
    report.exact(
        name,
        "rle_string",
        &got,
        &strings.iter().map(ToString::to_string).collect::<Vec<_>>(),
    );
    for (object, string) in objects.iter().zip(&strings) {
        let read = Rle::from_leb(object.height, object.width, string).expect("golden string");
        report.exact(name, "rle_string (read)", &read.counts, &object.counts);
    }
    let areas: Vec<i32> = objects.iter().map(|o| o.area() as i32).collect();
    report.exact(name, "area", &areas, &case.i32("area").data);
    let bboxes = objects.iter().map(Rle::to_bbox).collect::<Vec<_>>().concat();
    report.close(name, "bbox_xywh", &bboxes, &case.f32("bbox_xywh").data);
}

/// The slices of `flat` between consecutive offsets.
fn ragged<'a, T>(flat: &'a [T], offsets: &[usize]) -> impl Iterator<Item = &'a [T]> {
    offsets.windows(2).map(|o| &flat[o[0]..o[1]]).collect::<Vec<_>>().into_iter()
}
