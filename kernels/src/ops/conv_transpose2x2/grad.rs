//! Gradients of the transposed convolution: a 2x2 convolution of stride 2, and its weight gradient.
//!
//! `conv_transpose2x2_grad_input`: `g [N,2H,2W,K]`, `w [C,2,2,K]`, `[count [1] i32]`, `other` and
//! `mask` of a [`Finish`] -> `dx [N,H,W,C]`; images from `count` on get 0.
//! `conv_transpose2x2_grad_weight`: `x [N,H,W,C]`, `g [N,2H,2W,K]`, `[count]` -> `dw [C,2,2,K]`;
//! images from `count` on do not contribute. Outputs are overwritten; both are bound by compute and
//! deterministic.

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::CpuArgs;
use crate::matmul::{
    Epilogue, conv_forward, conv_grad_weight, gather_workspace_len, reduce_workspace_len,
};
use crate::{Cost, DType, Finish, Fusion, Op, OpError, OpRef, Role, TensorDesc, Traits};

use super::{conv_shape, cuda, extents};

/// `dx`: the convolution of `g` with `w`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvTranspose2x2GradInput {
    /// The last input of its own is `count [1] i32`.
    pub counted: bool,
    /// What becomes of the products' sums.
    pub finish: Finish,
}

/// `dw[c, a, b] = sum over positions of x[c] * g[2h + a, 2w + b]`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvTranspose2x2GradWeight {
    /// The last input is `count [1] i32`.
    pub counted: bool,
}

const INPUT: &str = "conv_transpose2x2_grad_input";
const WEIGHT: &str = "conv_transpose2x2_grad_weight";

/// `[N,2H,2W,K]` halved to `[N,H,W]` with C channels.
fn halved(g: &TensorDesc, channels: usize) -> [usize; 4] {
    [g.dim(0), g.dim(1) / 2, g.dim(2) / 2, channels]
}

impl Op for ConvTranspose2x2GradInput {
    fn name(&self) -> &'static str {
        INPUT
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let len = 2 + usize::from(self.counted);
        check::arity(INPUT, "inputs", inputs, len + self.finish.inputs())?;
        check::arity(INPUT, "updates", updates, 0)?;
        let (inputs, finish) = self.finish.split(inputs);
        let (g, w) = (&inputs[0], &inputs[1]);
        check::rank(INPUT, "g", g, "[N, 2H, 2W, K]")?;
        check::rank(INPUT, "w", w, "[C, 2, 2, K]")?;
        check::dtype(INPUT, "g", g, DType::F32)?;
        check::dtype(INPUT, "w", w, DType::F32)?;
        check::shape(INPUT, "w", w, &[w.dim(0), 2, 2, g.dim(3)])?;
        let dx = halved(g, w.dim(0));
        check::shape(INPUT, "g", g, &[dx[0], 2 * dx[1], 2 * dx[2], g.dim(3)])?;
        if self.counted {
            check::count(INPUT, &inputs[2])?;
        }
        let dx = TensorDesc::new(Role::Gradient, &dx);
        finish.check(INPUT, &dx)?;
        Ok(vec![dx])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let shape = conv_shape(extents(&outputs[0]), inputs[0].dim(3));
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        let count_input = self.counted.then_some(2);
        let finish = Some(self.finish);
        Traits { on_tensor_cores: true, count_input, finish, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let Fusion::Finish(finish) = fusion else { return None };
        Some(Arc::new(Self { finish, ..self.clone() }))
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> usize {
        gather_workspace_len(&conv_shape(extents(&outputs[0]), inputs[0].dim(3)))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
    ) -> usize {
        cuda::grad_input_workspace_bytes(gpu, inputs, outputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_input(self.counted, self.finish, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shape = conv_shape(extents(args.outputs[0].desc), args.inputs[0].desc.dim(3));
        let (own, finish) = self.finish.split(&args.inputs);
        let count = if self.counted { own.last() } else { None };
        let shape = shape.with_images(filled(count, shape.images));
        let (g, w) = (args.inputs[0].f32(), args.inputs[1].f32());
        let (dx, rest) = args.outputs[0].f32().split_at_mut(shape.out_positions() * shape.filters);
        conv_forward(&shape, g, w, Epilogue::default(), dx, args.workspace);
        finish.run_cpu(dx);
        clear(rest);
    }
}

impl Op for ConvTranspose2x2GradWeight {
    fn name(&self) -> &'static str {
        WEIGHT
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(WEIGHT, "inputs", inputs, 2 + usize::from(self.counted))?;
        check::arity(WEIGHT, "updates", updates, 0)?;
        let (x, g) = (&inputs[0], &inputs[1]);
        check::rank(WEIGHT, "x", x, "[N, H, W, C]")?;
        check::rank(WEIGHT, "g", g, "[N, 2H, 2W, K]")?;
        check::dtype(WEIGHT, "x", x, DType::F32)?;
        check::dtype(WEIGHT, "g", g, DType::F32)?;
        check::shape(WEIGHT, "g", g, &[x.dim(0), 2 * x.dim(1), 2 * x.dim(2), g.dim(3)])?;
        if self.counted {
            check::count(WEIGHT, &inputs[2])?;
        }
        Ok(vec![TensorDesc::new(Role::WeightGradient, &[x.dim(3), 2, 2, g.dim(3)])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let shape = conv_shape(extents(&inputs[0]), inputs[1].dim(3));
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        reduce_workspace_len(&conv_shape(extents(&inputs[0]), inputs[1].dim(3)))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        cuda::grad_weight_workspace_bytes(gpu, inputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::grad_weight(self.counted, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shape = conv_shape(extents(args.inputs[0].desc), args.inputs[1].desc.dim(3));
        let count = if self.counted { args.inputs.last() } else { None };
        let shape = shape.with_images(filled(count, shape.images));
        let (x, g) = (args.inputs[0].f32(), args.inputs[1].f32());
        conv_grad_weight(&shape, g, x, None, args.outputs[0].f32(), args.workspace);
    }
}
