//! Gradient of `keypoint_maps`: the transpose of its interpolation.

use device::{Launch, LaunchArgs};

use super::{cpu, cuda};
use crate::check::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

/// Gathers, for each pixel of the smaller maps, from the pixels that read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeypointMapsGrad {
    /// `[M, H, W, K]`, of the gradient.
    pub shape: [usize; 4],
}

const NAME: &str = "keypoint_maps_grad";

impl Op for KeypointMapsGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let [m, h, w, k] = self.shape;
        let mut dims = Dims::new(NAME, inputs, 2, updates)?;
        dims.bind("M*K", m * k);
        dims.bind("4*H*W", 4 * h * w);
        dims.f32("g", &inputs[0], "[M*K, 4*H*W]")?;
        dims.i32("count", &inputs[1], "[1]")?;
        Ok(vec![TensorDesc::new(Role::Gradient, &self.shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 24 * outputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::gather(args);
    }
}
