//! Gradient of a convolution's weights.
//!
//! Tensors: `x [N,H,W,C]`, `g [N,P,Q,K]` (gradient of the output before the ReLU), `scale [K]` and
//! `count [1] i32` as flagged -> `dw [K,R,S,C]`, with `bias_grad` also `db [K]`, the sum of `g`;
//! overwritten. Matches `torch.nn.grad.conv2d_weight(x, shape, g) * scale`. With `counted`, images
//! from `count` on do not contribute. Bound by compute; sums over positions in order, in blocks of
//! 256: deterministic.

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::filled;
use crate::cpu::CpuArgs;
use crate::matmul::launch;
use crate::matmul::{ConvShape, conv_grad_weight, reduce_workspace_len};
use crate::ops::bias_grad;
use crate::{Cost, DType, Fusion, Op, OpError, OpRef, Role, TensorDesc, Traits};

use super::{cuda, descs, inferred, sized};

/// `dw[k] = scale[k] * sum over positions of g[k] * window(x)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradWeight {
    /// Stride of the convolution.
    pub stride: usize,
    /// Padding of the convolution.
    pub pad: usize,
    /// R.
    pub kernel_h: usize,
    /// S.
    pub kernel_w: usize,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// The last input is `count [1] i32`.
    pub counted: bool,
    /// The second output is the gradient of the convolution's bias.
    pub bias_grad: bool,
}

const NAME: &str = "conv2d_grad_weight";

impl Conv2dGradWeight {
    fn shape(&self, inputs: &[TensorDesc]) -> Result<ConvShape, OpError> {
        let (x, g) = (&inputs[0], &inputs[1]);
        check::rank(NAME, "x", x, "[N, H, W, C]")?;
        check::rank(NAME, "g", g, "[N, P, Q, K]")?;
        let w = [g.dim(3), self.kernel_h, self.kernel_w, x.dim(3)];
        let w = TensorDesc::new(Role::Weight, &w);
        let extents = [0, 1, 2, 3].map(|i| x.dim(i));
        let s = sized(NAME, extents, &w, self.stride, self.pad)?;
        check::shape(NAME, "g", g, &[s.images, s.out_height, s.out_width, s.filters])?;
        Ok(s)
    }
}

impl Op for Conv2dGradWeight {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "updates", updates, 0)?;
        let len = 2 + usize::from(self.scale) + usize::from(self.counted);
        check::arity(NAME, "inputs", inputs, len)?;
        let s = self.shape(inputs)?;
        check::dtype(NAME, "x", &inputs[0], DType::F32)?;
        check::dtype(NAME, "g", &inputs[1], DType::F32)?;
        if self.scale {
            check::shape(NAME, "scale", &inputs[2], &[s.filters])?;
            check::dtype(NAME, "scale", &inputs[2], DType::F32)?;
        }
        if self.counted {
            check::count(NAME, &inputs[len - 1])?;
        }
        let dw = [s.filters, s.kernel_h, s.kernel_w, s.channels];
        let mut outputs = vec![TensorDesc::new(Role::WeightGradient, &dw)];
        if self.bias_grad {
            outputs.push(TensorDesc::new(Role::WeightGradient, &[s.filters]));
        }
        Ok(outputs)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, self.shape(inputs).map_or(0, |s| s.flops()))
    }

    fn traits(&self) -> Traits {
        let count_input = self.counted.then_some(2 + usize::from(self.scale));
        Traits { on_tensor_cores: true, count_input, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let can = fusion == Fusion::BiasGrad && !self.bias_grad;
        can.then(|| Arc::new(Self { bias_grad: true, ..self.clone() }) as OpRef)
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let sums = |s: &ConvShape| match self.bias_grad {
            true => bias_grad::workspace_len(s.out_positions(), s.filters),
            false => 0,
        };
        self.shape(inputs).map_or(0, |s| reduce_workspace_len(&s).max(sums(&s)))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        self.shape(inputs)
            .map_or(0, |s| launch::grad_weight_workspace_bytes(gpu, &s, self.bias_grad))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shape = inferred(NAME, self.shape(&descs(args)));
        cuda::grad_weight(self.scale, self.counted, &shape, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let descs: Vec<_> = args.inputs.iter().map(|t| t.desc.clone()).collect();
        let Ok(shape) = self.shape(&descs) else {
            unreachable!("{NAME} runs only after its shapes were inferred");
        };
        let count = if self.counted { args.inputs.last() } else { None };
        let shape = shape.with_images(filled(count, shape.images));
        let (x, g) = (args.inputs[0].f32(), args.inputs[1].f32());
        let scale = self.scale.then(|| args.inputs[2].f32());
        conv_grad_weight(&shape, x, g, scale, args.outputs[0].f32(), args.workspace);
        if self.bias_grad {
            let g = &g[..shape.out_positions() * shape.filters];
            bias_grad::sum_rows(g, args.outputs[1].f32(), args.workspace);
        }
    }
}
