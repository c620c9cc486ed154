//! Gradient of `roi_align` by the feature maps.
//!
//! Tensors: `grad_output [M, P, P, C]` f32, `rois [M, 4]` f32, `image_idx [M]`, `levels [M]`,
//! `count [1]` i32 (all in) -> `grad_feature_l [N, h_l, w_l, C]` for each level (overwritten).
//! Deterministic without atomics: a place sums its RoIs in their order. On CUDA P is at most 32.

use device::{Gpu, Launch, LaunchArgs};

use super::{RoiAlignGrad, RoiPlaces, cpu, cuda, taps};
use crate::check;
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

const NAME: &str = "roi_align_grad";

impl Op for RoiAlignGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, 1 + RoiPlaces::LEN, updates)?;
        let (sizes, scales) = (self.level_sizes.len(), self.forward.spatial_scales.len());
        let expected = format!("{scales}, one a scale");
        check::parameter(NAME, "level_sizes", sizes == scales, &expected, sizes)?;
        let (pooled, places) = (self.forward.pooled, RoiPlaces::of(&inputs[1..]));
        dims.f32("grad_output", &inputs[0], &format!("[M, {pooled}, {pooled}, C]"))?;
        self.forward.check_rois(&mut dims, NAME, places)?;
        let channels = dims.get("C");
        let grad = |&[height, width]: &[usize; 2]| {
            TensorDesc::new(Role::Gradient, &[self.images, height, width, channels])
        };
        Ok(self.level_sizes.iter().map(grad).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.forward.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (inputs[0].len() * samples * 8) as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        self.list_bytes(inputs[1].dim(0))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rois = cpu::Rois::of(RoiPlaces::of(&args.inputs[1..]), &self.forward.spatial_scales);
        let grid = taps::Grid {
            pooled: self.forward.pooled,
            sampling_ratio: self.forward.sampling_ratio,
            aligned: self.forward.aligned,
        };
        let gradient = (&args.inputs[0], self.forward.gradient_scale);
        cpu::backward(grid, &self.level_sizes, gradient, &rois, &mut args.outputs);
    }
}
