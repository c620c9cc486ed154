//! Layer normalisation (Ba et al. 2016) over the channels of each position:
//! `y = (x - mean) * rstd * gamma + beta`.
//!
//! Matches `torch.nn.functional.layer_norm` over the last dimension, and torchvision's
//! `LayerNorm2d`; the variance is biased.

mod cases;

use device::{Access, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::column_sums::Chunks;
use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::isa::{Isa, wide};
use crate::ops::bias_grad;
use crate::{BackwardRule, Cost, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// `y = normalised(x) * gamma + beta`, for each position separately.
    ///
    /// Sums over channels are in f32, in several lanes and a fixed order; sums over positions, for
    /// the gradients of scale and shift, are computed as in `bias_grad`. Memory-bound. Edge cases:
    /// zero positions are allowed, zero channels are rejected.
    #[derive(Copy)]
    pub struct LayerNorm = "layer_norm" {
        /// Added to the variance.
        pub eps: f32,
    }
    in LayerNormInputs {
        /// Positions of C channels.
        x: real "[.., C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Shift.
        beta: f32 "[C]",
    }
    out {
        /// Output.
        y: Activation "[.., C]",
        /// Mean and rstd of each position, for the backward op; no gradient flows through them.
        stats: Master "[M, 2]",
    }
}

/// Positions of `[.., C]`.
fn positions(x: &TensorDesc) -> usize {
    x.shape[..x.shape.len() - 1].iter().product()
}

/// Fails unless `x` has at least one channel; binds the number of positions to M.
fn check_channels(op: &'static str, x: &TensorDesc, dims: &mut Dims) -> Result<(), OpError> {
    if x.shape.len() < 2 || x.dim(-1) == 0 {
        return Err(check::shape_error(op, "x", x, "[.., C] with C > 0".into()));
    }
    dims.bind("M", positions(x));
    Ok(())
}

impl Kernel for LayerNorm {
    const FLOPS: Flops = Flops::Output(7);

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_channels(dims.op(), &inputs[0], dims)
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
        let from = [Source::GradOutput(0), Source::Input(0), Source::Input(1), Source::Output(1)];
        BackwardRule::default().step(LayerNormGrad, &from, &[0, 1, 2].map(Sink::GradInput))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let eps = self.eps;
        let x = args.inputs[0];
        let rows = positions(x.desc);
        vec![
            Launch::new("layer_norm_f16", [rows.div_ceil(WARPS), 1, 1])
                .tensors(args)
                .int(rows)
                .int(x.dim(-1))
                .arg(eps),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormInputs { x, gamma, beta } = LayerNormInputs::of(&args.inputs);
        let [x, gamma, beta] = [x, gamma, beta].map(|t| t.f32());
        let [y, stats] = exactly(&mut args.outputs);
        forward(x, (gamma, beta), self.eps, y.f32(), stats.f32());
    }
}

/// Positions per block, one per warp.
const WARPS: usize = 8;

/// Bytes of the partial sums over chunks of positions, for the gradients of gamma and beta.
fn workspace_bytes(x: &TensorDesc) -> usize {
    2 * Chunks::of(positions(x), x.dim(-1)).bytes()
}

op! {
    /// Gradients of the input, the scale and the shift.
    #[derive(Copy, Eq)]
    pub struct LayerNormGrad = "layer_norm_grad" {}
    in LayerNormGradInputs {
        /// Gradient of the output.
        g: real "[.., C]",
        /// Input.
        x: real "[.., C]",
        /// Scale.
        gamma: f32 "[C]",
        /// Mean and rstd from the forward op.
        stats: f32 "[M, 2]",
    }
    out {
        /// Gradient of the input.
        dx: Gradient "[.., C]",
        /// Gradient of the scale.
        dgamma: WeightGradient "[C]",
        /// Gradient of the shift.
        dbeta: WeightGradient "[C]",
    }
}

impl Kernel for LayerNormGrad {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let of = LayerNormGradInputs::of(inputs);
        check_channels(dims.op(), of.x, dims)?;
        check::shape(dims.op(), "stats", of.stats, &[positions(of.x), 2])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let mut cost = Cost::streaming(inputs, outputs, 14 * outputs[0].len() as u64);
        cost.bytes += (inputs[0].cpu_bytes() + inputs[1].cpu_bytes()) as u64;
        cost
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        2 * bias_grad::workspace_len(positions(&inputs[0]), inputs[0].dim(-1))
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(&inputs[0])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let [g, x, gamma, stats] = [0, 1, 2, 3].map(|i| args.inputs[i]);
        let [dx, dgamma, dbeta] = [0, 1, 2].map(|i| args.outputs[i]);
        let (rows, channels) = (positions(x.desc), x.dim(-1));
        let chunks = Chunks::of(rows, channels);
        let partial =
            |i: usize, access| args.workspace.piece(i * chunks.bytes(), chunks.bytes(), access);
        let input = Launch::new("layer_norm_grad_input_f16", [rows.div_ceil(WARPS), 1, 1])
            .reads([g, x, gamma, stats])
            .arg(dx.write())
            .int(rows)
            .int(channels);
        let sums = chunks
            .launch(["layer_norm_grad_params_f16x8", "layer_norm_grad_params_f16"])
            .reads([g, x, stats])
            .arg(partial(0, Access::Write))
            .arg(partial(1, Access::Write));
        let total =
            |(i, out): (usize, device::Buffer<'_>)| chunks.total(partial(i, Access::Read), out);
        let totals = [dgamma, dbeta].into_iter().enumerate().map(total);
        [input, chunks.sizes(sums)].into_iter().chain(totals).collect()
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let LayerNormGradInputs { g, x, gamma, stats } = LayerNormGradInputs::of(&args.inputs);
        let [g, x, gamma, stats] = [g, x, gamma, stats].map(|t| t.f32());
        let [dx, dgamma, dbeta] = exactly(&mut args.outputs);
        grad_input((g, x), gamma, stats, dx.f32());
        grad_params((g, x), stats, [dgamma.f32(), dbeta.f32()], args.workspace);
    }
}

/// Number of partial sums kept in parallel; it is the same for every instruction set.
const LANES: usize = 16;
/// Positions per task.
const TASK: usize = 64;

/// The sum of `f(0)` to `f(len - 1)`.
#[inline(always)]
fn sum(len: usize, f: impl Fn(usize) -> f32) -> f32 {
    let mut lanes = [0.0f32; LANES];
    let whole = len / LANES * LANES;
    for first in (0..whole).step_by(LANES) {
        for (i, lane) in lanes.iter_mut().enumerate() {
            *lane += f(first + i);
        }
    }
    for (i, lane) in lanes.iter_mut().enumerate().take(len - whole) {
        *lane += f(whole + i);
    }
    for half in [8, 4, 2, 1] {
        (0..half).for_each(|i| lanes[i] += lanes[i + half]);
    }
    lanes[0]
}

/// Writes mean and rstd of each position, and the normalised, scaled and shifted values.
fn forward(x: &[f32], (gamma, beta): (&[f32], &[f32]), eps: f32, y: &mut [f32], stats: &mut [f32]) {
    let (isa, task) = (Isa::get(), TASK * gamma.len());
    let tasks = y.par_chunks_mut(task).zip(stats.par_chunks_mut(2 * TASK)).zip(x.par_chunks(task));
    tasks.for_each(|((y, stats), x)| normalise(isa, x, gamma, beta, eps, y, stats));
}

wide! {
    /// [`forward`] for some positions.
    fn normalise(
        x: &[f32],
        gamma: &[f32],
        beta: &[f32],
        eps: f32,
        y: &mut [f32],
        stats: &mut [f32],
    ) {
        let channels = gamma.len();
        let positions = y.chunks_exact_mut(channels).zip(x.chunks_exact(channels));
        for ((y, x), stats) in positions.zip(stats.chunks_exact_mut(2)) {
            // The sum is shifted by the first value, so that equal values have zero variance.
            let mean = x[0] + sum(channels, |c| x[c] - x[0]) / channels as f32;
            let square = |c: usize| (x[c] - mean) * (x[c] - mean);
            let rstd = 1.0 / (sum(channels, square) / channels as f32 + eps).sqrt();
            for (((y, x), gamma), beta) in y.iter_mut().zip(x).zip(gamma).zip(beta) {
                *y = (x - mean) * rstd * gamma + beta;
            }
            stats.copy_from_slice(&[mean, rstd]);
        }
    }
}

/// `dx = rstd * (h - mean(h) - xhat * mean(h * xhat))` with `h = g * gamma`.
fn grad_input((g, x): (&[f32], &[f32]), gamma: &[f32], stats: &[f32], dx: &mut [f32]) {
    let (isa, task) = (Isa::get(), TASK * gamma.len());
    let tasks = dx.par_chunks_mut(task).zip(g.par_chunks(task)).zip(x.par_chunks(task));
    tasks
        .zip(stats.par_chunks(2 * TASK))
        .for_each(|(((dx, g), x), stats)| slopes(isa, g, x, gamma, stats, dx));
}

wide! {
    /// [`grad_input`] for some positions.
    fn slopes(g: &[f32], x: &[f32], gamma: &[f32], stats: &[f32], dx: &mut [f32]) {
        let channels = gamma.len();
        let positions = dx.chunks_exact_mut(channels).zip(g.chunks_exact(channels));
        let positions = positions.zip(x.chunks_exact(channels)).zip(stats.chunks_exact(2));
        for (((dx, g), x), stats) in positions {
            let (mean, rstd) = (stats[0], stats[1]);
            let of = 1.0 / channels as f32;
            let first = sum(channels, |c| g[c] * gamma[c]) * of;
            let second = sum(channels, |c| g[c] * gamma[c] * ((x[c] - mean) * rstd)) * of;
            for (((dx, g), x), gamma) in dx.iter_mut().zip(g).zip(x).zip(gamma) {
                let normal = (x - mean) * rstd;
                *dx = rstd * (g * gamma - first - normal * second);
            }
        }
    }
}

/// Sums of `g * xhat` and of `g` over positions: in f32 over [`TASK`] positions, in f64 over tasks.
fn grad_params(
    (g, x): (&[f32], &[f32]),
    stats: &[f32],
    [dgamma, dbeta]: [&mut [f32]; 2],
    workspace: &mut [f32],
) {
    let (isa, channels) = (Isa::get(), dgamma.len());
    let partial = &mut workspace[..2 * channels * (g.len() / channels).div_ceil(TASK)];
    let task = TASK * channels;
    let tasks = partial.par_chunks_mut(2 * channels).zip(g.par_chunks(task));
    tasks
        .zip(x.par_chunks(task))
        .zip(stats.par_chunks(2 * TASK))
        .for_each(|(((partial, g), x), stats)| affine_sums(isa, g, x, stats, partial));
    for (first, out) in [(0, dgamma), (channels, dbeta)] {
        for (c, out) in out.iter_mut().enumerate() {
            let sums = partial.iter().skip(first + c).step_by(2 * channels);
            *out = sums.map(|&v| f64::from(v)).sum::<f64>() as f32;
        }
    }
}

wide! {
    /// Sums over some positions of `g * xhat` and of `g`.
    fn affine_sums(g: &[f32], x: &[f32], stats: &[f32], sums: &mut [f32]) {
        sums.fill(0.0);
        let channels = sums.len() / 2;
        let (dgamma, dbeta) = sums.split_at_mut(channels);
        let positions = g.chunks_exact(channels).zip(x.chunks_exact(channels));
        for ((g, x), stats) in positions.zip(stats.chunks_exact(2)) {
            let (mean, rstd) = (stats[0], stats[1]);
            for (((dgamma, dbeta), g), x) in dgamma.iter_mut().zip(&mut *dbeta).zip(g).zip(x) {
                *dgamma += g * ((x - mean) * rstd);
                *dbeta += g;
            }
        }
    }
}
