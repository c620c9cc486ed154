//! Gradient of a convolution's input.
//!
//! Tensors: `g [N,P,Q,K]` (gradient of the output before the ReLU), `w [K,R,S,C]`, `scale [K]` and
//! `count [1] i32` as flagged, `other` and `mask [N,H,W,C]` of a [`Finish`] -> `dx [N,H,W,C]`,
//! overwritten. Matches `torch.nn.grad.conv2d_input(shape, w * scale, g)`, then the finish. With
//! `counted`, images from `count` on get 0.
//! Strided convolutions are split by residue of the position, so that no product with a zero is
//! made. Bound by compute; deterministic.

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::CpuArgs;
use crate::matmul::launch;
use crate::matmul::{ConvShape, Epilogue, conv_grad_input, gather_workspace_len};
use crate::{Cost, DType, Finish, Fusion, Op, OpError, OpRef, Role, TensorDesc, Traits};

use super::{cuda, descs, inferred, sized};

/// `dx = conv_transposed(g * scale, w)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2dGradInput {
    /// Stride of the convolution.
    pub stride: usize,
    /// Padding of the convolution.
    pub pad: usize,
    /// H of the convolution's input.
    pub height: usize,
    /// W of the convolution's input.
    pub width: usize,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// The last input of its own is `count [1] i32`.
    pub counted: bool,
    /// What becomes of the products' sums.
    pub finish: Finish,
}

const NAME: &str = "conv2d_grad_input";

impl Conv2dGradInput {
    fn shape(&self, inputs: &[TensorDesc]) -> Result<ConvShape, OpError> {
        let (g, w) = (&inputs[0], &inputs[1]);
        check::rank(NAME, "g", g, "[N, P, Q, K]")?;
        check::rank(NAME, "w", w, "[K, R, S, C]")?;
        let x = [g.dim(0), self.height, self.width, w.dim(3)];
        let s = sized(NAME, x, w, self.stride, self.pad)?;
        check::shape(NAME, "g", g, &[s.images, s.out_height, s.out_width, s.filters])?;
        Ok(s)
    }
}

impl Op for Conv2dGradInput {
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
        check::arity(NAME, "inputs", inputs, len + self.finish.inputs())?;
        let (inputs, finish) = self.finish.split(inputs);
        let s = self.shape(inputs)?;
        check::dtype(NAME, "g", &inputs[0], DType::F32)?;
        check::dtype(NAME, "w", &inputs[1], DType::F32)?;
        if self.scale {
            check::shape(NAME, "scale", &inputs[2], &[s.filters])?;
            check::dtype(NAME, "scale", &inputs[2], DType::F32)?;
        }
        if self.counted {
            check::count(NAME, &inputs[len - 1])?;
        }
        let dx = TensorDesc::new(Role::Gradient, &[s.images, s.height, s.width, s.channels]);
        finish.check(NAME, &dx)?;
        Ok(vec![dx])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, self.shape(inputs).map_or(0, |s| s.flops()))
    }

    fn traits(&self) -> Traits {
        let count_input = self.counted.then_some(2 + usize::from(self.scale));
        let finish = Some(self.finish);
        Traits { on_tensor_cores: true, count_input, finish, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let op = match fusion {
            Fusion::Finish(finish) => Self { finish, ..self.clone() },
            Fusion::ScaledWeights if self.scale => Self { scale: false, ..self.clone() },
            _ => return None,
        };
        Some(Arc::new(op))
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        self.shape(inputs).map_or(0, |s| gather_workspace_len(&s))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        let bytes = |s| launch::grad_input_workspace_bytes(gpu, &s, self.scale);
        self.shape(inputs).map_or(0, bytes)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shape = inferred(NAME, self.shape(&descs(args)));
        cuda::grad_input(self.scale, self.counted, self.finish, &shape, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let descs: Vec<_> = args.inputs.iter().map(|t| t.desc.clone()).collect();
        let Ok(shape) = self.shape(&descs) else {
            unreachable!("{NAME} runs only after its shapes were inferred");
        };
        let (own, finish) = self.finish.split(&args.inputs);
        let count = if self.counted { own.last() } else { None };
        let shape = shape.with_images(filled(count, shape.images));
        let len = shape.images * shape.height * shape.width * shape.channels;
        let (dx, rest) = args.outputs[0].f32().split_at_mut(len);
        let (g, w) = (args.inputs[0].f32(), args.inputs[1].f32());
        let scale = self.scale.then(|| args.inputs[2].f32());
        conv_grad_input(&shape, g, w, scale, Epilogue::default(), dx, args.workspace);
        finish.run_cpu(dx);
        clear(rest);
    }
}
