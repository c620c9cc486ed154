//! CUDA launches of the matrix products: convolutions, transposed convolutions, linear layers.
//!
//! All of them are one of three passes over a [`ConvShape`], the same as on the CPU: a linear layer
//! is a 1x1 convolution of images of one pixel, a transposed convolution the gradient of a
//! convolution. Here it is decided, from shapes alone, which tile a pass uses and into how many
//! parts its reduction is split; the kernels are in `ops/conv2d/*.cu` and `cuda/gemm/*.cuh`.

use super::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Workspace};
use crate::DType;
use crate::matmul::ConvShape;

/// Threads of a block.
const THREADS: u32 = 128;
/// Values of the reduction in a stage.
const DEPTH: usize = 32;
/// Stages in shared memory.
const STAGES: usize = 4;
/// Values in the 16 bytes that a copy moves.
const CHUNK: usize = 8;
/// Blocks that fill a device: two on each of the 132 multiprocessors of an H100. A constant, so
/// that the order of a sum does not depend on the device.
const FULL: usize = 264;
/// Blocks from which on large tiles use a device better than four times as many small ones.
const LARGE_FROM: usize = 108;
/// Splits that large tiles may count on to become so many, and the stages that each must then have:
/// the partial sums of more would cost what the larger tile saves.
const LARGE_SPLITS: [usize; 2] = [4, 16];
/// Stages that a split should have at least, to be worth its partial sums.
const LEAST_SHARE: usize = 8;

/// A side of the tile that a block makes, and the kernel for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tile {
    /// 128 x 128.
    Large,
    /// 64 x 64.
    Small,
    /// 64 x 64, values read one by one: some count of channels is no multiple of 8.
    Unaligned,
}

/// The matrices of a pass and how they are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Plan {
    tile: Tile,
    /// Tiles of the output.
    tiles: usize,
    /// Parts of the reduction, summed by a second kernel if there are several.
    splits: usize,
    /// Elements of the output.
    len: usize,
}

impl Plan {
    /// A plan for `classes` products of `rows x columns`, each over `blocks` stages.
    fn new(
        [rows, columns, classes]: [usize; 3],
        len: usize,
        blocks: usize,
        aligned: bool,
        large_from: usize,
    ) -> Self {
        let tiles = |side: usize| rows.div_ceil(side) * columns.div_ceil(side);
        let [most, stages] = LARGE_SPLITS;
        let large_blocks = tiles(128) * classes * (blocks / stages).clamp(1, most);
        let large = aligned && rows.min(columns) > 64 && large_blocks >= large_from;
        let (tile, tiles) = match (aligned, large) {
            (false, _) => (Tile::Unaligned, tiles(64)),
            (true, false) => (Tile::Small, tiles(64)),
            (true, true) => (Tile::Large, tiles(128)),
        };
        let wanted = FULL / (tiles * classes).max(1);
        let splits = wanted.min(blocks / LEAST_SHARE).max(1);
        Self { tile, tiles, splits, len }
    }

    fn forward(s: &ConvShape) -> Self {
        let (rows, aligned) = (s.out_positions(), s.channels.is_multiple_of(CHUNK));
        let blocks = stages(s.kernel_h * s.kernel_w, s.channels, aligned);
        Self::new([rows, s.filters, 1], rows * s.filters, blocks, aligned, LARGE_FROM)
    }

    fn grad_input(s: &ConvShape) -> Self {
        let largest = s.height.div_ceil(s.stride) * s.width.div_ceil(s.stride);
        let aligned = is_aligned(s);
        let taps = s.kernel_h.div_ceil(s.stride) * s.kernel_w.div_ceil(s.stride);
        let blocks = stages(taps, s.filters, aligned);
        let len = s.images * s.height * s.width * s.channels;
        let extents = [s.images * largest, s.channels, s.stride * s.stride];
        Self::new(extents, len, blocks, aligned, LARGE_FROM)
    }

    /// Splits make the blocks that tiles do not: the large tile is right even if alone.
    fn grad_weight(s: &ConvShape) -> Self {
        let blocks = s.out_positions().div_ceil(DEPTH);
        let len = s.filters * s.filter_len();
        Self::new([s.filters, s.filter_len(), 1], len, blocks, is_aligned(s), 1)
    }

    fn side(&self) -> usize {
        if self.tile == Tile::Large { 128 } else { 64 }
    }

    /// Bytes of the partial sums, 0 if the reduction is not split.
    fn partial_bytes(&self) -> usize {
        if self.splits > 1 { self.splits * self.len * 4 } else { 0 }
    }

    fn partials(&self, workspace: &Workspace, offset: usize, access: Access) -> Arg {
        match self.partial_bytes() {
            0 => Arg::Null,
            bytes => workspace.piece(offset, bytes, access),
        }
    }

    /// A launch of one of the kernels for the large, the small and the unaligned tile.
    fn launch(&self, kernels: [&'static str; 3], classes: usize) -> Launch {
        let kernel = kernels[self.tile as usize];
        let shared = STAGES * 2 * self.side() * DEPTH * 2;
        Launch::new(kernel, [self.tiles, classes, self.splits]).block(THREADS).shared(shared)
    }
}

/// True if all tensors of a gradient can be read in 16-byte chunks.
fn is_aligned(s: &ConvShape) -> bool {
    s.channels.is_multiple_of(CHUNK) && s.filters.is_multiple_of(CHUNK)
}

/// Stages of a reduction over taps and channels, as the kernels walk it.
fn stages(taps: usize, channels: usize, aligned: bool) -> usize {
    if aligned { taps * channels.div_ceil(DEPTH) } else { (taps * channels).div_ceil(DEPTH) }
}

/// The kernels' `struct Conv`. Also the place where sizes that do not fit their `int`s are refused.
fn conv_arg(s: &ConvShape) -> Arg {
    let int = |value: usize| match i32::try_from(value) {
        Ok(value) => value,
        Err(_) => panic!("{value} does not fit an int, in {s:?}"),
    };
    let largest = [s.images * s.height * s.width, s.out_positions(), s.filter_len()];
    largest.into_iter().for_each(|product| {
        int(product);
    });
    let fields = [
        [s.images, s.height, s.width, s.channels, s.filters, s.kernel_h],
        [s.kernel_w, s.stride, s.pad, s.out_height, s.out_width, 0],
    ];
    let fields = fields.as_flattened().iter().take(11);
    fields.fold(StructArg::new(), |arg, &field| arg.field(int(field))).arg()
}

/// The kernels' `struct Divisor`: exact for dividends below 2^31.
fn divisor(by: usize) -> Arg {
    let by = by.max(1) as u64;
    let shift = u64::from(by.next_power_of_two().trailing_zeros()).saturating_sub(1);
    let magic = (1u64 << (32 + shift)).div_ceil(by);
    [by, magic, shift].iter().fold(StructArg::new(), |arg, &v| arg.field(v as u32)).arg()
}

fn read(buffer: Option<Buffer<'_>>) -> Arg {
    buffer.map_or(Arg::Null, |b| b.read())
}

/// The products read and write activations, their gradients and weights in half.
fn check_half(buffers: &[Buffer<'_>]) {
    for buffer in buffers {
        assert_eq!(buffer.dtype(), DType::F16, "{:?} in a matrix product", buffer.desc);
    }
}

/// What a pass does to its sums, and how many images hold data; parts that are absent are `None`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extras<'a> {
    /// Factor of an output channel, f32.
    pub scale: Option<Buffer<'a>>,
    /// Summand of an output channel, f32.
    pub bias: Option<Buffer<'a>>,
    /// Summand of an output element, half.
    pub residual: Option<Buffer<'a>>,
    /// Negative results become 0.
    pub relu: bool,
    /// Images that hold data, `[1] i32`.
    pub count: Option<Buffer<'a>>,
}

/// Scratch of [`forward`].
pub(crate) fn forward_workspace_bytes(s: &ConvShape) -> usize {
    Plan::forward(s).partial_bytes()
}

/// `y = relu(conv(x, w) * scale + bias + residual)` from `x`, `w` to `y`.
pub(crate) fn forward(
    s: &ConvShape,
    [x, w, y]: [Buffer<'_>; 3],
    extras: Extras<'_>,
    workspace: &Workspace,
) -> Vec<Launch> {
    const KERNELS: [&str; 3] = ["conv2d_f16_large", "conv2d_f16_small", "conv2d_f16_unaligned"];
    check_half(&[x, w, y]);
    let plan = Plan::forward(s);
    let product = plan
        .launch(KERNELS, 1)
        .arg(x.read())
        .arg(w.read())
        .arg(read(extras.scale))
        .arg(read(extras.bias))
        .arg(read(extras.residual))
        .arg(read(extras.count))
        .arg(y.write())
        .arg(plan.partials(workspace, 0, Access::Write))
        .arg(conv_arg(s))
        .arg(extras.relu);
    let images = [s.images, s.out_height * s.out_width, s.filters];
    let partials = plan.partials(workspace, 0, Access::Read);
    [product].into_iter().chain(reduce_half(&plan, partials, extras, y, images)).collect()
}

/// Sums the splits of a pass with output `y` of `[images, positions, columns]`.
fn reduce_half(
    plan: &Plan,
    partials: Arg,
    extras: Extras<'_>,
    y: Buffer<'_>,
    [images, per_image, columns]: [usize; 3],
) -> Option<Launch> {
    let launch = Launch::over("conv2d_reduce_f16", images * per_image * columns.div_ceil(CHUNK))
        .arg(partials)
        .int(plan.splits)
        .arg(read(extras.scale))
        .arg(read(extras.bias))
        .arg(read(extras.residual))
        .arg(read(extras.count))
        .arg(y.write())
        .int(images)
        .int(per_image)
        .int(columns)
        .arg(extras.relu);
    (plan.splits > 1).then_some(launch)
}

/// Bytes of the scaled weights at the start of the workspace of [`grad_input`].
fn scaled_bytes(s: &ConvShape, scaled: bool) -> usize {
    if scaled { (s.filters * s.filter_len() * 2).next_multiple_of(256) } else { 0 }
}

/// Scratch of [`grad_input`], `scaled` with a scale.
pub(crate) fn grad_input_workspace_bytes(s: &ConvShape, scaled: bool) -> usize {
    scaled_bytes(s, scaled) + Plan::grad_input(s).partial_bytes()
}

/// `dx = relu(conv_transposed(g * scale, w) + bias)` from `g`, `w` to `dx`. The scale is one of the
/// K channels of `g`, and multiplied into the weights, in half: a rounding of 2^-11 for a product.
pub(crate) fn grad_input(
    s: &ConvShape,
    [g, w, dx]: [Buffer<'_>; 3],
    extras: Extras<'_>,
    workspace: &Workspace,
) -> Vec<Launch> {
    const KERNELS: [&str; 3] = [
        "conv2d_grad_input_f16_large",
        "conv2d_grad_input_f16_small",
        "conv2d_grad_input_f16_unaligned",
    ];
    check_half(&[g, w, dx]);
    let plan = Plan::grad_input(s);
    let offset = scaled_bytes(s, extras.scale.is_some());
    let scale_weights = extras.scale.map(|scale| {
        Launch::over("conv2d_scale_weights_f16", s.filters * s.filter_len().div_ceil(CHUNK))
            .arg(w.read())
            .arg(scale.read())
            .arg(workspace.piece(0, w.len() * 2, Access::Write))
            .int(s.filters)
            .int(s.filter_len())
    });
    let weights = match extras.scale {
        Some(_) => workspace.piece(0, w.len() * 2, Access::Read),
        None => w.read(),
    };
    let product = plan
        .launch(KERNELS, s.stride * s.stride)
        .arg(g.read())
        .arg(weights)
        .arg(read(extras.bias))
        .arg(read(extras.count))
        .arg(dx.write())
        .arg(plan.partials(workspace, offset, Access::Write))
        .arg(conv_arg(s))
        .arg(extras.relu);
    let images = [s.images, s.height * s.width, s.channels];
    let partials = plan.partials(workspace, offset, Access::Read);
    let applied = Extras { scale: None, ..extras };
    let reduce = reduce_half(&plan, partials, applied, dx, images);
    scale_weights.into_iter().chain([product]).chain(reduce).collect()
}

/// Scratch of [`grad_weight`].
pub(crate) fn grad_weight_workspace_bytes(s: &ConvShape) -> usize {
    Plan::grad_weight(s).partial_bytes()
}

/// `dw[k] = scale[k] * sum over positions of g[k] * window(x)` from `x`, `g` to `dw`, in f32.
pub(crate) fn grad_weight(
    s: &ConvShape,
    [x, g, dw]: [Buffer<'_>; 3],
    extras: Extras<'_>,
    workspace: &Workspace,
) -> Vec<Launch> {
    const KERNELS: [&str; 3] = [
        "conv2d_grad_weight_f16_large",
        "conv2d_grad_weight_f16_small",
        "conv2d_grad_weight_f16_unaligned",
    ];
    check_half(&[x, g]);
    assert_eq!(dw.dtype(), DType::F32, "{:?} in a matrix product", dw.desc);
    let plan = Plan::grad_weight(s);
    let product = plan
        .launch(KERNELS, 1)
        .arg(x.read())
        .arg(g.read())
        .arg(read(extras.scale))
        .arg(read(extras.count))
        .arg(dw.write())
        .arg(plan.partials(workspace, 0, Access::Write))
        .arg(conv_arg(s))
        .arg(divisor(s.out_height * s.out_width))
        .arg(divisor(s.out_width));
    let reduce = (plan.splits > 1).then(|| {
        Launch::over("conv2d_reduce_f32", s.filters * s.filter_len().div_ceil(CHUNK))
            .arg(plan.partials(workspace, 0, Access::Read))
            .int(plan.splits)
            .arg(read(extras.scale))
            .arg(dw.write())
            .int(s.filters)
            .int(s.filter_len())
    });
    [product].into_iter().chain(reduce).collect()
}

/// Whatever an op's arguments hold besides its tensors, `count` being the last of its inputs.
pub(crate) fn counted<'a>(args: &LaunchArgs<'a>, counted: bool) -> Extras<'a> {
    let count = if counted { args.inputs.last().copied() } else { None };
    Extras { count, ..Extras::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a divisor divide as the kernel does, at the ends of every quotient.
    #[test]
    fn divisors_divide() {
        for by in (1..300).chain([403, 1050, 67_200, 65_535, 65_536, 65_537, (1 << 30) + 1]) {
            let bytes = divisor(by).bytes();
            let word = |i: usize| {
                let word = [0, 1, 2, 3].map(|k| bytes[4 * i + k]);
                u64::from(u32::from_ne_bytes(word))
            };
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

    #[test]
    fn plans_follow_the_shape() {
        let conv = |images: usize, side: usize, channels: usize| ConvShape {
            images,
            height: side,
            width: side,
            channels,
            filters: 256,
            kernel_h: 3,
            kernel_w: 3,
            stride: 1,
            pad: 1,
            out_height: side,
            out_width: side,
        };
        let large = Plan::forward(&conv(12, 100, 256));
        assert_eq!((large.tile, large.splits, large.partial_bytes()), (Tile::Large, 1, 0));
        assert_eq!(Plan::forward(&conv(1, 13, 255)).tile, Tile::Unaligned);
        // Twelve small tiles: 22 splits would fill the device, a share of 8 stages allows 9.
        let split = Plan::forward(&conv(1, 13, 256));
        assert_eq!((split.tile, split.tiles, split.splits), (Tile::Small, 12, 9));
        let weight = Plan::grad_weight(&conv(12, 100, 256));
        assert_eq!((weight.tile, weight.tiles, weight.splits), (Tile::Large, 36, 7));
    }
}
