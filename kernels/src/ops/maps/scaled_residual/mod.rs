//! The end of a residual block of ConvNeXt: `y = x + kept * scale * branch`, each channel with its
//! scale, and the branch of each image kept or dropped.
//!
//! Matches torch's `x + stochastic_depth(layer_scale * branch, rate, "row")`: an image keeps its
//! branch with probability `1 - rate`, divided by that; without `drop` all do, undivided. Which
//! images keep it is a pure function of (seed, epoch, image, block).

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Flops, Kernel};
use crate::cpu::CpuArgs;
use crate::philox::{Purpose, keyed};
use crate::{BackwardRule, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;
pub use grad::ScaledResidualGrad;

op! {
    /// `y = x + kept * scale * branch`. Sums of its gradient over positions of an image are in f32,
    /// by parts, and the parts in f64. Bound by memory.
    #[derive(Copy)]
    pub struct ScaledResidual = "scaled_residual" {
        /// The branches that are dropped; there is an input `image_keys`.
        pub drop: Option<Drop>,
    }
    in ScaledResidualInputs {
        /// Start of the block.
        x: real "[N, .., C]",
        /// The branch.
        branch: real "[N, .., C]",
        /// A factor per channel.
        scale: f32 "[C]",
    }
    optional {
        /// Keys of the images, by which they are drawn.
        image_keys: i32 "[N, 4]" if |op| op.drop.is_some(),
    }
    out {
        /// End of the block.
        y: Activation "[N, .., C]",
    }
}

/// A drawing of the images that keep a branch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drop {
    /// Probability that an image drops it, from 0 up to 1.
    pub rate: f32,
    /// Seed of the run.
    pub seed: u64,
    /// Which branch of the model.
    pub block: u32,
}

impl Drop {
    /// Words below it drop the branch.
    pub(super) fn threshold(&self) -> u32 {
        (f64::from(self.rate) * 4_294_967_296.0) as u32
    }

    /// The factor of each image's branch.
    fn factors(&self, keys: &[i32]) -> Vec<f32> {
        let keeps =
            |key: &[i32]| keyed(self.seed, key, Purpose::Depth, self.block) >= self.threshold();
        let factor = |key: &[i32]| if keeps(key) { self.kept() } else { 0.0 };
        keys.chunks_exact(4).map(factor).collect()
    }

    /// The factor of a branch that is kept.
    pub(super) fn kept(&self) -> f32 {
        1.0 / (1.0 - self.rate)
    }
}

/// The factor of each of `images` branches.
fn factors(drop: Option<Drop>, keys: Option<&[i32]>, images: usize) -> Vec<f32> {
    match (drop, keys) {
        (Some(drop), Some(keys)) => drop.factors(keys),
        _ => vec![1.0; images],
    }
}

/// Fails unless images drop a branch with a probability below 1.
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
        cuda::forward(self.drop, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ScaledResidualInputs { x, branch, scale, image_keys } =
            ScaledResidualInputs::of(&args.inputs, [self.drop.is_some()]);
        let factors = factors(self.drop, image_keys.map(|keys| keys.i32()), x.desc.dim(0));
        let y = args.outputs[0].f32();
        cpu::forward(x.f32(), branch.f32(), scale.f32(), &factors, y);
    }
}
