//! RoIAlign over a feature pyramid: a P x P grid of bilinear averages of each RoI, from its level.
//!
//! Matches torchvision's `roi_align` and `MultiScaleRoIAlign`: a bin is the mean of
//! `sampling_ratio` squared samples (0: as many a side as the bin has feature pixels, rounded up);
//! `aligned` shifts by half a pixel, otherwise a RoI is at least one feature pixel wide and high;
//! samples beyond -1 or the map's extent count as 0.
//! Numerics: the mean is separable, so the samples of a bin are merged into weights per feature
//! row and column first; f32, fixed order. Edges: coordinates that are not finite give NaN or 0,
//! never a fault; an adaptive grid has at most 4096 samples a side.
//! Bound by memory: every feature row of a RoI is read once or twice from cache.

mod cases;
mod cpu;
mod cuda;
mod grad;
pub(crate) mod pyramid;
pub(crate) mod taps;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;
pub(crate) use cuda::{no_gradients, tile_shared_bytes};

op! {
    /// RoIAlign from the level that each RoI belongs to.
    pub struct RoiAlign = "roi_align" {
        /// Bins a side of the output, P.
        pub pooled: usize [|pooled| *pooled > 0, "at least 1"],
        /// Samples a side of a bin; 0 = adaptive.
        pub sampling_ratio: usize,
        /// Half-pixel shift (Detectron2's "aligned"), and no minimum size.
        pub aligned: bool,
        /// Feature pixels per network pixel, of each level.
        pub spatial_scales: Vec<f32> [|scales| scales.iter().all(|&s| s > 0.0), "above 0"],
        /// Factor of the gradient alone; 1, or the share of a stage of a cascade.
        pub gradient_scale: f32,
    }
    lists {
        /// Map of a level.
        features: real "[N, h, w, C]",
    }
    in RoiAlignInputs {
        /// x1, y1, x2, y2 in network pixels.
        rois: f32 "[M, 4]",
        /// Image of each.
        image_idx: i32 "[M]",
        /// Level of each.
        levels: i32 "[M]",
        /// RoIs in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows at or past the count and in rows of no image. The role is that of the maps.
        y: Activation "[M, P, P, C]",
    }
}

op! {
    /// Adds the gradients of RoIs to the maps of their levels: an output `[N, h, w, C]` for each.
    /// Deterministic without atomics: a place sums its RoIs in their order. On CUDA P is at most
    /// 32.
    pub struct RoiAlignGrad = "roi_align_grad" {
        /// The op that it is the gradient of.
        pub forward: RoiAlign,
        /// N, images of a map.
        pub images: usize,
        /// Height and width of each level's map.
        pub level_sizes: Vec<[usize; 2]>,
    }
    in RoiAlignGradInputs {
        /// Gradient of the bins.
        grad_output: real "[M, P, P, C]",
        /// As in the op.
        rois: f32 "[M, 4]",
        /// Image of each.
        image_idx: i32 "[M]",
        /// Level of each.
        levels: i32 "[M]",
        /// RoIs in use.
        count: i32 "[1]",
    }
    out {}
}

impl RoiAlign {
    fn grid(&self) -> taps::Grid {
        let Self { pooled, sampling_ratio, aligned, .. } = *self;
        taps::Grid { pooled, sampling_ratio, aligned }
    }
}

impl Kernel for RoiAlign {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("P", self.pooled);
    }

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check::arity(dims.op(), "inputs", inputs, self.spatial_scales.len() + 4)
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        outputs[0].role = inputs[0].role;
    }

    /// Four taps a sample; the features that RoIs cover are taken as all of them.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (outputs[0].len() * samples * 8) as u64)
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let levels = self.spatial_scales.len();
        let grad = RoiAlignGrad {
            forward: self.clone(),
            images: inputs[0].shape[0],
            level_sizes: inputs[..levels].iter().map(|f| [f.dim(1), f.dim(2)]).collect(),
        };
        let mut reads = vec![Source::GradOutput(0)];
        reads.extend((levels..inputs.len()).map(Source::Input));
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &reads, &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RoiAlignInputs { features, rois, image_idx, levels, count } =
            RoiAlignInputs::of(&args.inputs);
        let maps: Vec<_> = features.iter().map(|f| cpu::Map::new(f.f32(), f.shape())).collect();
        let rois = cpu::Rois::of([rois, image_idx, levels, count], &self.spatial_scales);
        cpu::forward(self.grid(), &maps, &rois, args.outputs[0].f32());
    }
}
