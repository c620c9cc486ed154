//! Test and benchmark cases of `conv2d_grad_input` with an epilogue, and of `conv2d_grad_weight`
//! with a count. Both are backward ops without a backward rule; the cases of `conv2d` run them
//! without an epilogue and a count.

use crate::case::{ORDER_FLOOR, OpCase, constant, integers, normal, uniform};
use crate::cpu::HostTensor;
use crate::matmul::out_extent;
use crate::ops::gemm_op::{GradInput, GradWeight};
use crate::ops::layer::Layer;
use crate::signs::signs_of;
use crate::{GradEpilogue, Role, TensorDesc};

/// No images, one value, prime sizes, strides with residue classes without a tap, large tiles, and
/// split-k; each with an added gradient, with a mask, and with both; without a count, and with a
/// count of none, half or all of the images; rows past the count hold NaN. `scaled_floor` allows
/// for the rounding of weights times a scale.
pub(super) fn cases(scaled_floor: f64) -> Vec<OpCase> {
    let shapes: [([usize; 4], [usize; 4]); 18] = [
        ([0, 5, 5, 3], [4, 3, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 2, 0]),
        ([2, 7, 5, 13], [17, 3, 1, 1]),
        ([3, 7, 6, 16], [24, 3, 2, 1]),
        ([3, 6, 5, 24], [40, 1, 2, 0]),
        // Large tiles on a GPU with few SMs, and columns that CUDA pads.
        ([2, 12, 13, 136], [40, 3, 1, 1]),
        ([3, 13, 12, 136], [24, 3, 2, 1]),
        ([2, 7, 6, 40], [6, 3, 1, 1]),
        ([12, 24, 48, 128], [16, 1, 1, 0]),
        ([3, 3, 5, 24], [264, 3, 1, 1]),
        ([3, 6, 5, 24], [264, 3, 2, 1]),
        // Full tiles and tails, for large tiles and for padded columns, some with split-k.
        ([3, 8, 9, 136], [8, 1, 1, 0]),
        ([3, 15, 17, 136], [8, 3, 2, 1]),
        ([3, 8, 9, 72], [5, 3, 1, 1]),
        ([3, 15, 17, 72], [5, 3, 2, 1]),
        ([1, 5, 13, 72], [61, 3, 1, 1]),
        ([3, 6, 5, 16], [261, 3, 2, 1]),
    ];
    let both = GradEpilogue { other: true, mask: true };
    let epilogues =
        [GradEpilogue { mask: false, ..both }, GradEpilogue { other: false, ..both }, both];
    let of_shape = |(at, &(x, w)): (usize, &([usize; 4], [usize; 4]))| {
        let counts = [None, Some(0), Some(x[0] / 2), Some(x[0])];
        // The rounding of scaled weights is noticeable where many small values are summed, so the
        // cases with large tiles have no scale.
        let scale = at % 2 == 0 && x[0] < 12;
        let counted = |(i, epilogue)| {
            let case = case(x, w, epilogue, scale, counts[(at + i) % 4]);
            case.device_floor(if scale { scaled_floor } else { ORDER_FLOOR })
        };
        epilogues.into_iter().enumerate().map(counted).collect::<Vec<_>>()
    };
    shapes.iter().enumerate().flat_map(of_shape).chain(signs_cases()).collect()
}

/// A mask given as signs: with a stride, large tiles, split-k, and filters that CUDA reads one
/// value at a time.
fn signs_cases() -> Vec<OpCase> {
    let shapes: [([usize; 4], [usize; 4]); 10] = [
        ([0, 5, 5, 64], [4, 3, 1, 1]),
        ([3, 8, 6, 64], [24, 3, 2, 1]),
        ([2, 6, 6, 192], [13, 3, 1, 1]),
        ([12, 24, 48, 128], [16, 1, 1, 0]),
        ([4, 3, 5, 64], [264, 3, 1, 1]),
        ([3, 8, 9, 192], [8, 1, 1, 0]),
        ([3, 16, 18, 192], [8, 3, 2, 1]),
        ([4, 10, 9, 64], [5, 3, 1, 1]),
        ([3, 8, 9, 192], [8, 1, 1, 0]),
        ([3, 16, 18, 64], [5, 3, 2, 1]),
    ];
    let of_shape = |(at, &(x, w)): (usize, &([usize; 4], [usize; 4]))| {
        let epilogue = GradEpilogue { other: at % 2 == 0, mask: true };
        let mut case = case(x, w, epilogue, false, [None, Some(x[0] / 2)][at % 2]);
        case.label = format!("{}, of signs", case.label);
        let signs = signs_of(&TensorDesc::new(Role::Gradient, &x)).expect("whole groups");
        if let Some(mask) = case.inputs.last_mut() {
            *mask = integers(&signs.shape, 7, i32::MIN / 2, i32::MAX / 2);
        }
        case.device_floor(ORDER_FLOOR)
    };
    shapes.iter().enumerate().map(of_shape).collect()
}

fn case(
    x: [usize; 4],
    [filters, kernel, stride, pad]: [usize; 4],
    epilogue: GradEpilogue,
    scale: bool,
    count: Option<usize>,
) -> OpCase {
    let [p, q] = [x[1], x[2]].map(|e| out_extent(e, kernel, stride, pad).unwrap_or(0));
    let fan_in = (kernel * kernel * filters) as f32;
    let mut inputs = vec![
        normal(Role::Gradient, &[x[0], p, q, filters], 1, 1.0),
        normal(Role::Weight, &[filters, kernel, kernel, x[3]], 2, 1.0 / fan_in.sqrt()),
    ];
    if scale {
        inputs.push(uniform(Role::Master, &[filters], 3, 0.5, 1.5));
    }
    if let Some(count) = count {
        past(&mut inputs[0], count);
        inputs.push(constant(&[1], count as i32));
    }
    for (seed, _) in [(4, epilogue.other), (5, epilogue.mask)].into_iter().filter(|(_, has)| *has) {
        let mut tensor = normal(Role::Gradient, &x, seed, 1.0);
        past(&mut tensor, count.unwrap_or(x[0]));
        inputs.push(tensor);
    }
    let counted = count.is_some();
    let layer = Layer::conv2d(stride, pad);
    let op = GradInput { layer, x: x.to_vec(), scale, counted, epilogue };
    let label = format!("{x:?} from {filters} by {kernel}, {op:?}, count {count:?}");
    OpCase::new(label, op, inputs)
}

/// The gradient of w: no images, one value, prime sizes, strides, one and several large tiles
/// across the filters, split-k, and filters whose columns CUDA pads; with and without a count;
/// images past the count hold NaN.
pub(super) fn grad_weight_cases() -> Vec<OpCase> {
    let shapes: [([usize; 4], [usize; 4]); 16] = [
        ([0, 5, 5, 3], [4, 3, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 2, 0]),
        ([2, 7, 5, 13], [17, 3, 1, 1]),
        ([3, 7, 6, 16], [24, 3, 2, 1]),
        // Large tiles on a GPU with few SMs, and a padded column with taps.
        ([3, 13, 12, 40], [136, 3, 2, 1]),
        ([2, 7, 6, 40], [6, 3, 1, 1]),
        ([4, 15, 17, 24], [3, 1, 1, 0]),
        ([6, 24, 48, 16], [160, 3, 1, 1]),
        ([12, 24, 48, 128], [264, 1, 1, 0]),
        ([3, 3, 5, 264], [24, 3, 1, 1]),
        // A full tile and tails; split-k of large tiles.
        ([3, 8, 9, 136], [136, 1, 1, 0]),
        ([2, 32, 50, 8], [72, 3, 1, 1]),
        // A full tile, tails and split-k with padded columns.
        ([2, 8, 9, 64], [69, 1, 1, 0]),
        ([2, 8, 9, 8], [69, 3, 1, 1]),
        ([2, 16, 25, 8], [28, 1, 1, 0]),
    ];
    let of_shape = |&(x, [filters, kernel, stride, pad]): &([usize; 4], [usize; 4])| {
        [None, Some(0), Some(x[0] / 2)].map(|count| {
            let [p, q] = [x[1], x[2]].map(|e| out_extent(e, kernel, stride, pad).unwrap_or(0));
            let mut inputs = vec![
                normal(Role::Activation, &x, 1, 1.0),
                normal(Role::Gradient, &[x[0], p, q, filters], 2, 1.0),
            ];
            let scale = kernel == 3;
            if scale {
                inputs.push(uniform(Role::Master, &[filters], 3, 0.5, 1.5));
            }
            if let Some(count) = count {
                inputs[..2].iter_mut().for_each(|tensor| past(tensor, count));
                inputs.push(constant(&[1], count as i32));
            }
            let op = GradWeight {
                layer: Layer::conv2d(stride, pad),
                w: vec![filters, kernel, kernel, x[3]],
                scale,
                counted: count.is_some(),
            };
            let label = format!("{x:?} to {filters}, {op:?}, count {count:?}");
            OpCase::new(label, op, inputs)
        })
    };
    shapes.iter().flat_map(of_shape).collect()
}

/// Fills the images from `count` on with NaN.
fn past(tensor: &mut HostTensor, count: usize) {
    let image = tensor.desc.len() / tensor.desc.dim(0).max(1);
    tensor.as_f32_mut()[count * image..].fill(f32::NAN);
}
