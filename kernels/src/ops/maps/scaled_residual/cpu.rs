//! CPU reference of `scaled_residual` and its gradients.

use rayon::prelude::*;

use crate::isa::{Isa, wide};

/// Positions of a task, and of the sums in f32.
const TASK: usize = 64;

/// Runs `f` on tasks of whole positions: the factor of their image, where they begin, and their
/// part of `out`.
fn tasks(
    out: &mut [f32],
    (width, channels): (usize, usize),
    factors: &[f32],
    f: impl Fn(f32, usize, &mut [f32]) + Sync,
) {
    if out.is_empty() {
        return;
    }
    let image = out.len() / factors.len();
    let images = out.par_chunks_mut(image).zip(factors).enumerate();
    images.for_each(|(n, (out, factor))| {
        let tasks = out.par_chunks_mut(TASK * width).enumerate();
        tasks.for_each(|(task, out)| f(*factor, n * image + task * TASK * channels, out));
    });
}

/// `y = x + factor * scale * branch`.
pub(super) fn forward(x: &[f32], branch: &[f32], scale: &[f32], factors: &[f32], y: &mut [f32]) {
    let (isa, channels) = (Isa::get(), scale.len());
    tasks(y, (channels, channels), factors, |factor, at, y| {
        let of = at..at + y.len();
        add(isa, &x[of.clone()], &branch[of], scale, factor, y);
    });
}

wide! {
    /// [`forward`] of some positions of one image.
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
pub(super) fn grad_branch(g: &[f32], scale: &[f32], factors: &[f32], dbranch: &mut [f32]) {
    let (isa, channels) = (Isa::get(), scale.len());
    tasks(dbranch, (channels, channels), factors, |factor, at, dbranch| {
        multiply(isa, &g[at..at + dbranch.len()], scale, factor, dbranch);
    });
}

wide! {
    /// [`grad_branch`] of some positions of one image.
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

/// Sums over positions of `factor * g * branch`: of [`TASK`] positions of an image in f32, then in
/// f64.
pub(super) fn grad_scale(
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
            products(isa, g, branch, sums);
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
    fn products(g: &[f32], branch: &[f32], sums: &mut [f32]) {
        sums.fill(0.0);
        let positions = g.chunks_exact(sums.len()).zip(branch.chunks_exact(sums.len()));
        for (g, branch) in positions {
            for ((sum, g), branch) in sums.iter_mut().zip(g).zip(branch) {
                *sum += g * branch;
            }
        }
    }
}
