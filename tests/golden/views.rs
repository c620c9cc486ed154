//! Golden families `d2_data` and `tv_transforms`: resizes, crops, flips, rotations by multiples of
//! 90 degrees and large-scale jitter of both libraries, each expressed as one view.

use dali::store::Segmentation;
use engine::view::extent;
use kernels::Role;
use kernels::boxes::{ImageSize, as_boxes, clip};
use kernels::cpu::HostTensor;
use kernels::ops::transform_boxes::TransformBoxes;
use kernels::view::{Axis, View};
use serde_json::Value;

use crate::convert::{self, Ran, count, floats, index, plain_preprocess};
use crate::support::{Case, Report, each_case};

/// Tolerance of box corners, which are f32 in onegraph but f64 in the recording.
const TOLERANCE: f64 = 1e-5;

pub(crate) fn d2_data() {
    compare("d2_data", |case| {
        let transforms = case.has("image_out").then(|| case.attribute("transforms"))?;
        let image = &case.u8("image").shape;
        let mut view = plain([image[0] as i32, image[1] as i32]);
        for transform in transforms.as_array().expect("a list") {
            apply(&mut view, transform);
        }
        Some(Files {
            view,
            image: "image",
            made: "image_out",
            boxes: "boxes_xyxy",
            moved: "boxes_out",
        })
    });
}

/// The view of a whole image at its own size.
fn plain(size: [i32; 2]) -> View {
    View::whole(size, size)
}

/// Adds a detectron2 transform to the view, after the transforms that the view already contains.
fn apply(view: &mut View, transform: &Value) {
    let number = |name: &str| transform[name].as_i64().expect("a number") as i32;
    let cut = |axis: &mut Axis, first: i32, most: i32| {
        let length = most.min(axis.resized - first);
        if axis.resized == axis.source {
            // Without resizing, the window is the crop.
            *axis = Axis { start: first, window: length, resized: length, ..*axis };
        } else {
            axis.offset = first;
        }
        axis.network = length;
    };
    match transform["type"].as_str().expect("a name") {
        "ResizeTransform" => {
            let resize = |axis: Axis, to: i32| Axis { resized: to, network: to, ..axis };
            (view.y, view.x) = (resize(view.y, number("new_h")), resize(view.x, number("new_w")));
        }
        "CropTransform" => {
            cut(&mut view.y, number("y0"), number("h"));
            cut(&mut view.x, number("x0"), number("w"));
        }
        "HFlipTransform" => view.x.mirrored = 1,
        "PadTransform" | "NoOpTransform" => {}
        other => panic!("unknown transform {other}"),
    }
}

#[test]
fn torchvision_transforms_match_golden() {
    compare("tv_transforms", |case| {
        let image = &case.u8("image_u8_hwc").shape;
        let mut view = plain([image[0] as i32, image[1] as i32]);
        let params = case.attribute("params");
        let number = |name: &str| params[name].as_i64().expect("a number") as i32;
        match case.attribute("kind").as_str().expect("a name") {
            "crop" | "fixed_size_crop" => {
                let cut = |axis: Axis, start: i32, window: i32| Axis {
                    start,
                    window,
                    resized: window,
                    network: window,
                    ..axis
                };
                view.y = cut(view.y, number("top"), number("height"));
                view.x = cut(view.x, number("left"), number("width"));
            }
            "hflip" => view.x.mirrored = 1,
            "vflip" => view.y.mirrored = 1,
            "rot90" => view.turn(number("k") as u32),
            // Skipped: resizes, which the family `resize_transform` tests, and `iou_crop`, which
            // drops boxes whose centre is outside.
            _ => return None,
        }
        let (image, made) = ("image_u8_hwc", "out_image_u8_hwc");
        Some(Files { view, image, made, boxes: "boxes", moved: "out_boxes" })
    });
}

/// A view, and the tensors of a case before and after it.
struct Files {
    view: View,
    image: &'static str,
    made: &'static str,
    boxes: &'static str,
    moved: &'static str,
}

fn compare(name: &'static str, files: impl Fn(Case<'_>) -> Option<Files>) {
    each_case(name, TOLERANCE, |report, case| {
        let Some(files) = files(case) else { return report.not_due() };
        pixels(report, case, &files);
        boxes(report, case, &files);
        if case.has("in_poly_xy") {
            boxes_of_masks(report, case, &files);
        }
    });
}

fn row(view: &View) -> HostTensor {
    index(&[1, View::LEN], view.row().to_vec())
}

/// Number of padding columns to the left of a flipped image: both libraries flip the padding as
/// well, but in onegraph it stays on the right.
fn shift(case: Case<'_>, files: &Files) -> usize {
    let columns = case.u8(files.made).shape[1];
    if files.view.x.mirrored == 0 { 0 } else { columns - files.view.network()[1] as usize }
}

/// Compares every byte of images resized with Pillow's filter.
fn pixels(report: &mut Report, case: Case<'_>, files: &Files) {
    let (image, made) = (case.u8(files.image), case.u8(files.made));
    let [height, width] = files.view.network().map(|side| side as usize);
    let op = plain_preprocess([height, width]);
    let inputs = vec![convert::pixels(image.data), row(&files.view), count(1)];
    let got = Ran::new(case.name(), op, inputs);
    let (columns, left) = (made.shape[1], shift(case, files));
    let lines = made.data.chunks_exact(3 * columns).take(height);
    let want: Vec<f32> = lines
        .flat_map(|line| &line[3 * left..3 * (left + width)])
        .map(|byte| f32::from(*byte))
        .collect();
    report.exact(case.name(), files.made, got.f32(0), &want);
}

/// Compares boxes, clipped to the image.
fn boxes(report: &mut Report, case: Case<'_>, files: &Files) {
    let (before, after) = (case.f32(files.boxes), case.f32(files.moved));
    moved(report, case, files, &before.data, (files.moved, &after.data));
}

/// Compares the boxes of polygons cropped to the image, for objects that are inside it.
fn boxes_of_masks(report: &mut Report, case: Case<'_>, files: &Files) {
    let (values, after) = (case.f32("in_poly_xy").data, case.f32("poly_boxes_out").data);
    let [rings, objects] =
        ["in_poly_offsets", "in_poly_instance_offsets"].map(|name| case.i32(name).data);
    let shown = |axis: Axis| {
        let at = |pixel: i32| axis.start as f32 + pixel as f32 / axis.ratio();
        [at(axis.offset), at(axis.offset + axis.network)]
    };
    let [[y1, y2], [x1, x2]] = files.view.axes().map(shown);
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for (object, want) in objects.windows(2).zip(after.chunks_exact(4)) {
        let rings = &rings[object[0] as usize..=object[1] as usize];
        let of_ring = |ends: &[i32]| &values[ends[0] as usize..ends[1] as usize];
        let mask = Segmentation::Polygons(rings.windows(2).map(of_ring).collect());
        let found = extent(&mask, [x1, y1, x2, y2], files.view.y.source as usize);
        assert_eq!(found.is_some(), want[2] > want[0], "{}: {found:?}", case.name());
        if let Some(found) = found {
            ours.extend(found);
            theirs.extend_from_slice(want);
        }
    }
    moved(report, case, files, &ours, ("poly_boxes_out", &theirs));
}

/// Compares boxes of the source image after moving them to the network image.
fn moved(
    report: &mut Report,
    case: Case<'_>,
    files: &Files,
    before: &[f32],
    (name, after): (&str, &[f32]),
) {
    let objects = before.len() / 4;
    let inputs = vec![
        floats(Role::Box, &[1, objects, 4], before.to_vec()),
        index(&[1], vec![objects as i32]),
        row(&files.view),
    ];
    let got = Ran::new(case.name(), TransformBoxes { plus_one: false }, inputs);
    let [height, width] = files.view.network();
    let size = ImageSize { height, width };
    let left = shift(case, files) as f32;
    let moved = as_boxes(got.f32(0)).iter().map(|bbox| {
        let [x1, y1, x2, y2] = clip(bbox, size, false);
        [x1 + left, y1, x2 + left, y2]
    });
    let moved: Vec<[f32; 4]> = moved.collect();
    report.close(case.name(), name, moved.as_flattened(), after);
}
