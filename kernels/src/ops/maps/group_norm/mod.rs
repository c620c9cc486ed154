//! Group normalisation (Wu & He 2018) in NHWC with a fused epilogue: `y = relu((x - mean) * rstd *
//! gamma + beta + residual)`.
//!
//! Matches `torch.nn.functional.group_norm`; mean and variance (biased) are over the positions and
//! the C / groups channels of one group of one image.
//!
//! Memory-bound: x is read twice. Sums over 128 positions are in f32, shifted by the channel's
//! first value so that a large mean causes no cancellation; the rest is in f64, in order:
//! deterministic. The three gradient ops share one reduction with the same numerics.

mod cases;
mod cpu;

use device::{Access, Arg, Launch, LaunchArgs, StructArg};

use crate::contract::{Dims, Flops, Kernel};
use crate::counted::used_rows;
use crate::cpu::{CpuArgs, TensorRef, exactly};
use crate::ops::relu_mask::ReluMask;
use crate::{BackwardRule, Cost, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// `y = relu(normalised(x) * gamma + beta + residual)`; ReLU and residual only if their flags
    /// are set.
    pub struct GroupNorm = "group_norm" {
        /// Number of groups; divides C.
        pub groups: usize,
        /// Added to the variance.
        pub eps: f32,
        /// Applies ReLU.
        pub relu: bool,
        /// There is an input `residual [N,H,W,C]`.
        pub residual: bool,
        /// The last input is `count [1] i32`.
        pub counted: bool,
    }
    in GroupNormInputs {
        /// Map.
        x: real "[N, H, W, C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Shift.
        beta: f32 "[C]",
    }
    optional {
        /// Added before the ReLU.
        residual: real "[N, H, W, C]" if |op| op.residual,
        /// Number of images in use; the others may hold any values, and have no gradient.
        count: i32 "[1]" if |op| op.counted,
    }
    out {
        /// Output.
        y: Activation "[N, H, W, C]",
        /// Mean and rstd of each group, for the backward ops; no gradient flows through them.
        stats: Master "[N, groups, 2]",
    }
}

/// Fails unless `groups` divides the channels of `x`, and the map is not empty.
fn check_map(op: &'static str, x: &TensorDesc, groups: usize) -> Result<(), OpError> {
    let divides = groups > 0 && x.dim(3).is_multiple_of(groups);
    let expected = format!("a divisor of the {} channels", x.dim(3));
    check::parameter(op, "groups", divides, &expected, groups)?;
    if x.dim(0) > 0 && x.shape[1..].contains(&0) {
        return Err(check::shape_error(op, "x", x, "[N, H, W, C] with H, W, C > 0".into()));
    }
    Ok(())
}

impl Kernel for GroupNorm {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[0], self.groups)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let mut cost = Cost::streaming(inputs, outputs, 7 * outputs[0].len() as u64);
        cost.bytes += inputs[0].cpu_bytes() as u64;
        cost
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let Self { groups, counted, .. } = *self;
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let (x, gamma, stats) = (Source::Input(0), Source::Input(1), Source::Output(1));
        let sums = usize::from(self.relu);
        let count = Source::Input(3 + usize::from(self.residual));
        let scale_sources = [Source::Temp(sums), count];
        rule = rule
            .step(GroupNormGradSums { groups }, &[g, x, stats], &[Sink::Temp(sums)])
            .step(
                GroupNormGradInput { groups },
                &[g, x, gamma, stats, Source::Temp(sums)],
                &[Sink::GradInput(0)],
            )
            .step(
                GroupNormGradParams { counted },
                &scale_sources[..1 + usize::from(counted)],
                &[Sink::GradInput(1), Sink::GradInput(2)],
            );
        if self.residual { rule.alias(g, 3) } else { rule }
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        cpu::Map::new(&inputs[0], self.groups).partial_len()
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        partial_bytes(&inputs[0], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [x, gamma, beta] = [0, 1, 2].map(|i| args.inputs[i]);
        let (y, stats) = (args.outputs[0], args.outputs[1]);
        let residual = args.inputs.get(3).filter(|_| self.residual);
        let residual = residual.map_or(Arg::Null, |r| r.read());
        let map = Map::new(x.desc, self.groups);
        let partial = |access| args.workspace.piece(0, map.partial_bytes(), access);
        let moments = map.pass(["group_norm_moments_f16x8", "group_norm_moments_f16"]);
        let normalise = map.pass(["group_norm_normalise_f16x8", "group_norm_normalise_f16"]);
        vec![
            moments.arg(x.read()).arg(partial(Access::Write)).arg(map.arg()),
            Launch::new("group_norm_stats", [map.images * map.groups, 1, 1])
                .arg(x.read())
                .arg(partial(Access::Read))
                .arg(stats.write())
                .arg(map.arg())
                .arg(self.eps),
            normalise
                .reads([x, gamma, beta])
                .arg(residual)
                .arg(stats.read())
                .arg(y.write())
                .arg(map.arg())
                .arg(self.relu),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let GroupNormInputs { x, gamma, beta, residual, .. } =
            GroupNormInputs::of(&args.inputs, [self.residual, self.counted]);
        let map = cpu::Map::new(x.desc, self.groups);
        let (x, gamma, beta) = (x.f32(), gamma.f32(), beta.f32());
        let residual = residual.map(TensorRef::f32);
        let [y, stats] = exactly(&mut args.outputs);
        cpu::statistics(map, x, self.eps, stats.f32(), args.workspace);
        cpu::normalise(map, x, (gamma, beta), residual, self.relu, stats.f32(), y.f32());
    }
}

/// Vectors of channels per block; as in `vector.cuh`.
const TILE: usize = 32;
/// Minimum positions per chunk: with fewer positions, the partial sums cost as much memory traffic
/// as the map.
const MIN_CHUNK: usize = 64;
/// Maximum chunks per image: enough to fill the largest GPU with a few images.
const MAX_CHUNKS: usize = 256;

/// How the kernels split a map into chunks.
struct Map {
    images: usize,
    positions: usize,
    channels: usize,
    groups: usize,
    chunk: usize,
}

impl Map {
    fn new(x: &TensorDesc, groups: usize) -> Self {
        let positions = x.dim(1) * x.dim(2);
        let chunk = positions.div_ceil(MAX_CHUNKS).max(MIN_CHUNK);
        Self { images: x.dim(0), positions, channels: x.dim(3), groups, chunk }
    }

    fn chunks(&self) -> usize {
        self.positions.div_ceil(self.chunk)
    }

    /// The kernel argument `Map`.
    fn arg(&self) -> Arg {
        let fields = [self.positions, self.channels, self.groups, self.chunk, self.chunks()];
        StructArg::new().ints(fields).arg()
    }

    /// A launch over the map, with the kernel for vectors of 8 channels if possible.
    fn pass(&self, [wide, narrow]: [&'static str; 2]) -> Launch {
        let fits = self.channels.is_multiple_of(8);
        let (kernel, vector) = if fits { (wide, 8) } else { (narrow, 1) };
        let tiles = (self.channels / vector).div_ceil(TILE);
        Launch::new(kernel, [self.images * self.chunks(), tiles, 1])
    }

    /// Bytes for two sums per channel of each chunk.
    fn partial_bytes(&self) -> usize {
        self.images * self.chunks() * 2 * self.channels * size_of::<f32>()
    }
}

fn partial_bytes(x: &TensorDesc, groups: usize) -> usize {
    Map::new(x, groups).partial_bytes()
}

/// Bytes for slope and offset per group of each image.
fn corrections_bytes(x: &TensorDesc, groups: usize) -> usize {
    x.dim(0) * groups * 2 * size_of::<f32>()
}

op! {
    /// Sums of `g` and of `g * normalised(x)` for each image and channel.
    pub struct GroupNormGradSums = "group_norm_grad_sums" {
        /// Number of groups.
        pub groups: usize,
    }
    in GroupNormGradSumsInputs {
        /// Gradient of the normalised map.
        g: real "[N, H, W, C]",
        /// Map.
        x: real "[N, H, W, C]",
        /// Mean and rstd from the forward op.
        stats: f32 "[N, groups, 2]",
    }
    out {
        /// Sums over the positions of an image: of `g`, and of `g * normalised(x)`.
        sums: Master "[N, 2, C]",
    }
}

op! {
    /// Gradient of x.
    pub struct GroupNormGradInput = "group_norm_grad_input" {
        /// Number of groups.
        pub groups: usize,
    }
    in GroupNormGradInputInputs {
        /// Gradient of the normalised map.
        g: real "[N, H, W, C]",
        /// Map.
        x: real "[N, H, W, C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Mean and rstd from the forward op.
        stats: f32 "[N, groups, 2]",
        /// Sums from [`GroupNormGradSums`].
        sums: f32 "[N, 2, C]",
    }
    out {
        /// Gradient of x.
        dx: Gradient "[N, H, W, C]",
    }
}

op! {
    /// Gradients of gamma and beta.
    pub struct GroupNormGradParams = "group_norm_grad_params" {
        /// The last input is `count [1] i32`.
        pub counted: bool,
    }
    in GroupNormGradParamsInputs {
        /// Sums from [`GroupNormGradSums`].
        sums: f32 "[N, 2, C]",
    }
    optional {
        /// Number of images in use.
        count: i32 "[1]" if |op| op.counted,
    }
    out {
        /// Gradient of the scale.
        dgamma: WeightGradient "[C]",
        /// Gradient of the shift.
        dbeta: WeightGradient "[C]",
    }
}

impl Kernel for GroupNormGradSums {
    const FLOPS: Flops = Flops::Input(4);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[1], self.groups)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        cpu::Map::new(&inputs[1], self.groups).partial_len()
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        partial_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let groups = self.groups;
        let [g, x, stats] = [0, 1, 2].map(|i| args.inputs[i]);
        let map = Map::new(x.desc, groups);
        let partial = |access| args.workspace.piece(0, map.partial_bytes(), access);
        vec![
            map.pass(["group_norm_grad_partial_f16x8", "group_norm_grad_partial_f16"])
                .reads([g, x, stats])
                .arg(partial(Access::Write))
                .arg(map.arg()),
            Launch::new("group_norm_grad_sums", [(2 * map.channels).div_ceil(32), map.images, 1])
                .arg(partial(Access::Read))
                .arg(args.outputs[0].write())
                .arg(map.arg()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, stats] = [0, 1, 2].map(|i| args.inputs[i].f32());
        cpu::grad_sums(map, (g, x), stats, args.outputs[0].f32(), args.workspace);
    }
}

impl Kernel for GroupNormGradInput {
    const FLOPS: Flops = Flops::Output(5);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_map(dims.op(), &inputs[1], self.groups)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        corrections_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let groups = self.groups;
        let [g, x, gamma, stats, sums] = [0, 1, 2, 3, 4].map(|i| args.inputs[i]);
        let map = Map::new(x.desc, groups);
        let count = map.images * groups;
        let bytes = corrections_bytes(x.desc, groups);
        let corrections = |access| args.workspace.piece(0, bytes, access);
        vec![
            Launch::over("group_norm_corrections", 32 * count)
                .reads([gamma, stats, sums])
                .arg(corrections(Access::Write))
                .arg(map.arg())
                .int(count),
            map.pass(["group_norm_grad_input_f16x8", "group_norm_grad_input_f16"])
                .reads([g, x, gamma, stats])
                .arg(corrections(Access::Read))
                .arg(args.outputs[0].write())
                .arg(map.arg()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, gamma, stats, sums] = [0, 1, 2, 3, 4].map(|i| args.inputs[i].f32());
        cpu::grad_input(map, (g, x), gamma, stats, sums, args.outputs[0].f32());
    }
}

impl Kernel for GroupNormGradParams {
    const FLOPS: Flops = Flops::Input(1);

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let sums = args.inputs[0];
        vec![
            Launch::over("group_norm_grad_params", sums.dim(2))
                .reads([sums])
                .arg(args.inputs.get(1).map_or(Arg::Null, |count| count.read()))
                .arg(args.outputs[0].write())
                .arg(args.outputs[1].write())
                .int(sums.dim(0))
                .int(sums.dim(2)),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let GroupNormGradParamsInputs { sums, count } =
            GroupNormGradParamsInputs::of(&args.inputs, [self.counted]);
        let [dgamma, dbeta] = exactly(&mut args.outputs);
        let channels = dgamma.desc.len();
        let images = used_rows(count, sums.desc.dim(0));
        let sums = &sums.f32()[..images * 2 * channels];
        let over_images = |start: usize| {
            sums.iter().skip(start).step_by(2 * channels).map(|&v| f64::from(v)).sum::<f64>()
        };
        for (c, dgamma) in dgamma.f32().iter_mut().enumerate() {
            *dgamma = over_images(channels + c) as f32;
        }
        for (c, dbeta) in dbeta.f32().iter_mut().enumerate() {
            *dbeta = over_images(c) as f32;
        }
    }
}
