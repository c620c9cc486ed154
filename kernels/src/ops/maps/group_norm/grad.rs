//! Gradients of group normalisation, in three steps that share one reduction.
//!
//! `group_norm_grad_sums`: `g`, `x [N,H,W,C]`, `stats [N,groups,2]` -> `sums [N,2,C]`, for each
//! image and channel the sums over positions of `g` and of `g * normalised(x)`.
//! `group_norm_grad_input`: `g`, `x`, `gamma [C]`, `stats`, `sums` -> `dx [N,H,W,C]`.
//! `group_norm_grad_params`: `sums` -> `dgamma [C]`, `dbeta [C]`, the sums over images. Outputs are
//! overwritten. Bound by memory; sums of 128 positions in f32, the rest in f64, in order.

use device::{Gpu, Launch, LaunchArgs};

use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{Cost, Op, OpError, Role, TensorDesc};

use super::{check_map, cpu, cuda};

/// Sums of `g` and of `g * normalised(x)` for each image and channel.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNormGradSums {
    /// Number of groups.
    pub groups: usize,
}

/// Gradient of x.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNormGradInput {
    /// Number of groups.
    pub groups: usize,
}

/// Gradients of gamma and beta.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupNormGradParams;

const SUMS: &str = "group_norm_grad_sums";
const INPUT: &str = "group_norm_grad_input";
const PARAMS: &str = "group_norm_grad_params";

/// Checks the inputs that the first two steps share.
fn check_common(
    dims: &mut Dims,
    op: &'static str,
    g: &TensorDesc,
    x: &TensorDesc,
    stats: &TensorDesc,
    groups: usize,
) -> Result<(), OpError> {
    check_map(dims, op, x, groups)?;
    dims.f32("g", g, "[N, H, W, C]")?;
    dims.f32("stats", stats, &format!("[N, {groups}, 2]"))
}

impl Op for GroupNormGradSums {
    fn name(&self) -> &'static str {
        SUMS
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(SUMS, inputs, 3, updates)?;
        check_common(&mut dims, SUMS, &inputs[0], &inputs[1], &inputs[2], self.groups)?;
        Ok(vec![TensorDesc::new(Role::Master, &[dims.get("N"), 2, dims.get("C")])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 4 * inputs[0].len() as u64)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        cpu::Map::new(&inputs[1], self.groups).partial_len()
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::partial_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_sums(self.groups, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, stats] = [0, 1, 2].map(|i| args.inputs[i].f32());
        cpu::grad_sums(map, (g, x), stats, args.outputs[0].f32(), args.workspace);
    }
}

impl Op for GroupNormGradInput {
    fn name(&self) -> &'static str {
        INPUT
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(INPUT, inputs, 5, updates)?;
        check_common(&mut dims, INPUT, &inputs[0], &inputs[1], &inputs[3], self.groups)?;
        dims.f32("gamma", &inputs[2], "[C]")?;
        dims.f32("sums", &inputs[4], "[N, 2, C]")?;
        Ok(vec![TensorDesc::new(Role::Gradient, &inputs[1].shape)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 5 * outputs[0].len() as u64)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::corrections_bytes(&inputs[1], self.groups)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_input(self.groups, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let map = cpu::Map::new(args.inputs[1].desc, self.groups);
        let [g, x, gamma, stats, sums] = [0, 1, 2, 3, 4].map(|i| args.inputs[i].f32());
        cpu::grad_input(map, (g, x), gamma, stats, sums, args.outputs[0].f32());
    }
}

impl Op for GroupNormGradParams {
    fn name(&self) -> &'static str {
        PARAMS
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(PARAMS, inputs, 1, updates)?;
        let sums = &inputs[0];
        dims.f32("sums", sums, "[N, 2, C]")?;
        let gradient = TensorDesc::new(Role::WeightGradient, &[sums.dim(2)]);
        Ok(vec![gradient.clone(), gradient])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, inputs[0].len() as u64)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_params(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let sums = args.inputs[0].f32();
        let [dgamma, dbeta] = &mut args.outputs[..] else {
            unreachable!("{PARAMS} has two outputs");
        };
        let channels = dgamma.desc.len();
        let over_images = |start: usize| {
            sums.iter().skip(start).step_by(2 * channels).map(|&v| f64::from(v)).sum::<f64>()
        };
        for (c, dgamma) in dgamma.f32().iter_mut().enumerate() {
            *dgamma = over_images(channels + c) as f32;
        }
        for (c, dbeta) in dbeta.f32().iter_mut().enumerate() {
            *dbeta = over_images(c) as f32;
        }
    }
}
