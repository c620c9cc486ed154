//! Gradient of `roi_align` by the feature maps.

use device::{Launch, LaunchArgs};

use super::{RoiAlignGrad, RoiAlignGradInputs, cpu, cuda};
use crate::contract::{Declared, Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{Cost, OpError, Role, TensorDesc, check};

impl Kernel for RoiAlignGrad {
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("P", self.forward.pooled);
    }

    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (sizes, scales) = (self.level_sizes.len(), self.forward.spatial_scales.len());
        let expected = format!("{scales}, one a scale");
        check::parameter(dims.op(), "level_sizes", sizes == scales, &expected, sizes)?;
        self.forward.check_parameters()
    }

    fn adjust(&self, inputs: &[TensorDesc], outputs: &mut Vec<TensorDesc>) {
        let channels = inputs[0].dim(3);
        outputs.extend(self.level_sizes.iter().map(|&[height, width]| {
            TensorDesc::new(Role::Gradient, &[self.images, height, width, channels])
        }));
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let samples = self.forward.sampling_ratio.max(1).pow(2);
        Cost::streaming(inputs, outputs, (inputs[0].len() * samples * 8) as u64)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        self.list_bytes(inputs[1].dim(0))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let RoiAlignGradInputs { grad_output, rois, image_idx, levels, count } =
            RoiAlignGradInputs::of(&args.inputs);
        let rois = cpu::Rois::of([rois, image_idx, levels, count], &self.forward.spatial_scales);
        let gradient = (grad_output, self.forward.gradient_scale);
        cpu::backward(self.forward.grid(), &self.level_sizes, gradient, &rois, &mut args.outputs);
    }
}
