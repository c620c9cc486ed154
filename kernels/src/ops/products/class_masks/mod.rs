//! Mask logits of each row's own class: the mask predictor where only that channel is used.
//!
//! Equals a 1x1 convolution of `x` with all of `w`, of which each row keeps the channel of its
//! label: the training step needs no other.
//! Tensors: `x [M,H,W,C]`, `w [K,1,1,C]`, `b [K]`, `labels [M]` i32, `count [1]` i32 (rows in use;
//! all in) -> `logits [M,H,W]` (overwritten; 0 in rows at or past the count and where the label is
//! 0 or below). A label is at most K-1.
//! With `relu` the gradient of x is masked where x is not positive. Bound by memory: x is read
//! once. Deterministic; on the CPU the bits are the convolution's.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::contract::Dims;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, Op, OpError, Role, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::ClassMasksGrad;

/// The channel of each row's class of a 1x1 convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClassMasks {
    /// x is the output of a ReLU, and its gradient is that of the ReLU's input.
    pub relu: bool,
}

op_inputs! {
    /// The inputs of [`ClassMasks`].
    pub struct ClassMasksInputs {
        /// `[M, H, W, C]`.
        x,
        /// `[K, 1, 1, C]`.
        w,
        /// `[K]`.
        b,
        /// `[M]` i32.
        labels,
        /// Rows in use, `[1]` i32.
        count,
    }
}

op_inputs! {
    /// The inputs of [`ClassMasksGrad`].
    pub struct ClassMasksGradInputs {
        /// `[M, H, W]`.
        g,
        /// `[M, H, W, C]`.
        x,
        /// `[K, 1, 1, C]`.
        w,
        /// `[M]` i32.
        labels,
        /// Rows in use, `[1]` i32.
        count,
    }
}

const NAME: &str = "class_masks";

/// Checks the inputs of the op and its gradient.
fn check_inputs(
    dims: &mut Dims,
    op: &'static str,
    x: &TensorDesc,
    w: &TensorDesc,
    [labels, count]: [&TensorDesc; 2],
) -> Result<(), OpError> {
    dims.f32("x", x, "[M, H, W, C]")?;
    dims.f32("w", w, "[K, 1, 1, C]")?;
    check::parameter(op, "K", w.dim(0) > 0, "at least 1", w.dim(0))?;
    dims.i32("labels", labels, "[M]")?;
    dims.i32("count", count, "[1]")
}

/// A multiply-add for each element of x.
fn flops(x: &TensorDesc) -> u64 {
    2 * x.len() as u64
}

impl Op for ClassMasks {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let mut dims = Dims::new(NAME, inputs, ClassMasksInputs::LEN, updates)?;
        let ClassMasksInputs { x, w, b, labels, count } = ClassMasksInputs::of(inputs);
        check_inputs(&mut dims, NAME, x, w, [labels, count])?;
        dims.f32("b", b, "[K]")?;
        Ok(vec![TensorDesc::new(Role::Activation, &x.shape[..3])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, flops(&inputs[0]))
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        BackwardRule::default().step(
            ClassMasksGrad { relu: self.relu, bias_grad: false },
            &[
                Source::GradOutput(0),
                Source::Input(0),
                Source::Input(1),
                Source::Input(3),
                Source::Input(4),
            ],
            &[Sink::GradInput(0), Sink::GradInput(1), Sink::GradInput(2)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        cpu::forward(args);
    }
}
