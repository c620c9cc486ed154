//! The end of a ConvNeXt residual block: `y = x + kept * scale * branch`, with layer scale and
//! stochastic depth: the branch of each image is kept or dropped.
//!
//! Matches torch's `x + stochastic_depth(layer_scale * branch, rate, "row")`: an image keeps its
//! branch with probability `1 - rate`, and a kept branch is divided by this probability; without
//! `drop` all branches are kept, undivided. The selection is a pure function of (seed, epoch,
//! image, block).

mod cases;

use device::{Access, Arg, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use crate::column_sums::Chunks;
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::isa::{Isa, wide};
use crate::ops::bias_grad;
use crate::philox::{Purpose, keyed};
use crate::{BackwardRule, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// `y = x + kept * scale * branch`. For the gradient of `scale`, chunks of an image's positions
    /// are summed in f32, and the chunks in f64. Memory-bound.
    #[derive(Copy)]
    pub struct ScaledResidual = "scaled_residual" {
        /// Stochastic depth; adds an input `image_keys`.
        pub drop: Option<Drop>,
    }
    in ScaledResidualInputs {
        /// Input of the block.
        x: real "[N, .., C]",
        /// The branch.
        branch: real "[N, .., C]",
        /// Layer scale.
        scale: f32 "[C]",
    }
    optional {
        /// Keys of the images, for the random numbers.
        image_keys: i32 "[N, 4]" if |op| op.drop.is_some(),
    }
    out {
        /// Output of the block.
        y: Activation "[N, .., C]",
    }
}

/// Stochastic depth: the random selection of the images that keep a branch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drop {
    /// Probability that an image drops the branch, at least 0 and below 1.
    pub rate: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Index of the branch in the model.
    pub block: u32,
}

impl Drop {
    /// A random word below this drops the branch.
    pub(super) fn threshold(&self) -> u32 {
        (f64::from(self.rate) * 4_294_967_296.0) as u32
    }

    /// The multiplier of each image's branch.
    fn factors(&self, keys: &[i32]) -> Vec<f32> {
        let keeps =
            |key: &[i32]| keyed(self.seed, key, Purpose::Depth, self.block) >= self.threshold();
        let factor = |key: &[i32]| if keeps(key) { self.kept() } else { 0.0 };
        keys.chunks_exact(4).map(factor).collect()
    }

    /// The multiplier of a kept branch.
    pub(super) fn kept(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

/// The multiplier of the branch of each of `images` images.
fn factors(drop: Option<Drop>, keys: Option<&[i32]>, images: usize) -> Vec<f32> {
    match (drop, keys) {
        (Some(drop), Some(keys)) => drop.factors(keys),
        _ => vec![1.0; images],
    }
}

/// Fails unless the drop probability is below 1.
fn check_rate(op: &'static str, drop: Option<Drop>) -> Result<(), OpError> {
    let rate = drop.map_or(0.0, |drop| drop.rate);
    check::parameter(op, "rate", (0.0..1.0).contains(&rate), "at least 0 and less than 1", rate)
}

impl Kernel for ScaledResidual {
    const FLOPS: Flops = Flops::Output(3);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_rate(dims.op(), self.drop)
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let Self { drop } = *self;
        let from = [Source::GradOutput(0), Source::Input(1), Source::Input(2)];
        let keys = drop.map(|_| Source::Input(3));
        let from: Vec<Source> = from.into_iter().chain(keys).collect();
        let to = [1, 2].map(Sink::GradInput);
        BackwardRule::default()
            .step(ScaledResidualGrad { drop }, &from, &to)
            .alias(Source::GradOutput(0), 0)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let drop = self.drop;
        vec![over("scaled_residual_f16", drop, args)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ScaledResidualInputs { x, branch, scale, image_keys } =
            ScaledResidualInputs::of(&args.inputs, [self.drop.is_some()]);
        let factors = factors(self.drop, image_keys.map(|keys| keys.i32()), x.desc.dim(0));
        let y = args.outputs[0].f32();
        forward(x.f32(), branch.f32(), scale.f32(), &factors, y);
    }
}

/// The kernel argument `Drop`.
fn arg(drop: Option<Drop>) -> Arg {
    let (threshold, block, kept, seed) = match drop {
        Some(drop) => (drop.threshold(), drop.block, drop.kept(), drop.seed),
        None => (0, 0, 1.0, 0),
    };
    StructArg::new().field(seed).field(threshold).field(block).field(kept).arg()
}

fn keys(args: &LaunchArgs<'_>) -> Arg {
    args.inputs.get(3).map_or(Arg::Null, |keys| keys.read())
}

/// Number of positions of `[N, .., C]`: in the tensor, and per image.
fn positions(x: &TensorDesc) -> [usize; 2] {
    let image = x.shape[1..x.shape.len() - 1].iter().product();
    [x.dim(0) * image, image]
}

/// Values per block.
const BLOCK_VALUES: usize = 256 * 8;

/// An elementwise kernel that processes each image separately.
fn over(kernel: &'static str, drop: Option<Drop>, args: &LaunchArgs<'_>) -> Launch {
    let x = args.inputs[0];
    let len = positions(x.desc)[1] * x.dim(-1);
    Launch::new(kernel, [len.div_ceil(BLOCK_VALUES), x.dim(0), 1])
        .arg(x.read())
        .arg(args.inputs[1].read())
        .arg(args.inputs[2].read())
        .arg(keys(args))
        .arg(args.outputs[0].write())
        .int(len)
        .int(x.dim(-1))
        .arg(arg(drop))
}

/// Bytes for the sums over chunks of positions.
fn workspace_bytes(x: &TensorDesc) -> usize {
    Chunks::of(positions(x)[0], x.dim(-1)).bytes()
}

op! {
    /// Gradients of the branch and of the scale.
    #[derive(Copy)]
    pub struct ScaledResidualGrad = "scaled_residual_grad" {
        /// As in [`ScaledResidual`].
        pub drop: Option<Drop>,
    }
    in ScaledResidualGradInputs {
        /// Gradient of the block's output, which is also the gradient of `x`.
        g: real "[N, .., C]",
        /// The branch.
        branch: real "[N, .., C]",
        /// Layer scale.
        scale: f32 "[C]",
    }
    optional {
        /// Keys of the images, for the random numbers.
        image_keys: i32 "[N, 4]" if |op| op.drop.is_some(),
    }
    out {
        /// Gradient of the branch.
        dbranch: Gradient "[N, .., C]",
        /// Gradient of the layer scale.
        dscale: WeightGradient "[C]",
    }
}

impl Kernel for ScaledResidualGrad {
    const FLOPS: Flops = Flops::Output(4);

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_rate(dims.op(), self.drop)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let channels = inputs[0].dim(-1).max(1);
        bias_grad::workspace_len(inputs[0].len() / channels, channels)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let drop = self.drop;
        let [g, branch] = [0, 1].map(|i| args.inputs[i]);
        let [rows, image] = positions(g.desc);
        let chunks = Chunks::of(rows, g.dim(-1));
        let partial = |access| args.workspace.piece(0, chunks.bytes(), access);
        let sums = chunks
            .launch(["scaled_residual_grad_scale_f16x8", "scaled_residual_grad_scale_f16"])
            .reads([g, branch])
            .arg(keys(args))
            .arg(partial(Access::Write));
        let sums = chunks.sizes(sums).int(image).arg(arg(drop));
        let total = chunks.total(partial(Access::Read), args.outputs[1]);
        vec![over("scaled_residual_grad_branch_f16", drop, args), sums, total]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ScaledResidualGradInputs { g, branch, scale, image_keys } =
            ScaledResidualGradInputs::of(&args.inputs, [self.drop.is_some()]);
        let factors = factors(self.drop, image_keys.map(|keys| keys.i32()), g.desc.dim(0));
        let (g, branch, scale) = (g.f32(), branch.f32(), scale.f32());
        let [dbranch, dscale] = exactly(&mut args.outputs);
        grad_branch(g, scale, &factors, dbranch.f32());
        grad_scale(g, branch, &factors, dscale.f32(), args.workspace);
    }
}

/// Positions per task, and per f32 sum.
const TASK: usize = 64;

/// Splits the positions of each image into tasks. Each task calls `f` with the image's multiplier,
/// the start of the task's positions, and their part of `out`.
fn tasks(
    out: &mut [f32],
    channels: usize,
    factors: &[f32],
    f: impl Fn(f32, usize, &mut [f32]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let image = out.len() / factors.len();
    let images = out.par_chunks_mut(image).zip(factors).enumerate();
    images.for_each(|(n, (out, factor))| {
        let tasks = out.par_chunks_mut(TASK * channels).enumerate();
        tasks.for_each(|(task, out)| f(*factor, n * image + task * TASK * channels, out));
    });
}

/// `y = x + factor * scale * branch`.
fn forward(x: &[f32], branch: &[f32], scale: &[f32], factors: &[f32], y: &mut [f32]) {
    let (isa, channels) = (Isa::get(), scale.len());
    tasks(y, channels, factors, |factor, at, y| {
        let of = at..at + y.len();
        add(isa, &x[of.clone()], &branch[of], scale, factor, y);
    });
}

wide! {
    /// [`forward`] for some positions of one image.
    fn add(x: &[f32], branch: &[f32], scale: &[f32], factor: f32, y: &mut [f32]) {
        let channels = scale.len();
        let positions = y.chunks_exact_mut(channels).zip(x.chunks_exact(channels));
        for ((y, x), branch) in positions.zip(branch.chunks_exact(channels)) {
            for (((y, x), branch), scale) in y.iter_mut().zip(x).zip(branch).zip(scale) {
                *y = x + factor * (scale * branch);
            }
        }
    }
}

/// `dbranch = factor * scale * g`.
fn grad_branch(g: &[f32], scale: &[f32], factors: &[f32], dbranch: &mut [f32]) {
    let (isa, channels) = (Isa::get(), scale.len());
    tasks(dbranch, channels, factors, |factor, at, dbranch| {
        multiply(isa, &g[at..at + dbranch.len()], scale, factor, dbranch);
    });
}

wide! {
    /// [`grad_branch`] for some positions of one image.
    fn multiply(g: &[f32], scale: &[f32], factor: f32, dbranch: &mut [f32]) {
        let channels = scale.len();
        let positions = dbranch.chunks_exact_mut(channels).zip(g.chunks_exact(channels));
        for (dbranch, g) in positions {
            for ((dbranch, g), scale) in dbranch.iter_mut().zip(g).zip(scale) {
                *dbranch = factor * (scale * g);
            }
        }
    }
}

/// Sums of `factor * g * branch` over positions: in f32 over [`TASK`] positions of an image, then
/// in f64.
fn grad_scale(
    g: &[f32],
    branch: &[f32],
    factors: &[f32],
    dscale: &mut [f32],
    workspace: &mut [f32],
) {
    let (isa, channels) = (Isa::get(), dscale.len());
    if g.is_empty() {
        return dscale.fill(0.0);
    }
    let image = g.len() / factors.len();
    let rows = (image / channels).div_ceil(TASK) * channels;
    let mut total = vec![0.0f64; channels];
    let images = g.chunks_exact(image).zip(branch.chunks_exact(image));
    for ((g, branch), factor) in images.zip(factors) {
        let partial = &mut workspace[..rows];
        let pairs = g.par_chunks(TASK * channels).zip(branch.par_chunks(TASK * channels));
        partial.par_chunks_mut(channels).zip(pairs).for_each(|(sums, (g, branch))| {
            scale_sums(isa, g, branch, sums);
        });
        for sums in partial.chunks_exact(channels) {
            for (total, sum) in total.iter_mut().zip(sums) {
                *total += f64::from(*factor) * f64::from(*sum);
            }
        }
    }
    dscale.iter_mut().zip(total).for_each(|(out, total)| *out = total as f32);
}

wide! {
    /// Sums over some positions of `g * branch`.
    fn scale_sums(g: &[f32], branch: &[f32], sums: &mut [f32]) {
        sums.fill(0.0);
        let positions = g.chunks_exact(sums.len()).zip(branch.chunks_exact(sums.len()));
        for (g, branch) in positions {
            for ((sum, g), branch) in sums.iter_mut().zip(g).zip(branch) {
                *sum += g * branch;
            }
        }
    }
}
