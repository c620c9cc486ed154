//! Gradient of `roi_align` by the feature maps.
//!
//! Tensors: `grad_output [M, P, P, C]` f32, `rois [M, 4]` f32, `image_idx [M]`, `levels [M]`,
//! `count [1]` i32 (all in) -> `grad_feature_l [N, h_l, w_l, C]` for each level (overwritten).
//! Deterministic without atomics: a place sums its RoIs in their order. On CUDA P is at most 32.

use device::{Gpu, Launch, LaunchArgs};

use super::{RoiAlignGrad, RoiPlaces, check_rois, cpu, cuda, taps};
use crate::check;
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
        check::arity(NAME, "inputs", inputs, 1 + RoiPlaces::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let (sizes, scales) = (self.level_sizes.len(), self.forward.spatial_scales.len());
        let expected = format!("{scales}, one a scale");
        check::parameter(NAME, "level_sizes", sizes == scales, &expected, sizes)?;
        check::floats_ranked(NAME, "grad_output", &inputs[0], "[M, P, P, C]")?;
        let (rows, channels) = (inputs[0].shape[0], inputs[0].shape[3]);
        check::shape(
            NAME,
            "grad_output",
            &inputs[0],
            &[rows, self.forward.pooled, self.forward.pooled, channels],
        )?;
        check_rois(
            NAME,
            self.forward.pooled,
            &self.forward.spatial_scales,
            rows,
            RoiPlaces::of(&inputs[1..]),
        )?;
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
        cpu::backward(grid, &self.level_sizes, &args.inputs[0], &rois, &mut args.outputs);
    }
}
