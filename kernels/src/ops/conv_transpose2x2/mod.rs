//! Transposed convolution of kernel 2 and stride 2: doubles a map. `y = relu(x (*) w + b)`.
//!
//! Matches `torch.nn.functional.conv_transpose2d(x, w, b, stride=2)` for a 2x2 kernel: every input
//! position writes its own 2x2 block, so outputs never overlap.
//!
//! Tensors: `x [N,H,W,C]`, `w [C,2,2,K]`, `b [K]`, with `counted` also `count [1] i32` ->
//! `y [N,2H,2W,K]`, overwritten. With `counted`, images from `count` on get 0.
//!
//! It is the gradient of a 2x2 convolution of stride 2 from K to C channels, which has the same
//! weights; so its own gradients are that convolution and its weight gradient. Bound by compute;
//! deterministic.

mod cases;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_grad_input, gather_workspace_len};
use crate::ops::bias_grad::BiasGrad;
use crate::ops::relu_mask::ReluMask;
use crate::{
    BackwardRule, Cost, DType, Finish, Op, OpError, Role, Sink, Source, TensorDesc, Traits,
};

pub use cases::cases;
pub use grad::{ConvTranspose2x2GradInput, ConvTranspose2x2GradWeight};

/// `y = relu(conv_transpose(x, w) + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvTranspose2x2 {
    /// Negative results become 0.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of images that hold data.
    pub counted: bool,
    /// The gradient of y comes masked by the ReLU: its one reader saw to that.
    pub masked: bool,
}

op_inputs! {
    /// What [`ConvTranspose2x2`] reads.
    pub struct ConvTranspose2x2Inputs {
        /// `[N, H, W, C]`.
        x,
        /// `[C, 2, 2, K]`.
        w,
        /// `[K]`.
        b,
    }
    optional {
        /// Images that hold data, `[1]` i32.
        count,
    }
}

const NAME: &str = "conv_transpose2x2";

/// The convolution whose gradient this is, for `x [N,H,W,C]` and K channels out.
fn conv_shape([images, height, width, channels]: [usize; 4], filters: usize) -> ConvShape {
    ConvShape {
        images,
        height: 2 * height,
        width: 2 * width,
        channels: filters,
        filters: channels,
        kernel_h: 2,
        kernel_w: 2,
        stride: 2,
        pad: 0,
        out_height: height,
        out_width: width,
    }
}

fn extents(desc: &TensorDesc) -> [usize; 4] {
    [0, 1, 2, 3].map(|i| desc.dim(i))
}

impl Op for ConvTranspose2x2 {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(
            NAME,
            "inputs",
            inputs,
            ConvTranspose2x2Inputs::LEN + usize::from(self.counted),
        )?;
        check::arity(NAME, "updates", updates, 0)?;
        let ConvTranspose2x2Inputs { x, w, b, count } =
            ConvTranspose2x2Inputs::of(inputs, [self.counted]);
        check::rank(NAME, "x", x, "[N, H, W, C]")?;
        check::rank(NAME, "w", w, "[C, 2, 2, K]")?;
        let filters = w.dim(3);
        check::shape(NAME, "w", w, &[x.dim(3), 2, 2, filters])?;
        check::shape(NAME, "b", b, &[filters])?;
        for (name, desc) in [("x", x), ("w", w), ("b", b)] {
            check::dtype(NAME, name, desc, DType::F32)?;
        }
        if let Some(count) = count {
            check::count(NAME, count)?;
        }
        let y = [x.dim(0), 2 * x.dim(1), 2 * x.dim(2), filters];
        Ok(vec![TensorDesc::new(Role::Activation, &y)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        let shape = conv_shape(extents(&inputs[0]), inputs[1].dim(3));
        Cost::streaming(inputs, outputs, shape.flops())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let counted = self.counted;
        let count: &[Source] = if counted { &[Source::Input(3)] } else { &[] };
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu && !self.masked {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let with_count = |sources: &[Source]| [sources, count].concat();
        rule.step(
            ConvTranspose2x2GradInput { counted, finish: Finish::default() },
            &with_count(&[g, Source::Input(1)]),
            &[Sink::GradInput(0)],
        )
        .step(
            ConvTranspose2x2GradWeight { counted },
            &with_count(&[Source::Input(0), g]),
            &[Sink::GradInput(1)],
        )
        .step(BiasGrad { counted }, &with_count(&[g]), &[Sink::GradInput(2)])
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        gather_workspace_len(&conv_shape(extents(&inputs[0]), inputs[1].dim(3)))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        outputs: &[TensorDesc],
    ) -> usize {
        cuda::workspace_bytes(gpu, inputs, outputs)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self.relu, self.counted, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let ConvTranspose2x2Inputs { x, w, b, count } =
            ConvTranspose2x2Inputs::of(&args.inputs, [self.counted]);
        let shape = conv_shape(extents(x.desc), b.desc.dim(0));
        let (x, w, b) = (x.f32(), w.f32(), b.f32());
        let shape = shape.with_images(filled(count, shape.images));
        let len = shape.images * shape.height * shape.width * shape.channels;
        let (y, rest) = args.outputs[0].f32().split_at_mut(len);
        let epilogue = Epilogue { scale: None, bias: Some(b), residual: None, relu: self.relu };
        conv_grad_input(&shape, x, w, None, epilogue, y, args.workspace);
        clear(rest);
    }
}
