//! The anchors of each image that carry the RPN losses.
//!
//! Counts as torchvision's `BalancedPositiveNegativeSampler`; which ones are drawn is a pure
//! function of (seed, epoch, image, anchor) instead of a generator's state: those with the
//! smallest (key, index).

mod cases;
mod cuda;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use crate::boxes::sample;
use crate::contract::{Dims, Kernel};
use crate::cpu::{CpuArgs, exactly};
use crate::philox::{Purpose, keyed};
use crate::{Cost, TensorDesc, op};

pub use cases::cases;

op! {
    /// Draws up to `batch` anchors per image: min(#positives, int(batch * positive_fraction))
    /// positives, and as many negatives as then fit, if there are so many.
    pub struct SampleAnchors = "sample_anchors" {
        /// Anchors per image.
        pub batch: usize,
        /// Largest share of positives, 0 to 1.
        pub positive_fraction: f32 [|share| (0.0..=1.0).contains(share), "within 0..=1"],
        /// Seed of the run.
        pub seed: u64,
    }
    in SampleAnchorsInputs {
        /// 1 or more positive, 0 negative, -1 ignored.
        labels: i32 "[N, A_total]",
        /// Keys of the image's random numbers.
        image_keys: i32 "[N, 4]",
    }
    out {
        /// Positives ascending, then negatives ascending, then -1.
        idx: Index "[N, batch]",
        /// Positives, all.
        counts: Index "[N, 2]",
    }
}

impl Kernel for SampleAnchors {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("batch", self.batch);
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        // Ten rounds of two multiplications and four xors a key.
        Cost::streaming(inputs, outputs, 60 * inputs[0].len() as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        cuda::workspace_bytes(inputs[0].dim(0), inputs[0].dim(1))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = &args.inputs;
        let (labels, keys) = (inputs[0].i32(), inputs[1].i32());
        let (num_images, anchors) = (inputs[0].shape()[0], inputs[0].shape()[1]);
        let drawn: Vec<(Vec<usize>, Vec<usize>)> = (0..num_images)
            .into_par_iter()
            .map(|n| {
                let image_key = &keys[4 * n..][..4];
                let key = |i: usize| keyed(self.seed, image_key, Purpose::Anchors, i as u32);
                sample(&labels[n * anchors..][..anchors], self.batch, self.positive_fraction, key)
            })
            .collect();
        let [idx, counts] = exactly(&mut args.outputs);
        let (idx, counts) = (idx.i32(), counts.i32());
        idx.fill(-1);
        for (n, (positives, negatives)) in drawn.iter().enumerate() {
            let slots = &mut idx[n * self.batch..][..self.batch];
            for (slot, &i) in slots.iter_mut().zip(positives.iter().chain(negatives)) {
                *slot = i as i32;
            }
            counts[2 * n] = positives.len() as i32;
            counts[2 * n + 1] = (positives.len() + negatives.len()) as i32;
        }
    }
}
