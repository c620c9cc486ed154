//! Golden family `tv_color`: torchvision's colour transforms, each expressed as one affine map of
//! RGB.
//!
//! torchvision truncates to bytes after each transform and also truncates intermediate grey values,
//! but our single map never truncates: so bytes differ by up to 1, plus the weight of a truncated
//! grey value. torchvision rotates the hue in HSV, onegraph in YIQ, which preserves luma: hues
//! agree within 0.09 of a turn, but colours do not. torchvision's colour jitter of float images
//! ends with a hue transform, and is skipped.

use engine::view::ColourMap;
use kernels::Role;
use kernels::ops::preprocess::{COLOURS, Preprocess};

use crate::convert::{Ran, count, floats, pixels, plain_preprocess, views};
use crate::support::{Case, Report, each_case};

/// Tolerance of floats; torch's own f32 error is 1.4e-6.
const TOLERANCE: f64 = 2e-6;
/// Difference between the hues of HSV and of YIQ, in turns; the smallest recorded rotation is 0.1.
const HUE_TOLERANCE: f64 = 0.09;
/// Minimum difference between the largest and the smallest channel (0 to 255) of a colour whose hue
/// is compared.
const CHROMA: f64 = 60.0;

#[test]
fn torchvision_colour_ops_match_golden() {
    each_case("tv_color", TOLERANCE, |report, case| {
        let kind = case.attribute("kind").as_str().expect("a name");
        let is_bytes = case.attribute("dtype") == "u8";
        match (kind, is_bytes) {
            ("color_jitter", true) => jitter(report, case),
            ("color_jitter", false) => report.not_due(),
            (_, true) => bytes(report, case, kind, ["image_u8_hwc", "out_image_u8_hwc"], None),
            (_, false) => real(report, case, kind),
        }
    });
}

/// Compares each transform of a colour jitter, applied to the bytes recorded before that transform.
fn jitter(report: &mut Report, case: Case<'_>) {
    let order = case.attribute("order").as_array().expect("a list");
    let mut before = "image_u8_hwc".to_owned();
    for (i, kind) in order.iter().map(|kind| kind.as_str().expect("a name")).enumerate() {
        let after = format!("stage{}_u8_hwc", i + 1);
        let factor = case.attribute("params")[format!("{kind}_factor")].as_f64();
        bytes(report, case, kind, [&before, &after], factor);
        before = after;
    }
}

/// The colour map of transform `kind` for this image and factor, and the weight of grey values in
/// the map.
fn map(case: Case<'_>, kind: &str, image: &[f64], factor: Option<f64>) -> (ColourMap, f64) {
    let factor = || factor.unwrap_or_else(|| case.float("factor"));
    let greys = image.chunks_exact(3).map(|p| 0.2989 * p[0] + 0.587 * p[1] + 0.114 * p[2]);
    let mean_grey = greys.sum::<f64>() / (image.len() / 3) as f64;
    match kind {
        "brightness" => (ColourMap::brightness(factor()), 0.0),
        "contrast" => (ColourMap::contrast(factor(), mean_grey), 1.0 - factor()),
        "saturation" => (ColourMap::saturation(factor()), 1.0 - factor()),
        "grayscale" => (ColourMap::saturation(0.0), 1.0),
        "hue" => (ColourMap::hue(factor()), 0.0),
        other => panic!("unknown transform {other}"),
    }
}

/// Compares the op's unrounded results for byte images with torchvision's truncated bytes.
fn bytes(report: &mut Report, case: Case<'_>, kind: &str, names: [&str; 2], factor: Option<f64>) {
    let [image, after] = names.map(|name| case.u8(name));
    let (height, width) = (image.shape[0], image.shape[1]);
    let as_f64 = |bytes: &[u8]| bytes.iter().map(|v| f64::from(*v)).collect::<Vec<_>>();
    let (before, after) = (as_f64(&image.data), as_f64(&after.data));
    let (map, grey) = map(case, kind, &before, factor);
    let op = Preprocess { colours: true, ..plain_preprocess([height, width]) };
    let size = [height as i32, width as i32];
    let inputs = vec![
        pixels(image.data),
        views([[size, size]]),
        count(1),
        floats(Role::Scalar, &[1, COLOURS], map.row().to_vec()),
    ];
    let got = Ran::new(case.name(), op, inputs);
    if kind == "hue" {
        let got: Vec<f64> = got.f32(0).iter().map(|v| f64::from(*v)).collect();
        hues(report, case, &got, &after);
        return;
    }
    let middle: Vec<f64> = got.f32(0).iter().map(|v| f64::from(*v) - 0.5).collect();
    let largest = after.iter().copied().fold(1.0, f64::max);
    let tolerance = (0.5 + grey.abs() + 1e-3) / largest;
    report.close_within(case.name(), names[1], &middle, &after, tolerance);
}

/// Compares the results of the map for floats from 0 to 1.
fn real(report: &mut Report, case: Case<'_>, kind: &str) {
    let [image, after] = ["image_hwc", "out_image_hwc"]
        .map(|name| case.f32(name).data.into_iter().map(f64::from).collect::<Vec<_>>());
    let rows = map(case, kind, &image, None).0.row().map(f64::from);
    let changed = |pixel: &[f64]| {
        let of = |row: &[f64]| row[0] * pixel[0] + row[1] * pixel[1] + row[2] * pixel[2] + row[3];
        [0, 4, 8].map(|at| of(&rows[at..]).clamp(0.0, 1.0))
    };
    let got: Vec<f64> = image.chunks_exact(3).flat_map(changed).collect();
    if kind == "hue" {
        let [got, after] = [got, after].map(|v| v.iter().map(|v| 255.0 * v).collect::<Vec<_>>());
        hues(report, case, &got, &after);
    } else {
        report.close(case.name(), "out_image_hwc", &got, &after);
    }
}

/// Compares the hues of colours that are far from grey in both results.
fn hues(report: &mut Report, case: Case<'_>, got: &[f64], want: &[f64]) {
    let both = got.chunks_exact(3).zip(want.chunks_exact(3));
    let hues = both.filter_map(|(got, want)| hue(got).zip(hue(want)));
    let apart: Vec<f64> = hues.map(|(a, b)| ((a - b + 1.5) % 1.0 - 0.5).abs()).collect();
    assert!(apart.len() > got.len() / 60, "{}: too few hues", case.name());
    report.close_within(case.name(), "hue", &apart, &vec![0.0; apart.len()], HUE_TOLERANCE);
}

/// A colour's hue in HSV, in turns; `None` near grey.
fn hue(colour: &[f64]) -> Option<f64> {
    let (least, most) = (colour.iter().copied().fold(255.0, f64::min), 0.0);
    let most = colour.iter().copied().fold(most, f64::max);
    let [red, green, blue] = [colour[0], colour[1], colour[2]];
    let chroma = most - least;
    let sixths = match most {
        m if m == red => (green - blue) / chroma,
        m if m == green => (blue - red) / chroma + 2.0,
        _ => (red - green) / chroma + 4.0,
    };
    (chroma >= CHROMA).then(|| (sixths / 6.0).rem_euclid(1.0))
}
