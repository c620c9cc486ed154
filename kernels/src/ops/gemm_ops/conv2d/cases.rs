//! Test and benchmark cases of `conv2d`.

use super::Conv2d;
use crate::Role;
use crate::case::{ORDER_FLOOR, OpCase, integers, normal, uniform};
use crate::cpu::HostTensor;
use crate::matmul::out_extent;
use crate::ops::relu_mask::one_sided;

/// No images, one value, prime sizes, every kernel size of the model, sizes near the tile size,
/// more channels than a block of the reduction, a stride larger than the kernel; then shapes for
/// which CUDA uses different tilings, and FPN's 3x3 convolution at C5.
pub fn cases() -> Vec<OpCase> {
    let shapes: [([usize; 4], [usize; 4]); 10] = [
        ([0, 5, 5, 3], [4, 3, 1, 1]),
        ([1, 1, 1, 1], [1, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 1, 0]),
        ([2, 5, 7, 11], [13, 1, 2, 0]),
        ([2, 7, 5, 13], [17, 3, 1, 1]),
        ([2, 7, 6, 16], [15, 3, 2, 1]),
        ([1, 11, 13, 3], [16, 7, 2, 3]),
        ([1, 5, 5, 4], [5, 2, 3, 1]),
        ([1, 3, 3, 270], [33, 3, 1, 1]),
        ([1, 7, 11, 48], [48, 3, 1, 1]),
    ];
    let bias_relu = Conv2d { bias: true, relu: true, ..Conv2d::new(1, 0) };
    let all = Conv2d { scale: true, residual: true, ..bias_relu.clone() };
    let counted = Conv2d { counted: true, ..bias_relu.clone() };
    let flags = [Conv2d::new(1, 0), bias_relu.clone(), all, counted];
    let real = ([1, 25, 42, 256], [256, 3, 1, 1]);
    shapes
        .iter()
        .flat_map(|shape| flags.iter().map(move |flags| (shape, flags)))
        .map(|(&(x, w), flags)| case(x, w, flags.clone(), true))
        .chain(cut_cases())
        .chain(nearest_cases())
        .chain(signs_cases())
        .chain(few_cases())
        .chain(grouped_cases())
        .chain(super::epilogue_cases::cases(SCALED_FLOOR))
        .chain(super::epilogue_cases::grad_weight_cases())
        .chain([case(real.0, real.1, bias_relu, false)])
        .collect()
}

/// Shapes for which CUDA uses large tiles or split-k in at least one of forward, input gradient and
/// weight gradient; aligned and unaligned; each flag separately, and all flags together; images
/// past the count hold NaN.
fn cut_cases() -> Vec<OpCase> {
    let plain = Conv2d::new(1, 0);
    let scale = Conv2d { scale: true, ..plain.clone() };
    let residual = Conv2d { residual: true, ..plain.clone() };
    let relu = Conv2d { relu: true, ..plain.clone() };
    let counted = Conv2d { counted: true, ..plain.clone() };
    let all =
        Conv2d { scale: true, bias: true, residual: true, relu: true, counted: true, ..plain };
    let most = Conv2d { scale: false, ..all.clone() };
    let cases: [([usize; 4], [usize; 4], &Conv2d, usize); 14] = [
        // Large tiles: forward, input gradient (mostly past the count, to save time), and weight
        // gradient with tails and splits.
        ([12, 24, 48, 16], [128, 1, 1, 0], &most, 2),
        ([12, 24, 48, 128], [16, 1, 1, 0], &counted, 2),
        ([3, 19, 17, 136], [200, 1, 1, 0], &all, 2),
        ([3, 19, 17, 136], [136, 1, 2, 0], &counted, 2),
        // Split-k: forward, and input gradient with taps assigned to residue classes.
        ([3, 3, 5, 264], [24, 3, 1, 1], &all, 2),
        ([3, 3, 5, 264], [24, 3, 1, 1], &residual, 0),
        ([3, 6, 5, 24], [264, 3, 2, 1], &all, 2),
        ([3, 6, 5, 24], [264, 3, 2, 1], &scale, 0),
        ([2, 3, 3, 5], [270, 3, 1, 1], &all, 1),
        ([2, 4, 3, 5], [270, 3, 2, 0], &counted, 1),
        // Channels that are not a multiple of a k-block; more rows than a tile; residue classes
        // without a tap; a count of 0.
        ([2, 9, 9, 40], [72, 3, 1, 1], &relu, 0),
        ([2, 9, 9, 40], [72, 1, 2, 0], &scale, 0),
        ([1, 9, 8, 72], [8, 2, 2, 0], &residual, 0),
        ([2, 3, 3, 264], [264, 3, 1, 1], &most, 0),
    ];
    let cut = |&(x, w, flags, count): &([usize; 4], [usize; 4], &Conv2d, usize)| {
        let mut case = case(x, w, flags.clone(), false);
        if flags.counted {
            case.label += &format!(", {count} images, NaN past them");
            past_count(&mut case.inputs, count);
        }
        case
    };
    cases.iter().map(cut).collect()
}

/// Residuals of half the size of y, of odd sizes, larger than y, and of one position; with large
/// tiles, with split-k, and unaligned; with all other flags.
fn nearest_cases() -> Vec<OpCase> {
    let bare = Conv2d { residual: true, nearest: true, ..Conv2d::new(1, 0) };
    let some = Conv2d { bias: true, ..bare.clone() };
    let all = Conv2d { scale: true, relu: true, counted: true, ..some.clone() };
    type Row<'a> = ([usize; 4], [usize; 4], [usize; 2], &'a Conv2d);
    let rows: [Row<'_>; 21] = [
        ([2, 13, 11, 8], [16, 1, 1, 0], [7, 5], &some),
        ([2, 12, 13, 40], [136, 3, 1, 1], [6, 7], &all),
        ([1, 5, 7, 40], [24, 3, 2, 1], [2, 2], &some),
        ([2, 5, 7, 11], [13, 1, 1, 0], [3, 4], &all),
        ([1, 4, 3, 5], [7, 3, 1, 1], [7, 5], &some),
        ([2, 3, 4, 8], [8, 1, 1, 0], [1, 1], &all),
        ([12, 24, 48, 16], [128, 1, 1, 0], [12, 24], &some),
        ([3, 3, 5, 264], [24, 3, 1, 1], [2, 3], &all),
        // A full tile, tails and rows past the count; split-k of large tiles; both also with
        // columns that are not a multiple of a chunk.
        ([3, 8, 9, 8], [136, 1, 1, 0], [4, 5], &all),
        ([3, 8, 9, 8], [136, 1, 1, 0], [4, 5], &some),
        ([3, 8, 9, 8], [129, 1, 1, 0], [4, 5], &all),
        ([3, 8, 9, 8], [129, 1, 1, 0], [4, 5], &some),
        ([1, 5, 13, 192], [72, 3, 1, 1], [3, 7], &some),
        ([1, 5, 13, 192], [65, 3, 1, 1], [3, 7], &all),
        ([3, 8, 9, 24], [136, 3, 1, 1], [4, 5], &some),
        // Maps of one row, of one column, and 1x1.
        ([2, 1, 72, 8], [136, 1, 1, 0], [1, 36], &bare),
        ([2, 72, 1, 8], [136, 1, 1, 0], [36, 1], &bare),
        ([144, 1, 1, 8], [136, 1, 1, 0], [1, 1], &bare),
        ([3, 1, 5, 264], [24, 3, 1, 1], [1, 2], &bare),
        ([3, 5, 1, 264], [24, 3, 1, 1], [2, 1], &bare),
        ([4, 1, 1, 264], [17, 3, 1, 1], [1, 1], &bare),
    ];
    let case = |&(x, w, [height, width], op): &([usize; 4], [usize; 4], [usize; 2], &Conv2d)| {
        let is_small = x[0] * x[1] * x[2] * w[0] < 5000;
        let mut case = case(x, w, op.clone(), is_small);
        case.label += &format!(" of {height} x {width}");
        let position = 2 + usize::from(op.scale) + usize::from(op.bias);
        case.inputs[position] = normal(Role::Activation, &[x[0], height, width, w[0]], 5, 1.0);
        if op.counted && !is_small {
            past_count(&mut case.inputs, x[0].div_ceil(2));
        }
        case
    };
    rows.iter().map(case).collect()
}

/// With the signs of y as a second output: large and small tiles, split-k, and unaligned; with a
/// residual and a count. All sums are of small integers and therefore exact, so signs match on
/// every device; many sums are 0.
fn signs_cases() -> Vec<OpCase> {
    let relu = Conv2d { relu: true, signs: true, ..Conv2d::new(1, 0) };
    let all = Conv2d { scale: true, bias: true, residual: true, counted: true, ..relu.clone() };
    let plain = Conv2d { relu: false, ..relu.clone() };
    let rows: [([usize; 4], [usize; 4], &Conv2d); 7] = [
        ([12, 24, 48, 16], [128, 1, 1, 0], &all),
        ([4, 6, 6, 16], [64, 3, 2, 1], &relu),
        ([3, 6, 6, 24], [192, 1, 1, 0], &plain),
        ([4, 3, 5, 264], [64, 3, 1, 1], &all),
        ([4, 3, 5, 264], [64, 3, 1, 1], &plain),
        ([2, 6, 6, 5], [64, 3, 1, 1], &all),
        ([0, 6, 6, 16], [64, 1, 1, 0], &relu),
    ];
    let case = |&(x, w, op): &([usize; 4], [usize; 4], &Conv2d)| {
        let mut case = case(x, w, op.clone(), false);
        for (seed, input) in case.inputs.iter_mut().enumerate() {
            if input.desc.role != Role::Index {
                let small = integers(&input.desc.shape, seed as u32, -1, 2);
                let values = input.as_f32_mut().iter_mut().zip(small.as_i32());
                values.for_each(|(value, small)| *value = *small as f32);
            }
        }
        case
    };
    rows.iter().map(case).collect()
}

/// Taps, strides and every flag with large tiles, which a GPU with few SMs selects for these
/// shapes; with tails in rows, columns and the reduction.
fn few_cases() -> Vec<OpCase> {
    let plain = Conv2d::new(1, 0);
    let scale = Conv2d { scale: true, ..plain.clone() };
    let residual = Conv2d { residual: true, ..plain.clone() };
    let all = Conv2d { bias: true, relu: true, counted: true, ..scale.clone() };
    let all = Conv2d { residual: true, ..all };
    let signs = Conv2d { signs: true, ..all.clone() };
    let rows: [([usize; 4], [usize; 4], &Conv2d); 16] = [
        ([2, 12, 13, 40], [136, 3, 1, 1], &all),
        ([2, 13, 12, 136], [136, 3, 2, 1], &residual),
        ([2, 12, 13, 40], [192, 3, 1, 1], &signs),
        ([3, 12, 13, 136], [72, 3, 1, 1], &residual),
        ([2, 6, 7, 40], [72, 3, 2, 1], &all),
        ([3, 12, 13, 136], [5, 3, 1, 1], &residual),
        // A full tile, tails and rows past the count, including with columns that are not a
        // multiple of a chunk.
        ([3, 8, 9, 136], [136, 1, 1, 0], &all),
        ([3, 8, 9, 136], [136, 1, 1, 0], &plain),
        ([3, 8, 9, 8], [129, 1, 1, 0], &all),
        ([3, 8, 9, 8], [129, 1, 1, 0], &plain),
        ([3, 8, 9, 8], [192, 1, 1, 0], &signs),
        // Split-k of large tiles: forward and input gradient, then weight gradient.
        ([1, 5, 13, 192], [72, 3, 1, 1], &plain),
        ([1, 5, 13, 192], [65, 3, 1, 1], &plain),
        ([1, 5, 13, 72], [192, 3, 1, 1], &plain),
        ([1, 32, 50, 8], [72, 3, 1, 1], &scale),
        ([1, 24, 32, 9], [8, 1, 1, 0], &plain),
    ];
    let case = |&(x, w, op): &([usize; 4], [usize; 4], &Conv2d)| {
        let mut case = case(x, w, op.clone(), false);
        if op.counted {
            past_count(&mut case.inputs, x[0].div_ceil(2));
        }
        case
    };
    rows.iter().map(case).collect()
}

/// Grouped convolutions: some or all groups merged; groups that fill a tile; groups of one channel;
/// dilation, with channels that are and are not a multiple of a chunk; groups with dilation;
/// strides, split-k and every flag.
fn grouped_cases() -> Vec<OpCase> {
    let plain = Conv2d::new(1, 0);
    let bias = Conv2d { bias: true, ..plain.clone() };
    let signs = Conv2d { relu: true, signs: true, ..plain.clone() };
    let all = Conv2d { scale: true, bias: true, residual: true, relu: true, ..plain.clone() };
    let all = Conv2d { counted: true, ..all };
    type Row<'a> = ([usize; 4], [usize; 4], [usize; 2], &'a Conv2d);
    let rows: [Row<'_>; 19] = [
        ([1, 5, 5, 8], [8, 3, 1, 1], [1, 4], &plain),
        ([2, 6, 5, 128], [128, 3, 1, 1], [1, 32], &all),
        ([2, 7, 6, 128], [128, 3, 2, 1], [1, 16], &all),
        ([2, 7, 6, 128], [256, 3, 2, 1], [1, 2], &signs),
        ([1, 6, 7, 192], [128, 3, 1, 1], [1, 2], &plain),
        ([1, 5, 5, 24], [24, 3, 1, 1], [1, 24], &plain),
        // Depthwise convolutions: 7x7, for which the GPU has kernels, with full tiles, tails and
        // chunks; then shapes without such kernels.
        ([2, 9, 11, 66], [66, 7, 1, 3], [1, 66], &bias),
        ([1, 3, 4, 8], [8, 7, 1, 3], [1, 8], &plain),
        ([9, 16, 19, 24], [24, 7, 1, 3], [1, 24], &bias),
        ([1, 4, 4, 7], [7, 7, 1, 3], [1, 7], &bias),
        ([1, 4, 4, 6], [6, 7, 1, 3], [1, 6], &all),
        ([1, 5, 4, 6], [9, 1, 1, 0], [1, 3], &all),
        ([1, 9, 8, 16], [24, 3, 1, 2], [2, 1], &plain),
        ([2, 9, 8, 16], [24, 3, 1, 1], [3, 1], &all),
        ([1, 7, 7, 5], [7, 3, 1, 2], [2, 1], &plain),
        ([1, 6, 6, 16], [17, 3, 1, 2], [2, 1], &plain),
        ([1, 6, 6, 128], [128, 3, 1, 2], [2, 32], &all),
        ([1, 5, 4, 512], [128, 3, 1, 2], [2, 1], &all),
        ([1, 5, 4, 512], [512, 1, 1, 0], [1, 8], &plain),
    ];
    let case = |&(x, w, [dilation, groups], op): &Row<'_>| {
        let small = x[3] * w[0] < 1000;
        case(x, w, Conv2d { dilation, groups, ..op.clone() }, small)
    };
    rows.iter().map(case).collect()
}

/// Sets the count (the last input), and fills the images of x past the count with NaN.
fn past_count(inputs: &mut [HostTensor], count: usize) {
    let last = inputs.len() - 1;
    inputs[last] = HostTensor::i32(inputs[last].desc.clone(), vec![count as i32]);
    let desc = inputs[0].desc.clone();
    let mut values = inputs[0].as_f32().to_vec();
    let image = desc.len() / desc.dim(0);
    values[count * image..].fill(f32::NAN);
    inputs[0] = HostTensor::f32(desc, values);
}

/// Rounding error of `conv2d_grad_input` with a scale, which CUDA multiplies into the weights in
/// fp16: up to 2^-11 of each term, so the error is noticeable where large terms cancel. With this
/// floor, the largest error in the cases is 0.86 of the tolerance.
pub(in super::super) const SCALED_FLOOR: f64 = 1.2e-3;

fn case(
    x: [usize; 4],
    [k, kernel, stride, pad]: [usize; 4],
    flags: Conv2d,
    gradients: bool,
) -> OpCase {
    let op = Conv2d { stride, pad, ..flags };
    let reach = op.dilation * (kernel - 1) + 1;
    let [p, q] = [x[1], x[2]].map(|e| out_extent(e, reach, stride, pad).unwrap_or(0));
    let channels = x[3] / op.groups;
    let fan_in = (kernel * kernel * channels) as f32;
    let mut inputs = vec![
        normal(Role::Activation, &x, 1, 1.0),
        normal(Role::Weight, &[k, kernel, kernel, channels], 2, 1.0 / fan_in.sqrt()),
    ];
    let mut checked = vec![0, 1];
    if op.scale {
        inputs.push(uniform(Role::Master, &[k], 3, 0.5, 1.5));
    }
    if op.bias {
        checked.push(inputs.len());
        inputs.push(one_sided(k));
    }
    if op.residual {
        checked.push(inputs.len());
        inputs.push(normal(Role::Activation, &[x[0], p, q, k], 5, 1.0));
    }
    if op.counted {
        inputs.push(integers(&[1], 6, 0, x[0] as i32 + 2));
    }
    let label = format!("{x:?} to {k} by {kernel}, {op:?}");
    let checked = if gradients { checked } else { vec![] };
    let floor = if op.scale { SCALED_FLOOR } else { ORDER_FLOOR };
    let case = OpCase::new(label, op, inputs).device_floor(floor);
    case.grad(&checked).grad_bounds(1e-2, 2e-3)
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::GradEpilogue;
    use crate::case::constant;
    use crate::case::hand::{refusal, run, tensor};
    use crate::ops::gemm_op::{GradInput, GradWeight};

    /// Images past the count hold NaN and do not affect any output.
    #[test]
    fn conv_does_not_read_images_past_count() {
        let counted = true;
        let count = constant(&[1], 1);
        let x = tensor(&[2, 1, 1, 1], [3.0, f32::NAN]);
        let g = tensor(&[2, 1, 1, 1], [5.0, f32::NAN]);
        let w = tensor(&[1, 1, 1, 1], [7.0]);
        let op = Conv2d { counted, ..Conv2d::new(1, 0) };
        let y = run(&op, &[x.clone(), w.clone(), count.clone()]);
        assert_eq!(y[0].as_f32()[..1], [21.0]);
        let (layer, scale, epilogue) = (Layer::conv2d(1, 0), false, GradEpilogue::default());
        let op = GradInput { layer, x: x.desc.shape.clone(), scale, counted, epilogue };
        let dx = run(&op, &[g.clone(), w.clone(), count.clone()]);
        assert_eq!(dx[0].as_f32()[..1], [35.0]);
        let op = GradWeight { layer, w: w.desc.shape, scale, counted };
        let dw = run(&op, &[x, g, count]);
        assert_eq!(dw[0].as_f32(), [15.0]);
    }

    #[test]
    fn mismatched_conv_inputs_are_rejected_by_name() {
        let plain = Conv2d::new(1, 1);
        let without_pad = Conv2d::new(1, 0);
        let rows: [(Conv2d, [usize; 4], &str); 8] = [
            (without_pad.clone(), [2, 3, 3, 7], "w should have shape [K, R, S, 8]"),
            (
                without_pad.clone(),
                [2, 5, 5, 8],
                "a kernel within the padded map, 4 x 4 padded by 0",
            ),
            (Conv2d::new(0, 1), [2, 3, 3, 8], "`stride` should be at least 1"),
            (
                Conv2d { groups: 3, ..plain.clone() },
                [3, 3, 3, 2],
                "`groups` should be a divisor of the channels",
            ),
            (Conv2d { groups: 2, ..plain.clone() }, [2, 3, 3, 8], "[K, R, S, 4] with 1 to 64 taps"),
            (
                Conv2d { dilation: 2, ..Conv2d::new(2, 1) },
                [2, 3, 3, 8],
                "`dilation` should be 1, or more with a stride of 1",
            ),
            (Conv2d { dilation: 2, ..without_pad }, [2, 3, 3, 8], "a kernel within the padded map"),
            (Conv2d { bias: true, ..plain }, [2, 3, 3, 8], "expected 3 inputs, got 2"),
        ];
        for (op, w, says) in rows {
            let inputs = [[1, 4, 4, 8], w];
            let inputs = inputs.map(|shape| tensor(&shape, vec![0.0; shape.iter().product()]));
            let error = refusal(&op, &inputs);
            assert!(error.contains(says), "{error}");
        }
    }
}
