//! Preprocessing by hand, and flips as a property.

use super::{Preprocess, ResizeFilter};
use crate::case::boxes::views;
use crate::case::hand::run;
use crate::case::{floats, index, integers};
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

fn op(height: usize, width: usize) -> Preprocess {
    let (mean, std) = ([1.0, 2.0, 3.0], [1.0, 2.0, 4.0]);
    let filter = ResizeFilter::Bilinear;
    Preprocess {
        height,
        width,
        channels: 3,
        mean,
        std,
        pixel_scale: 1.0,
        bgr: false,
        filter,
        colours: false,
    }
}

fn inputs(pixels: Vec<u8>, source: [i32; 2], network: [i32; 2], turns: i32) -> Vec<HostTensor> {
    vec![
        HostTensor::u8(TensorDesc::new(Role::Pixels, &[1, pixels.len()]), pixels),
        views(source, network, &[turns]),
        index(&[1], [1]),
    ]
}

/// Two pixels side by side, (1, 2, 3) and (5, 10, 7), widened to four and padded.
#[test]
fn two_pixels_by_hand() {
    let inputs = inputs(vec![1, 2, 3, 5, 10, 7], [1, 2], [1, 4], 0);
    let x = run(&op(2, 5), &inputs);
    let (a, b) = ([0.0, 0.0, 0.0], [4.0, 4.0, 1.0]);
    let at = |f: f32| [0, 1, 2].map(|c: usize| a[c] + f * (b[c] - a[c]));
    let row = [at(0.0), at(0.25), at(0.75), at(1.0), [0.0; 3]].concat();
    assert_eq!(x[0].as_f32()[..15], row);
    assert!(x[0].as_f32()[15..].iter().all(|&v| v == 0.0));
}

/// The same two pixels: the blend is rounded to a byte before it is normalised.
#[test]
fn two_pixels_as_pillow_has_them() {
    let inputs = inputs(vec![1, 2, 3, 5, 10, 8], [1, 2], [1, 4], 0);
    let x = run(&Preprocess { filter: ResizeFilter::Pil, ..op(1, 4) }, &inputs);
    let bytes = [[1, 2, 3], [2, 4, 4], [4, 8, 7], [5, 10, 8]];
    let normal = bytes.map(|[r, g, b]| [r - 1, g - 2, b - 3].map(|v: i32| v as f32));
    let expected: Vec<f32> = normal.iter().flat_map(|[r, g, b]| [*r, g / 2.0, b / 4.0]).collect();
    assert_eq!(x[0].as_f32(), expected);
}

/// BGR reverses the channels of the source, not those of mean and std.
#[test]
fn bgr_by_hand() {
    let x = run(&Preprocess { bgr: true, ..op(1, 1) }, &inputs(vec![9, 8, 7], [1, 1], [1, 1], 0));
    assert_eq!(x[0].as_f32(), [6.0, 3.0, 1.5]);
}

/// Red becomes twice the blue, green half of itself and 20, blue more than a byte holds: 14, 24 and
/// 255, before they are normalised, in either order of the channels.
#[test]
fn colours_by_hand() {
    let rows = [[0.0, 0.0, 2.0, 0.0], [0.0, 0.5, 0.0, 20.0], [100.0, 0.0, 0.0, 0.0]];
    let colours = floats(Role::Scalar, &[1, 12], rows.concat());
    let inputs = [inputs(vec![9, 8, 7], [1, 1], [1, 1], 0), vec![colours]].concat();
    for filter in [ResizeFilter::Bilinear, ResizeFilter::Pil] {
        let x = |bgr| run(&Preprocess { bgr, filter, colours: true, ..op(1, 1) }, &inputs);
        assert_eq!(x(false)[0].as_f32(), [13.0, 11.0, 63.0]);
        assert_eq!(x(true)[0].as_f32(), [254.0, 11.0, 2.75]);
    }
}

#[test]
fn a_flip_mirrors_the_columns_within_the_image() {
    for filter in [ResizeFilter::Bilinear, ResizeFilter::Pil] {
        flip_mirrors(filter);
    }
}

fn flip_mirrors(filter: ResizeFilter) {
    let pixels: Vec<u8> =
        integers(&[7 * 11 * 3], 5, 0, 256).as_i32().iter().map(|&v| v as u8).collect();
    let x = |flip| {
        let inputs = inputs(pixels.clone(), [7, 11], [9, 13], flip);
        run(&Preprocess { filter, ..op(10, 16) }, &inputs)[0].as_f32().to_vec()
    };
    let (plain, flipped) = (x(0), x(1));
    for i in 0..10 * 16 {
        let (row, col) = (i / 16, i % 16);
        let mirror = if col < 13 { 12 - col } else { col };
        assert_eq!(plain[3 * i..3 * i + 3], flipped[3 * (row * 16 + mirror)..][..3]);
    }
}
