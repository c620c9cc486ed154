//! Test and benchmark cases of `roi_align`.

use super::RoiAlign;
use crate::Role;
use crate::case::{OpCase, constant, integers, normal, uniform};
use crate::cpu::{HostData, HostTensor};

/// No RoIs, one RoI, prime sizes, heights near the size of a band (8 rows), all sampling rules,
/// many bins, invalid boxes, more RoIs and channels than a block processes at once, and a training
/// shape of the box head with few channels.
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

/// Makes the first boxes of `case` invalid, and sets the image of one row to -1.
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

/// Maps of `[images, height, width, channels]` at level 0, halved (rounded up) at each following
/// level; boxes extend over the borders.
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

    /// A box of size 0 covers one feature pixel unless `aligned` is set; the output of a box far
    /// outside the map is 0.
    #[test]
    fn roi_align_accepts_degenerate_boxes() {
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

    /// The op terminates for non-finite boxes, which do not affect other RoIs.
    #[test]
    fn roi_align_accepts_non_finite_boxes() {
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
}
