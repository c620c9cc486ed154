//! The end of a residual block of ConvNeXt: `y = x + kept * scale * branch`, each channel with its
//! scale, and the branch of each image kept or dropped.
//!
//! Matches torch's `x + stochastic_depth(layer_scale * branch, rate, "row")`: an image keeps its
//! branch with probability `1 - rate`, divided by that; without `drop` all do, undivided. Which
//! images keep it is a pure function of (seed, epoch, image, block).
//! Tensors: `x [N, .., C]`, `branch [N, .., C]`, `scale [C]`, with `drop` also `image_keys [N, 4]`
//! i32 -> `y [N, .., C]`, overwritten. Gradient (`scaled_residual_grad`): `g`, `branch`, `scale`,
//! the keys -> `dbranch`, `dscale`; x gets g. Sums over positions of an image in f32, by parts, and
//! the parts in f64. Bound by memory.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::philox::{Purpose, keyed};
use crate::{BackwardRule, Cost, DType, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::ScaledResidualGrad;

/// `y = x + kept * scale * branch`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaledResidual {
    /// The branches that are dropped; there is an input `image_keys`.
    pub drop: Option<Drop>,
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

op_inputs! {
    /// The inputs of [`ScaledResidual`].
    pub struct ScaledResidualInputs {
        /// `[N, .., C]`.
        x,
        /// `[N, .., C]`.
        branch,
        /// `[C]`.
        scale,
    }
    optional {
        /// `[N, 4]` i32.
        image_keys,
    }
}

const NAME: &str = "scaled_residual";

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

/// Fails unless `branch` and `scale` suit `x`, and there are keys for the images if they drop.
fn check_tensors(
    op: &'static str,
    drop: Option<Drop>,
    (x, branch, scale): (&TensorDesc, &TensorDesc, &TensorDesc),
    keys: Option<&TensorDesc>,
) -> Result<(), OpError> {
    check::dtype(op, "x", x, DType::F32)?;
    if x.shape.len() < 2 {
        return Err(check::shape_error(op, "x", x, "[N, .., C]".into()));
    }
    check::floats(op, "branch", branch, &x.shape)?;
    check::floats(op, "scale", scale, &[x.dim(-1)])?;
    if let Some(keys) = keys {
        check::shape(op, "image_keys", keys, &[x.dim(0), 4])?;
        check::dtype(op, "image_keys", keys, DType::I32)?;
    }
    let rate = drop.map_or(0.0, |drop| drop.rate);
    check::parameter(op, "rate", (0.0..1.0).contains(&rate), "at least 0 and less than 1", rate)
}

impl Op for ScaledResidual {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let has = self.drop.is_some();
        check::arity(NAME, "inputs", inputs, ScaledResidualInputs::LEN + usize::from(has))?;
        check::arity(NAME, "updates", updates, 0)?;
        let ScaledResidualInputs { x, branch, scale, image_keys } =
            ScaledResidualInputs::of(inputs, [has]);
        check_tensors(NAME, self.drop, (x, branch, scale), image_keys)?;
        Ok(vec![TensorDesc::new(Role::Activation, &x.shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 3 * outputs[0].len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
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
