//! Cases of `roi_align` for the table of ops.

use super::RoiAlign;
use crate::Role;
use crate::case::{OpCase, constant, integers, normal, uniform};
use crate::cpu::{HostData, HostTensor};

/// No RoIs, one, primes, bands of 8 rows and their neighbours, all sampling rules, many bins,
/// invalid boxes, more RoIs and channels than a block takes at once, and a training shape of the
/// box head at a narrow width.
pub fn cases() -> Vec<OpCase> {
    let mut cases = Vec::new();
    for (sampling_ratio, aligned) in [(2, false), (2, true), (0, false), (0, true)] {
        let op = |pooled, levels: usize| RoiAlign {
            pooled,
            sampling_ratio,
            aligned,
            spatial_scales: (0..levels).map(|l| 0.25 / (1 << l) as f32).collect(),
            gradient_scale: 1.0,
        };
        cases.push(case(op(7, 1), [1, 7, 8, 3], 0, 0));
        cases.push(case(op(1, 1), [1, 1, 1, 1], 1, 1));
        cases.push(case(op(5, 2), [2, 9, 11, 5], 7, 5));
        cases.push(case(op(7, 3), [3, 17, 13, 7], 13, 13));
        cases.push(case(op(14, 2), [2, 16, 24, 4], 11, 9));
        cases.push(case(op(7, 2), [1, 13, 18, 136], 5, 5));
        cases.push(case(op(28, 1), [1, 9, 17, 8], 3, 3));
        cases.push(case(op(3, 1), [1, 37, 41, 8], 17, 17));
        cases.push(odd_boxes(case(op(7, 2), [2, 9, 11, 8], 11, 11)));
    }
    let op = RoiAlign {
        pooled: 3,
        sampling_ratio: 5,
        aligned: false,
        spatial_scales: vec![0.25],
        gradient_scale: 1.0,
    };
    cases.push(case(op, [1, 9, 11, 8], 17, 17));
    let scales = vec![0.25, 0.125, 0.0625, 0.03125];
    let op = RoiAlign {
        pooled: 7,
        sampling_ratio: 2,
        aligned: false,
        spatial_scales: scales,
        gradient_scale: 1.0,
    };
    let small = RoiAlign { pooled: 3, spatial_scales: vec![0.25, 0.125], ..op.clone() };
    cases.push(case(small, [2, 11, 9, 2], 4301, 4300));
    cases.push(case(op, [2, 64, 64, 48], 256, 251));
    cases
}

/// Makes the first boxes of `case` what no box should be, and takes the image of one row away.
fn odd_boxes(mut case: OpCase) -> OpCase {
    const ODD: [[f32; 4]; 6] = [
        [f32::NAN; 4],
        [f32::INFINITY; 4],
        [0.0, 0.0, f32::INFINITY, f32::INFINITY],
        [f32::NEG_INFINITY, 5.0, 20.0, 9.0],
        [30.0, 20.0, 10.0, 5.0],
        [12.0, 12.0, 12.0, 12.0],
    ];
    let at = case.inputs.len() - 4;
    case.inputs[at].as_f32_mut()[..24].copy_from_slice(ODD.as_flattened());
    if let HostData::I32(image_idx) = &mut case.inputs[at + 1].data {
        image_idx[6] = -1;
    }
    case.label = format!("odd boxes, {}", case.label);
    case
}

/// Maps of `[images, height, width, channels]` at level 0, halved (rounded up) at each next one;
/// boxes reach over the borders.
fn case(op: RoiAlign, [images, height, width, channels]: [usize; 4], m: usize, n: i32) -> OpCase {
    let levels = op.spatial_scales.len();
    let mut inputs: Vec<HostTensor> = (0..levels)
        .map(|l| {
            let shape = [images, height.div_ceil(1 << l), width.div_ceil(1 << l), channels];
            normal(Role::Activation, &shape, l as u32, 1.0)
        })
        .collect();
    let side = 4.0 * height.max(width) as f32;
    let mut rois = uniform(Role::Box, &[m, 4], 11, -0.2 * side, side);
    for roi in rois.as_f32_mut().chunks_exact_mut(4) {
        (roi[0], roi[2]) = (roi[0].min(roi[2]), roi[0].max(roi[2]));
        (roi[1], roi[3]) = (roi[1].min(roi[3]), roi[1].max(roi[3]));
    }
    inputs.push(rois);
    inputs.push(integers(&[m], 12, 0, images as i32));
    inputs.push(integers(&[m], 13, 0, levels as i32));
    inputs.push(constant(&[1], n));
    let grads: Vec<usize> = (0..levels).collect();
    let label = format!(
        "{n} of {m} rois, P {}, ratio {}, aligned {}, {levels} levels from {height}x{width}",
        op.pooled, op.sampling_ratio, op.aligned
    );
    OpCase::new(label, op, inputs).grad(&grads)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDesc;
    use crate::case::hand::{ints, run, tensor};

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
            let (y1, x1) =
                ((y.floor() + 1.0).min(height - 1.0), (x.floor() + 1.0).min(width - 1.0));
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
}
