//! RoIAlign by hand, by a property, and against sample-by-sample sums.

use super::RoiAlign;
use crate::case::hand::{ints, run, tensor};
use crate::case::{normal, uniform};
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

fn align(op: &RoiAlign, feature: HostTensor, rois: &[[f32; 4]]) -> Vec<f32> {
    let m = rois.len();
    let inputs = [
        feature,
        tensor(&[m, 4], rois.concat()),
        ints(&vec![0; m]),
        ints(&vec![0; m]),
        ints(&[m as i32]),
    ];
    run(op, &inputs)[0].as_f32().to_vec()
}

fn ramp(height: usize, width: usize) -> HostTensor {
    let values = (0..height * width).map(|i| (i % width) as f32 + 10.0 * (i / width) as f32);
    let desc = TensorDesc::new(Role::Activation, &[1, height, width, 1]);
    HostTensor::f32(desc, values.collect())
}

/// By hand: on f(y, x) = 10 y + x a bin's mean is f at its centre.
#[test]
fn a_ramp_gives_bin_centres() {
    let op = RoiAlign {
        pooled: 2,
        sampling_ratio: 2,
        aligned: false,
        spatial_scales: vec![0.5],
        gradient_scale: 1.0,
    };
    let y = align(&op, ramp(8, 8), &[[2.0, 4.0, 10.0, 12.0]]);
    assert_eq!(y, [32.0, 34.0, 52.0, 54.0]);
    let aligned = RoiAlign { aligned: true, ..op };
    let y = align(&aligned, ramp(8, 8), &[[2.0, 4.0, 10.0, 12.0]]);
    assert_eq!(y, [26.5, 28.5, 46.5, 48.5]);
}

/// A box of no size is one feature pixel, unless aligned; a box far outside is 0.
#[test]
fn degenerate_boxes() {
    let op = RoiAlign {
        pooled: 1,
        sampling_ratio: 0,
        aligned: false,
        spatial_scales: vec![1.0],
        gradient_scale: 1.0,
    };
    let boxes = [[3.0, 2.0, 3.0, 2.0], [100.0, 100.0, 120.0, 120.0]];
    assert_eq!(align(&op, ramp(8, 8), &boxes), [28.5, 0.0]);
    let aligned = RoiAlign { aligned: true, ..op };
    assert_eq!(align(&aligned, ramp(8, 8), &boxes)[0], 0.0);
}

/// Boxes that are not finite end, and harm no other RoI.
#[test]
fn boxes_that_are_not_finite() {
    for sampling_ratio in [0, 2] {
        let op = RoiAlign {
            pooled: 2,
            sampling_ratio,
            aligned: true,
            spatial_scales: vec![1.0],
            gradient_scale: 1.0,
        };
        let inf = f32::INFINITY;
        let boxes =
            [[f32::NAN; 4], [0.0, 0.0, inf, inf], [-inf, 0.0, inf, 2.0], [1.0, 1.0, 5.0, 5.0]];
        let y = align(&op, ramp(8, 8), &boxes);
        assert_eq!(y[12..], align(&op, ramp(8, 8), &boxes[3..])[..]);
    }
}

/// The mean of samples, one by one, in f64.
fn by_samples(op: &RoiAlign, feature: &HostTensor, roi: [f32; 4], bin: [usize; 2]) -> f64 {
    let (height, width) = (feature.desc.dim(1) as f64, feature.desc.dim(2) as f64);
    let offset = if op.aligned { 0.5 } else { 0.0 };
    let c = roi.map(|v| f64::from(v) * f64::from(op.spatial_scales[0]) - offset);
    let least = if op.aligned { f64::NEG_INFINITY } else { 1.0 };
    let size = [(c[3] - c[1]).max(least), (c[2] - c[0]).max(least)];
    let step = size.map(|s| s / op.pooled as f64);
    let grid = step.map(|s| match op.sampling_ratio {
        0 => s.ceil() as usize,
        n => n,
    });
    let value = |y: f64, x: f64| f64::from(feature.as_f32()[(y * width + x) as usize]);
    let mut sum = 0.0;
    for i in 0..grid[0] * grid[1] {
        let at = |axis: usize, start: f64, i: usize| {
            start + step[axis] * (bin[axis] as f64 + (i as f64 + 0.5) / grid[axis] as f64)
        };
        let (y, x) = (at(0, c[1], i / grid[1]), at(1, c[0], i % grid[1]));
        if y < -1.0 || y > height || x < -1.0 || x > width {
            continue;
        }
        let (y, x) = (y.clamp(0.0, height - 1.0), x.clamp(0.0, width - 1.0));
        let (y1, x1) = ((y.floor() + 1.0).min(height - 1.0), (x.floor() + 1.0).min(width - 1.0));
        let (v, u) = (y - y.floor(), x - x.floor());
        let top = (1.0 - u) * value(y.floor(), x.floor()) + u * value(y.floor(), x1);
        let low = (1.0 - u) * value(y1, x.floor()) + u * value(y1, x1);
        sum += (1.0 - v) * top + v * low;
    }
    sum / (grid[0] * grid[1]).max(1) as f64
}

#[test]
fn equals_the_mean_of_samples() {
    let feature = normal(Role::Activation, &[1, 13, 17, 1], 1, 1.0);
    let corners = uniform(Role::Box, &[40, 4], 2, -10.0, 80.0);
    for (sampling_ratio, aligned) in [(2, false), (3, true), (0, false), (0, true)] {
        let op = RoiAlign {
            pooled: 5,
            sampling_ratio,
            aligned,
            spatial_scales: vec![0.25],
            gradient_scale: 1.0,
        };
        for c in corners.as_f32().chunks_exact(4) {
            let roi = [c[0].min(c[2]), c[1].min(c[3]), c[0].max(c[2]), c[1].max(c[3])];
            let y = align(&op, feature.clone(), &[roi]);
            for (i, &y) in y.iter().enumerate() {
                let expected = by_samples(&op, &feature, roi, [i / 5, i % 5]);
                assert!((f64::from(y) - expected).abs() < 2e-5, "{roi:?} {i}: {y} {expected}");
            }
        }
    }
}
