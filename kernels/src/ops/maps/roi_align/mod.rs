//! RoIAlign over a feature pyramid: a P x P grid of bilinear averages of each RoI, from its level.
//!
//! Matches torchvision's `roi_align` and `MultiScaleRoIAlign`: a bin is the mean of
//! `sampling_ratio` squared samples (0: as many a side as the bin has feature pixels, rounded up);
//! `aligned` shifts by half a pixel, otherwise a RoI is at least one feature pixel wide and high;
//! samples beyond -1 or the map's extent count as 0.
//! Tensors: `feature_l [N, h_l, w_l, C]` f32 for each level, `rois [M, 4]` f32 (x1, y1, x2, y2 in
//! network pixels), `image_idx [M]`, `levels [M]`, `count [1]` i32 (all in) -> `y [M, P, P, C]`
//! (overwritten; 0 in rows at or past the count and in rows of no image).
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

use crate::check;
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, Op, OpError, Sink, Source, TensorDesc};

pub use cases::cases;
pub(crate) use cuda::{no_gradients, tile_shared_bytes};

/// RoIAlign from the level that each RoI belongs to.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiAlign {
    /// Bins a side of the output, P.
    pub pooled: usize,
    /// Samples a side of a bin; 0 = adaptive.
    pub sampling_ratio: usize,
    /// Half-pixel shift (Detectron2's "aligned"), and no minimum size.
    pub aligned: bool,
    /// Feature pixels per network pixel, of each level.
    pub spatial_scales: Vec<f32>,
    /// Factor of the gradient alone; 1, or the share of a stage of a cascade.
    pub gradient_scale: f32,
}

/// Adds the gradients of RoIs to the maps of their levels.
#[derive(Debug, Clone, PartialEq)]
pub struct RoiAlignGrad {
    /// The op that it is the gradient of.
    pub forward: RoiAlign,
    /// N, images of a map.
    pub images: usize,
    /// Height and width of each level's map.
    pub level_sizes: Vec<[usize; 2]>,
}

op_inputs! {
    /// RoIs with their places, as [`RoiAlign`] and its gradient read them.
    pub struct RoiPlaces {
        /// `[M, 4]` f32, in network pixels.
        rois,
        /// `[M]` i32.
        image_idx,
        /// `[M]` i32.
        levels,
        /// RoIs in use, `[1]` i32.
        count,
    }
}

/// The inputs of [`RoiAlign`].
#[derive(Debug, Clone)]
pub struct RoiAlignInputs<T> {
    /// A level each, `[N, h_l, w_l, C]`.
    pub features: Vec<T>,
    /// The RoIs.
    pub places: RoiPlaces<T>,
}

impl<T> From<RoiAlignInputs<T>> for Vec<T> {
    fn from(inputs: RoiAlignInputs<T>) -> Self {
        let mut list = inputs.features;
        list.extend(Vec::from(inputs.places));
        list
    }
}

const NAME: &str = "roi_align";

impl RoiAlign {
    /// The parameters, and the RoIs with their places.
    fn check_rois(
        &self,
        dims: &mut Dims,
        op: &'static str,
        places: RoiPlaces<&TensorDesc>,
    ) -> Result<(), OpError> {
        check::parameter(op, "pooled", self.pooled > 0, "at least 1", self.pooled)?;
        let scales = &self.spatial_scales;
        let positive = scales.iter().all(|&s| s > 0.0);
        check::parameter(op, "spatial_scales", positive, "above 0", format!("{scales:?}"))?;
        dims.f32("rois", places.rois, "[M, 4]")?;
        dims.i32("image_idx", places.image_idx, "[M]")?;
        dims.i32("levels", places.levels, "[M]")?;
        dims.i32("count", places.count, "[1]")
    }
}

impl Op for RoiAlign {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let levels = self.spatial_scales.len();
        check::parameter(NAME, "spatial_scales", levels > 0, "one a level", "none")?;
        let mut dims = Dims::new(NAME, inputs, levels + RoiPlaces::LEN, updates)?;
        for feature in &inputs[..levels] {
            dims.f32("feature_l", feature, "[N, h_l, w_l, C]")?;
        }
        self.check_rois(&mut dims, NAME, RoiPlaces::of(&inputs[levels..]))?;
        let shape = [dims.get("M"), self.pooled, self.pooled, dims.get("C")];
        Ok(vec![TensorDesc::new(inputs[0].role, &shape)])
    }

    /// Four taps a sample; the features that RoIs cover are taken as all of them.
    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (outputs[0].len() * samples * 8) as u64)
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let levels = self.spatial_scales.len();
        let grad = RoiAlignGrad {
            forward: self.clone(),
            images: inputs[0].shape[0],
            level_sizes: inputs[..levels].iter().map(|f| [f.shape[1], f.shape[2]]).collect(),
        };
        let mut reads = vec![Source::GradOutput(0)];
        reads.extend((levels..levels + RoiPlaces::LEN).map(Source::Input));
        let writes: Vec<_> = (0..levels).map(Sink::GradInput).collect();
        BackwardRule::default().step(grad, &reads, &writes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::forward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let levels = self.spatial_scales.len();
        let maps: Vec<_> =
            args.inputs[..levels].iter().map(|f| cpu::Map::new(f.f32(), f.shape())).collect();
        let rois = cpu::Rois::of(RoiPlaces::of(&args.inputs[levels..]), &self.spatial_scales);
        let grid = taps::Grid {
            pooled: self.pooled,
            sampling_ratio: self.sampling_ratio,
            aligned: self.aligned,
        };
        cpu::forward(grid, &maps, &rois, args.outputs[0].f32());
    }
}
