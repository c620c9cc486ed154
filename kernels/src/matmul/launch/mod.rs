//! CUDA launches of the GEMMs: convolutions, transposed convolutions, linear layers.
//!
//! Each of them is one of three passes over a [`ConvShape`], as on the CPU: a linear layer is a 1x1
//! convolution of images of one pixel, a transposed convolution the input gradient of a
//! convolution. [`variants`] lists the kernels for each pass; [`plan`] chooses one, and the number
//! of splits of its reduction, by the least [`cost`]. The kernels are in `ops/gemm_ops/conv2d/*.cu`
//! and `cuda/gemm/*.cuh`.

mod cost;
mod gemm;
mod groups;
mod padded;
mod plan;
mod variants;

use device::{Access, Arg, Buffer, Gpu, Launch, LaunchArgs, StructArg};

use super::ConvShape;
use crate::{DType, Role};
use gemm::GemmLaunch;
use plan::Plan;
pub(crate) use variants::{DEPTH, Tile, gemm_kernels, tile_of};
use variants::{
    FORWARD, MASKED, NEAREST, PROJECTED, Problem, RPN_HEAD, RPN_HEAD_SMALL, STEM, Variant,
};

/// Values in one 16-byte copy.
const CHUNK: usize = 8;

/// The kernels' `struct Conv`, or `struct GroupedConv` for shapes that use it. Panics if a size
/// does not fit an `int`.
pub(crate) fn conv_arg(s: &ConvShape) -> Arg {
    let int = |value: usize| match i32::try_from(value) {
        Ok(value) => value,
        Err(_) => panic!("{value} does not fit an int, in {s:?}"),
    };
    let largest = [s.images * s.height * s.width, s.out_positions(), s.filter_len()];
    largest.into_iter().for_each(|product| {
        int(product);
    });
    let map = [s.images, s.height, s.width, s.channels];
    let kernel = [s.filters, s.kernel_h, s.kernel_w, s.stride, s.pad];
    let output = [s.out_height, s.out_width];
    let taps = if s.is_grouped() { vec![s.dilation, s.groups] } else { vec![] };
    let fields = [&map[..], &kernel, &output, &taps].into_iter().flatten();
    fields.fold(StructArg::new(), |arg, &field| arg.field(int(field))).arg()
}

/// The kernels' `struct Divisor`: exact for dividends below 2^31.
fn divisor(by: usize) -> [u32; 3] {
    let by = by.max(1) as u64;
    let shift = u64::from(by.next_power_of_two().trailing_zeros()).saturating_sub(1);
    let magic = (1u64 << (32 + shift)).div_ceil(by);
    [by, magic, shift].map(|word| word as u32)
}

fn divisor_arg(by: usize) -> Arg {
    StructArg::new().field(divisor(by)).arg()
}

/// An optional tensor.
pub(crate) fn read(buffer: Option<Buffer<'_>>) -> Arg {
    buffer.map_or(Arg::Null, |b| b.read())
}

/// Checks that a GEMM's activations, their gradients and weights have one element type.
pub(crate) fn check_reals(buffers: &[Buffer<'_>]) {
    for buffer in buffers {
        let desc = buffer.desc;
        assert!(desc.role.follows_precision(), "{desc:?} in a GEMM");
    }
}

/// Epilogue inputs of a pass, and the number of images in use; absent parts are `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras<'a> {
    /// Scale per output channel, f32.
    pub scale: Option<Buffer<'a>>,
    /// Bias per output channel, f32.
    pub bias: Option<Buffer<'a>>,
    /// Added to each output element, same type as the output.
    pub residual: Option<Buffer<'a>>,
    /// Height and width of a smaller residual, which is read at the nearest position.
    pub nearest: Option<[usize; 2]>,
    /// An activation, or its signs: the result is 0 where the activation is not positive. Cannot be
    /// combined with a scale or a smaller residual.
    pub mask: Option<Buffer<'a>>,
    /// Negative results become 0.
    pub relu: bool,
    /// Output of a forward pass: the sign bits of its result. Cannot be combined with a mask or a
    /// smaller residual.
    pub signs: Option<Buffer<'a>>,
    /// Images in use, `[1] i32`.
    pub count: Option<Buffer<'a>>,
}

/// The kernels of a forward pass, and the kernel that sums splits, by epilogue: with a mask, or
/// with a residual at the nearest position.
fn forward_kernels(mask: bool, nearest: bool) -> (&'static [Variant], &'static str) {
    match (mask, nearest) {
        (false, false) => (FORWARD, "conv2d_reduce_f16"),
        (true, _) => (MASKED, "conv2d_reduce_gradient_f16"),
        (false, true) => (NEAREST, "conv2d_reduce_nearest_f16"),
    }
}

/// Scratch bytes of [`forward`]; `of` states if it has a mask, and if it has a residual at the
/// nearest position.
pub(crate) fn forward_workspace_bytes(gpu: &Gpu, s: &ConvShape, of: [bool; 2]) -> usize {
    let (table, _) = forward_kernels(of[0], of[1]);
    let partials = Plan::forward(table, gpu, &s.on_gpu()).partial_bytes();
    groups::filter_bytes(gpu, s, false) + partials
}

/// `y = relu(conv(x, w) * scale + bias + residual)`, masked, from `x`, `w` to `y`.
pub(crate) fn forward(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    [x, w, y]: [Buffer<'_>; 3],
    extras: Extras<'_>,
) -> Vec<Launch> {
    check_reals(&[x, w, y]);
    let (table, reduce) = forward_kernels(extras.mask.is_some(), extras.nearest.is_some());
    let (weights, widen) = groups::filters(args, s, w, None);
    let offset = groups::filter_bytes(args.gpu, s, false);
    let s = &s.on_gpu();
    let (plan, workspace) = (Plan::forward(table, args.gpu, s), &args.workspace);
    let product = plan.launch(1).arg(x.read()).arg(weights);
    let product = before_count(product, &extras)
        .arg(read(extras.count))
        .arg(y.write())
        .arg(plan.partials(workspace, offset, Access::Write))
        .arg(conv_arg(s))
        .arg(extras.relu);
    let product = of_table(product, s, &extras);
    let reduce = (plan.splits > 1).then(|| {
        let images = [s.images, s.out_height * s.out_width, s.filters];
        let partials = plan.partials(workspace, offset, Access::Read);
        let launch = before_count(reduce_half(reduce, &plan, partials, images), &extras)
            .arg(read(extras.count))
            .arg(y.write())
            .arg(extras.relu);
        of_table(launch, s, &extras)
    });
    widen.into_iter().chain([product]).chain(reduce).collect()
}

/// The kernel of `table` for a GEMM of this many rows, without splits, that accumulates the GEMMs
/// of these shapes.
fn unsplit(gpu: &Gpu, table: &'static [Variant], rows: usize, added: &[&ConvShape]) -> Variant {
    let k_blocks = |s: &&ConvShape| (s.kernel_h * s.kernel_w * s.channels).div_ceil(DEPTH);
    let (s, k_blocks) = (added[0], added.iter().map(k_blocks).sum());
    let problem = Problem { extents: [rows, s.filters], classes: 1, k_blocks, aligned: true };
    let product = GemmLaunch { table, problem, len: rows * s.filters, most_splits: 1 };
    product.chosen(gpu).0
}

/// The launch of a GEMM that accumulates these convolutions, without splits and without arguments.
fn sum_of(gpu: &Gpu, table: &'static [Variant], added: &[&ConvShape]) -> Launch {
    let extents = [added[0].out_positions(), added[0].filters];
    let variant = unsplit(gpu, table, extents[0], added);
    variant.launch([variant.tiles(extents), 1, 1])
}

/// The launch of a stem's GEMM, without arguments.
pub(crate) fn stem(gpu: &Gpu, s: &ConvShape) -> Launch {
    sum_of(gpu, STEM, &[s])
}

/// The launch of the GEMM of a convolution and an added projection, without arguments.
pub(crate) fn projected(gpu: &Gpu, s: &ConvShape, projection: &ConvShape) -> Launch {
    sum_of(gpu, PROJECTED, &[s, projection])
}

/// Outputs per row that a block of an RPN head keeps in shared memory; as in `rpn_head.cu`.
const RPN_OUTPUTS: usize = 16;

/// The launch of an RPN head's GEMM on maps of these shapes, without arguments, and the index of
/// each map's first block. A block computes all columns of its rows.
pub(crate) fn rpn_head(gpu: &Gpu, shapes: &[ConvShape]) -> (Launch, Vec<usize>) {
    let is_wide = shapes[0].filters > RPN_HEAD_SMALL[0].tile[1];
    let table = if is_wide { RPN_HEAD } else { RPN_HEAD_SMALL };
    let rows = shapes.iter().map(ConvShape::out_positions).sum();
    let variant = unsplit(gpu, table, rows, &[&shapes[0]]);
    let mut blocks = 0;
    let first = shapes.iter().map(|s| {
        let first = blocks;
        blocks += s.out_positions().div_ceil(variant.tile[0]);
        first
    });
    let first = first.collect();
    let outputs = variant.tile[0] * RPN_OUTPUTS * size_of::<f32>();
    let launch = variant.launch([blocks, 1, 1]);
    let shared = launch.shared_bytes as usize + outputs;
    (launch.shared(shared), first)
}

/// Adds the tensors of an epilogue; with a mask, of a gradient's epilogue.
fn before_count(launch: Launch, extras: &Extras<'_>) -> Launch {
    match extras.mask {
        Some(mask) => {
            assert!(extras.scale.is_none() && extras.nearest.is_none(), "a mask with {extras:?}");
            let launch = launch.arg(read(extras.bias)).arg(read(extras.residual));
            masked(launch, Some(mask))
        }
        None => launch.arg(read(extras.scale)).arg(read(extras.bias)).arg(read(extras.residual)),
    }
}

/// Adds the mask as two arguments, an activation and sign bits; one of them is null.
fn masked(launch: Launch, mask: Option<Buffer<'_>>) -> Launch {
    let of = |signs| mask.filter(|mask| (mask.dtype() == DType::I32) == signs);
    launch.arg(read(of(false))).arg(read(of(true)))
}

/// Adds the last arguments of a forward pass: sign bits, the kernels' `struct Nearest`, or none.
fn of_table(launch: Launch, s: &ConvShape, extras: &Extras<'_>) -> Launch {
    let Some([height, width]) = extras.nearest else {
        return match (extras.mask, extras.signs) {
            (None, signs) => launch.arg(signs.map_or(Arg::Null, |signs| signs.write())),
            (Some(_), None) => launch,
            (Some(_), Some(_)) => panic!("signs with a mask: {extras:?}"),
        };
    };
    assert!(extras.signs.is_none(), "signs with {extras:?}");
    let struct_arg = StructArg::new()
        .field([height as u32, width as u32])
        .field(divisor(s.out_height))
        .field(divisor(s.out_width));
    launch.arg(struct_arg.arg())
}

/// The launch that sums the splits of a pass with an output of `[images, positions, columns]`; the
/// epilogue's arguments are added later.
fn reduce_half(
    kernel: &'static str,
    plan: &Plan,
    partials: Arg,
    [images, per_image, columns]: [usize; 3],
) -> Launch {
    Launch::over(kernel, images * per_image * columns.div_ceil(CHUNK))
        .arg(partials)
        .int(plan.splits)
        .int(images)
        .int(per_image)
        .int(columns)
}

/// Scratch bytes of [`grad_input`], with a scale if `scaled`.
pub(crate) fn grad_input_workspace_bytes(gpu: &Gpu, s: &ConvShape, scaled: bool) -> usize {
    let filters = groups::filter_bytes(gpu, s, scaled);
    let s = &s.on_gpu();
    filters + padded::workspace_bytes(gpu, s) + Plan::grad_input(gpu, s).partial_bytes()
}

/// `dx = relu(conv_transposed(g * scale, w) + bias + residual)` where `mask` is positive, else 0;
/// from `g`, `w` to `dx`. The scale has the K channels of `g`, and is multiplied into the weights;
/// in fp16 this rounds each scaled weight by up to 2^-11.
pub(crate) fn grad_input(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    [g, w, dx]: [Buffer<'_>; 3],
    extras: Extras<'_>,
) -> Vec<Launch> {
    check_reals(&[g, w, dx]);
    let (weights, filters) = groups::filters(args, s, w, extras.scale);
    let filter_bytes = groups::filter_bytes(args.gpu, s, extras.scale.is_some());
    let s = &s.on_gpu();
    let (plan, workspace) = (Plan::grad_input(args.gpu, s), &args.workspace);
    let (gradient, pad) = padded::gradient(args, s, g, filter_bytes);
    let offset = filter_bytes + padded::workspace_bytes(args.gpu, s);
    let product = plan
        .launch(s.stride * s.stride)
        .arg(gradient)
        .arg(weights)
        .arg(read(extras.bias))
        .arg(read(extras.residual));
    let product = masked(product, extras.mask)
        .arg(read(extras.count))
        .arg(dx.write())
        .arg(plan.partials(workspace, offset, Access::Write))
        .arg(conv_arg(s))
        .arg(extras.relu);
    let reduce = (plan.splits > 1).then(|| {
        let images = [s.images, s.height * s.width, s.channels];
        let partials = plan.partials(workspace, offset, Access::Read);
        let launch = reduce_half("conv2d_reduce_gradient_f16", &plan, partials, images)
            .arg(read(extras.bias))
            .arg(read(extras.residual));
        masked(launch, extras.mask).arg(read(extras.count)).arg(dx.write()).arg(extras.relu)
    });
    filters.into_iter().chain(pad).chain([product]).chain(reduce).collect()
}

/// Scratch bytes of [`grad_weight`].
pub(crate) fn grad_weight_workspace_bytes(gpu: &Gpu, s: &ConvShape) -> usize {
    let copy = groups::copy_bytes(gpu, s, Role::WeightGradient);
    let s = &s.on_gpu();
    copy + padded::workspace_bytes(gpu, s) + Plan::grad_weight(gpu, s).partial_bytes()
}

/// `dw[k] = scale[k] * sum over positions of g[k] * window(x)` from `x`, `g` to `dw`, in f32.
pub(crate) fn grad_weight(
    args: &LaunchArgs<'_>,
    s: &ConvShape,
    [x, g, dw]: [Buffer<'_>; 3],
    extras: Extras<'_>,
) -> Vec<Launch> {
    check_reals(&[x, g]);
    let (wide, collect) = groups::gradient(args, s, dw);
    let copy = groups::copy_bytes(args.gpu, s, Role::WeightGradient);
    let s = &s.on_gpu();
    let plan = Plan::grad_weight(args.gpu, s);
    let workspace = &args.workspace;
    let (gradient, pad) = padded::gradient(args, s, g, copy);
    let offset = copy + padded::workspace_bytes(args.gpu, s);
    let product = plan
        .launch(1)
        .arg(x.read())
        .arg(gradient)
        .arg(read(extras.scale))
        .arg(read(extras.count))
        .arg(wide.clone())
        .arg(plan.partials(workspace, offset, Access::Write))
        .arg(conv_arg(s))
        .arg(divisor_arg(s.out_height * s.out_width))
        .arg(divisor_arg(s.out_width));
    let reduce = (plan.splits > 1).then(|| {
        Launch::over("conv2d_reduce_f32", s.filters * s.filter_len().div_ceil(CHUNK))
            .arg(plan.partials(workspace, offset, Access::Read))
            .int(plan.splits)
            .arg(read(extras.scale))
            .arg(wide)
            .int(s.filters)
            .int(s.filter_len())
    });
    pad.into_iter().chain([product]).chain(reduce).chain(collect).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Division as in the kernels, by precomputed words, is exact for the lowest and highest
    /// dividends of several quotients.
    #[test]
    fn fast_division_matches_division() {
        for by in (1..300).chain([403, 1050, 67_200, 65_535, 65_536, 65_537, (1 << 30) + 1]) {
            let words = divisor(by);
            let word = |i: usize| u64::from(words[i]);
            let divide = |n: u64| if by == 1 { n } else { (n * word(1)) >> 32 >> word(2) };
            let by = by as u64;
            let last = ((1u64 << 31) - 1) / by;
            for quotient in [0, 1, 2, last / 2, last.saturating_sub(1), last] {
                for n in [quotient * by, quotient * by + by - 1] {
                    if n < 1 << 31 {
                        assert_eq!(divide(n), n / by, "{n} / {by}");
                    }
                }
            }
        }
    }
}
