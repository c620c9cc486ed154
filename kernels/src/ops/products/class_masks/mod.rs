//! Mask logits of each row's own class: the mask predictor where only that channel is used.
//!
//! Equals a 1x1 convolution of `x` with all of `w`, of which each row keeps the channel of its
//! label: the training step needs no other.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Cost, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// The channel of each row's class of a 1x1 convolution. Bound by memory: x is read once.
    /// Deterministic; on the CPU the bits are the convolution's.
    #[derive(Copy, Eq)]
    pub struct ClassMasks = "class_masks" {
        /// x is the output of a ReLU, and its gradient is that of the ReLU's input.
        pub relu: bool,
    }
    in ClassMasksInputs {
        /// A map per row.
        x: real "[M, H, W, C]",
        /// A filter per class.
        w: real "[K, 1, 1, C]",
        /// Bias.
        b: f32 "[K]",
        /// Class of each row, at most K-1; 0 or below: no mask.
        labels: i32 "[M]",
        /// Rows in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows at or past the count and where the label is 0 or below.
        logits: Activation "[M, H, W]",
    }
}

op! {
    /// Gradients of the input, the filters and the bias. Bound by memory: x is read once, dx
    /// written once.
    #[derive(Copy, Eq)]
    pub struct ClassMasksGrad = "class_masks_grad" {
        /// x is the output of a ReLU, and `dx` the gradient of its input: 0 where x is not
        /// positive.
        pub relu: bool,
        /// The last output is the gradient of the bias that x was made with.
        pub bias_grad: bool,
    }
    in ClassMasksGradInputs {
        /// Gradient of the logits.
        g: real "[M, H, W]",
        /// A map per row.
        x: real "[M, H, W, C]",
        /// A filter per class.
        w: real "[K, 1, 1, C]",
        /// Class of each row, at most K-1; 0 or below: no mask.
        labels: i32 "[M]",
        /// Rows in use.
        count: i32 "[1]",
    }
    out {
        /// 0 in rows that have no mask.
        dx: Gradient "[M, H, W, C]",
        /// 0 for classes without rows.
        dw: WeightGradient "[K, 1, 1, C]",
        /// 0 for classes without rows.
        db: WeightGradient "[K]",
        /// Sum of `dx`; only if the flag is set.
        sums: WeightGradient "[C]",
    }
}

/// Fails unless there is a class.
fn check_classes(op: &'static str, dims: &Dims) -> Result<(), OpError> {
    let classes = dims.get("K");
    check::parameter(op, "K", classes > 0, "at least 1", classes)
}

/// A multiply-add for each element of x.
fn flops(x: &TensorDesc) -> u64 {
    2 * x.len() as u64
}

impl Kernel for ClassMasks {
    fn check(&self, _inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_classes(dims.op(), dims)
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, flops(&inputs[0]))
    }

    fn backward(&self, _inputs: &[TensorDesc]) -> BackwardRule {
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
