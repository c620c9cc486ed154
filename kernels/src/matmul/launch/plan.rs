//! The plan of a pass: its kernel, its tiles, and the splits of its reduction.

use device::{Access, Arg, Gpu, Launch, Precision, Workspace};

use super::CHUNK;
use super::gemm::GemmLaunch;
use super::padded::is_padded;
use super::variants::{
    DEPTH, FORWARD_GROUPED, GRAD_INPUT, GRAD_INPUT_GROUPED, GRAD_INPUT_PADDED, GRAD_WEIGHT,
    GRAD_WEIGHT_GROUPED, GRAD_WEIGHT_PADDED, MAX_TAPS, Problem, Variant,
};
use crate::matmul::ConvShape;

/// The kernel, tiles and splits of a pass.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    variant: Variant,
    /// Tiles of the output.
    tiles: usize,
    /// Splits of the reduction, summed by a second kernel if there are several.
    pub splits: usize,
    /// Elements of the output.
    len: usize,
}

impl Plan {
    fn new(gpu: &Gpu, product: &GemmLaunch) -> Self {
        let (variant, splits) = product.chosen(gpu);
        let (tiles, len) = (variant.tiles(product.problem.extents), product.len);
        Self { variant, tiles, splits, len }
    }

    /// The forward pass, by a kernel of `FORWARD` or a similar table; grouped convolutions have a
    /// single table.
    pub(super) fn forward(table: &'static [Variant], gpu: &Gpu, s: &ConvShape) -> Self {
        let table = if s.is_grouped() { FORWARD_GROUPED } else { table };
        Self::new(gpu, &GemmLaunch::new(table, gpu, forward_problem(gpu, s)))
    }

    /// The input gradient: one GEMM for each residue of both coordinates modulo the stride.
    pub(super) fn grad_input(gpu: &Gpu, s: &ConvShape) -> Self {
        let table = match (is_padded(gpu, s), s.is_grouped()) {
            (_, true) => GRAD_INPUT_GROUPED,
            (true, false) => GRAD_INPUT_PADDED,
            (false, false) => GRAD_INPUT,
        };
        Self::new(gpu, &GemmLaunch::new(table, gpu, grad_input_problem(gpu, s)))
    }

    /// The weight gradient.
    pub(super) fn grad_weight(gpu: &Gpu, s: &ConvShape) -> Self {
        let table = match (is_padded(gpu, s), s.is_grouped()) {
            (_, true) => GRAD_WEIGHT_GROUPED,
            (true, false) => GRAD_WEIGHT_PADDED,
            (false, false) => GRAD_WEIGHT,
        };
        Self::new(gpu, &GemmLaunch::new(table, gpu, grad_weight_problem(gpu, s)))
    }

    /// Bytes of the partial sums, 0 if the reduction is not split.
    pub(super) fn partial_bytes(&self) -> usize {
        if self.splits > 1 { self.splits * self.len * 4 } else { 0 }
    }

    /// The partial sums, from `offset` of the workspace on.
    pub(super) fn partials(&self, workspace: &Workspace, offset: usize, access: Access) -> Arg {
        match self.partial_bytes() {
            0 => Arg::Null,
            bytes => workspace.piece(offset, bytes, access),
        }
    }

    /// A launch of the kernel, without arguments.
    pub(super) fn launch(&self, classes: usize) -> Launch {
        self.variant.launch([self.tiles, classes, self.splits])
    }
}

/// The problem of the forward pass, and the number of elements of its output.
fn forward_problem(gpu: &Gpu, s: &ConvShape) -> (Problem, usize) {
    let (rows, aligned) = (s.out_positions(), is_aligned(gpu, s));
    let k_blocks = k_blocks(s.kernel_h * s.kernel_w, s.group_channels(), aligned);
    let problem = Problem { extents: [rows, s.filters], classes: 1, k_blocks, aligned };
    (problem, rows * s.filters)
}

fn grad_input_problem(gpu: &Gpu, s: &ConvShape) -> (Problem, usize) {
    let largest = s.height.div_ceil(s.stride) * s.width.div_ceil(s.stride);
    let aligned = is_aligned(gpu, s);
    let taps = s.kernel_h.div_ceil(s.stride) * s.kernel_w.div_ceil(s.stride);
    let problem = Problem {
        extents: [s.images * largest, s.channels],
        classes: s.stride * s.stride,
        k_blocks: k_blocks(taps, s.group_filters(), aligned),
        aligned,
    };
    (problem, s.images * s.height * s.width * s.channels)
}

fn grad_weight_problem(gpu: &Gpu, s: &ConvShape) -> (Problem, usize) {
    let problem = Problem {
        extents: [s.filters, s.filter_len()],
        classes: 1,
        k_blocks: s.out_positions().div_ceil(DEPTH),
        aligned: is_aligned(gpu, s),
    };
    (problem, s.filters * s.filter_len())
}

/// True if all tensors of a pass can be read in 16-byte chunks; a gradient's rows are padded to
/// whole chunks, except in grouped convolutions. Precisions other than fp16 have only kernels that
/// gather element by element.
fn is_aligned(gpu: &Gpu, s: &ConvShape) -> bool {
    let whole = !s.is_grouped() || s.filters.is_multiple_of(CHUNK);
    let in_chunks = gpu.precision == Precision::Fp16 && whole;
    in_chunks && s.channels.is_multiple_of(CHUNK) && s.kernel_h.max(s.kernel_w) <= MAX_TAPS
}

/// k-blocks of a reduction over taps and channels, as the kernels process it.
fn k_blocks(taps: usize, channels: usize, aligned: bool) -> usize {
    if aligned { taps * channels.div_ceil(DEPTH) } else { (taps * channels).div_ceil(DEPTH) }
}

#[cfg(test)]
mod tests {
    use super::super::cost::cycles;
    use super::super::variants::FORWARD;
    use super::*;

    /// Minimum k-blocks per split in the rule that preceded the cost model.
    const MIN_SPLIT_K_BLOCKS: usize = 8;

    #[test]
    fn launch_plan_follows_shape() {
        let conv = |images: usize, side: usize, channels: usize| ConvShape {
            images,
            height: side,
            width: side,
            channels,
            out_height: side,
            out_width: side,
            ..SHAPE
        };
        let a100 = Gpu::a100();
        let forward = |shape: &ConvShape| Plan::forward(FORWARD, &a100, shape);
        let large = forward(&conv(12, 100, 256));
        assert_eq!((large.variant, large.splits, large.partial_bytes()), (FORWARD[0], 1, 0));
        assert_eq!(forward(&conv(1, 13, 255)).variant, FORWARD[2]);
        let wide = |kernel_w: usize| ConvShape { kernel_w, ..conv(12, 100, 256) };
        assert_eq!(forward(&wide(14)).variant, FORWARD[0]);
        assert_eq!(forward(&wide(15)).variant, FORWARD[2]);
        assert_eq!(Plan::grad_input(&a100, &wide(15)).variant, GRAD_INPUT[2]);
        // Twelve small tiles: 22 splits would fill the GPU, but with at least 8 k-blocks per split
        // there are at most 9.
        let split = forward(&conv(1, 13, 256));
        assert_eq!((split.variant, split.tiles, split.splits), (FORWARD[1], 12, 9));
        let odd = ConvShape { filters: 81, ..SHAPE };
        assert_eq!(Plan::grad_input(&a100, &odd).variant, GRAD_INPUT_PADDED[0]);
        assert_eq!(Plan::grad_weight(&a100, &odd).variant, GRAD_WEIGHT_PADDED[0]);
        let weight = Plan::grad_weight(&a100, &conv(12, 100, 256));
        assert_eq!((weight.variant, weight.tiles, weight.splits), (GRAD_WEIGHT[0], 36, 6));
    }

    /// A weight gradient of 36 tiles fills one wave of an A100's 216 slots, and three of an H100's
    /// 264.
    #[test]
    fn split_k_fits_gpu_waves() {
        let fpn = ConvShape {
            images: 12,
            height: 200,
            width: 336,
            out_height: 200,
            out_width: 336,
            ..SHAPE
        };
        let splits = |gpu: &Gpu| Plan::grad_weight(gpu, &fpn).splits;
        assert_eq!([splits(&Gpu::a100()), splits(&Gpu::h100())], [6, 22]);
    }

    /// The rule that preceded the cost model: 264 slots on every GPU, large tiles if they fill 108
    /// blocks.
    fn earlier(table: &[Variant], p: &Problem) -> (Variant, usize) {
        let splits = (p.k_blocks / 16).clamp(1, 4);
        let least = if table[0].kernel.contains("weight") { 1 } else { 108 };
        let fills = table[0].tiles(p.extents) * p.classes * splits >= least;
        let large = p.extents.iter().all(|extent| *extent >= 65) && fills;
        let variant = table[if p.aligned { usize::from(!large) } else { 2 }];
        let wanted = 264 / (variant.tiles(p.extents) * p.classes).max(1);
        (variant, wanted.min(p.k_blocks / MIN_SPLIT_K_BLOCKS).max(1))
    }

    /// Convolutions of R50-FPN at batch 12 of 800x1344: name, then height, width, channels,
    /// filters, kernel and stride.
    const R50: [(&str, [usize; 6]); 24] = [
        ("res2 c1", [200, 336, 256, 64, 1, 1]),
        ("res2 c2", [200, 336, 64, 64, 3, 1]),
        ("res2 c3", [200, 336, 64, 256, 1, 1]),
        ("res3 c1", [100, 168, 512, 128, 1, 1]),
        ("res3 c2, stride 2", [200, 336, 128, 128, 3, 2]),
        ("res3 c2", [100, 168, 128, 128, 3, 1]),
        ("res3 c3", [100, 168, 128, 512, 1, 1]),
        ("res3 downsample", [200, 336, 256, 512, 1, 2]),
        ("res4 c1", [50, 84, 1024, 256, 1, 1]),
        ("res4 c2, stride 2", [100, 168, 256, 256, 3, 2]),
        ("res4 c2", [50, 84, 256, 256, 3, 1]),
        ("res4 c3", [50, 84, 256, 1024, 1, 1]),
        ("res4 downsample", [100, 168, 512, 1024, 1, 2]),
        ("res5 c1", [25, 42, 2048, 512, 1, 1]),
        ("res5 c2, stride 2", [50, 84, 512, 512, 3, 2]),
        ("res5 c2", [25, 42, 512, 512, 3, 1]),
        ("res5 c3", [25, 42, 512, 2048, 1, 1]),
        ("res5 downsample", [50, 84, 1024, 2048, 1, 2]),
        ("FPN P2", [200, 336, 256, 256, 3, 1]),
        ("FPN P3", [100, 168, 256, 256, 3, 1]),
        ("FPN P4", [50, 84, 256, 256, 3, 1]),
        ("FPN P5", [25, 42, 256, 256, 3, 1]),
        ("RPN P6", [13, 21, 256, 256, 3, 1]),
        ("FPN lateral of res5", [25, 42, 2048, 256, 1, 1]),
    ];

    /// By the cost model, no plan is worse than the previous rule's. `--nocapture` prints the
    /// differences.
    #[test]
    fn no_plan_is_worse_than_with_264_slots() {
        let mut changed = 0;
        for gpu in [Gpu::a100(), Gpu::h100()] {
            for (name, [height, width, channels, filters, kernel, stride]) in R50 {
                let s = ConvShape {
                    images: 12,
                    height,
                    width,
                    channels,
                    filters,
                    kernel_h: kernel,
                    kernel_w: kernel,
                    stride,
                    pad: kernel / 2,
                    out_height: height.div_ceil(stride),
                    out_width: width.div_ceil(stride),
                    ..SHAPE
                };
                let passes = [
                    ("forward", FORWARD, forward_problem(&gpu, &s)),
                    ("grad_input", GRAD_INPUT, grad_input_problem(&gpu, &s)),
                    ("grad_weight", GRAD_WEIGHT, grad_weight_problem(&gpu, &s)),
                ];
                for (pass, table, (problem, len)) in passes {
                    let plan = Plan::new(&gpu, &GemmLaunch::new(table, &gpu, (problem, len)));
                    let (variant, splits) = earlier(table, &problem);
                    let now = cycles(&gpu, &plan.variant, &problem, plan.splits, len);
                    let before = cycles(&gpu, &variant, &problem, splits, len);
                    assert!(now <= before, "{name} {pass}: {now} > {before}");
                    if (plan.variant, plan.splits) != (variant, splits) {
                        changed += 1;
                        println!(
                            "| {} | {name} | {pass} | {} x {splits} | {} x {} | {:.2} |",
                            gpu.name,
                            variant.tile[0],
                            plan.variant.tile[0],
                            plan.splits,
                            now / before
                        );
                    }
                }
            }
        }
        assert!(changed > 0);
    }

    const SHAPE: ConvShape = ConvShape {
        images: 2,
        height: 25,
        width: 34,
        channels: 256,
        filters: 256,
        kernel_h: 3,
        kernel_w: 3,
        stride: 1,
        pad: 1,
        dilation: 1,
        groups: 1,
        out_height: 25,
        out_width: 34,
    };
}
