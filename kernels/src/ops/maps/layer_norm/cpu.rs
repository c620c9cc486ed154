//! CPU reference of `layer_norm` and its gradients.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Sums that go side by side, the same on every instruction set.
const LANES: usize = 16;
/// Positions of a task.
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

/// Mean and rstd of each position, and the normalised, scaled and shifted values.
pub(super) fn forward(
    x: &[f32],
    (gamma, beta): (&[f32], &[f32]),
    eps: f32,
    y: &mut [f32],
    stats: &mut [f32],
) {
    let (isa, task) = (Isa::get(), TASK * gamma.len());
    let tasks = y.par_chunks_mut(task).zip(stats.par_chunks_mut(2 * TASK)).zip(x.par_chunks(task));
    tasks.for_each(|((y, stats), x)| normalise(isa, x, gamma, beta, eps, y, stats));
}

wide! {
    /// [`forward`] of some positions.
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
            // About the first value, so that equal ones have no variance.
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
pub(super) fn grad_input((g, x): (&[f32], &[f32]), gamma: &[f32], stats: &[f32], dx: &mut [f32]) {
    let (isa, task) = (Isa::get(), TASK * gamma.len());
    let tasks = dx.par_chunks_mut(task).zip(g.par_chunks(task)).zip(x.par_chunks(task));
    tasks
        .zip(stats.par_chunks(2 * TASK))
        .for_each(|(((dx, g), x), stats)| slopes(isa, g, x, gamma, stats, dx));
}

wide! {
    /// [`grad_input`] of some positions.
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

/// Sums over positions of `g * xhat` and of `g`: those of [`TASK`] positions in f32, these in f64.
pub(super) fn grad_params(
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
        .for_each(|(((partial, g), x), stats)| products(isa, g, x, stats, partial));
    for (first, out) in [(0, dgamma), (channels, dbeta)] {
        for (c, out) in out.iter_mut().enumerate() {
            let sums = partial.iter().skip(first + c).step_by(2 * channels);
            *out = sums.map(|&v| f64::from(v)).sum::<f64>() as f32;
        }
    }
}

wide! {
    /// Sums over some positions of `g * xhat` and of `g`.
    fn products(g: &[f32], x: &[f32], stats: &[f32], sums: &mut [f32]) {
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
