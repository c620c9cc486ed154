//! Binary cross-entropy of logits: the objectness loss of the RPN.
//!
//! Matches `binary_cross_entropy_with_logits`, mean over the rows of a group of images whose label
//! is not -1, averaged over the groups that hold images; or, as detectron2's RPN, the sum over a
//! stated number of rows for each image of the group.
//! Tensors: `logits [M]` or `[M, 1]` f32, `labels [M]` i32 (1, 0, or -1 = ignored),
//! `image_idx [M]` i32, `num_images [1]` i32 (all in) -> `loss [1]` (overwritten).
//! Numerics: softplus form, summed in f64 (CUDA: f32) in a fixed order. Edges: M = 0 or no counted
//! row give 0.

mod cases;
mod cpu;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::losses::{backward_rule, check_group};
use crate::{BackwardRule, Cost, DType, Op, OpError, Role, TensorDesc};

pub use cases::cases;

/// Mean binary cross-entropy of logits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BceLoss {
    /// Images whose rows share a mean.
    pub ipg: usize,
    /// Rows of each image that the sum is divided by; `None`: the rows whose label is not -1.
    pub rows_per_image: Option<usize>,
}

op_inputs! {
    /// The inputs of [`BceLoss`].
    pub struct BceLossInputs {
        /// `[M]` or `[M, 1]`.
        logits,
        /// `[M]` i32.
        labels,
        /// `[M]` i32.
        image_idx,
        /// `[1]` i32.
        num_images,
    }
}

const NAME: &str = "bce_loss";

/// Checks the inputs of the loss and its gradient.
fn check_inputs(op: &'static str, ipg: usize, inputs: &[TensorDesc]) -> Result<(), OpError> {
    let inputs = BceLossInputs::of(inputs);
    let logits = inputs.logits;
    let rows = logits.len();
    if logits.shape != [rows] && logits.shape != [rows, 1] {
        return Err(check::shape_error(op, "logits", logits, "[M] or [M, 1]".into()));
    }
    check::dtype(op, "logits", logits, DType::F32)?;
    check_group(op, ipg, rows, [inputs.labels, inputs.image_idx, inputs.num_images])
}

impl Op for BceLoss {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, BceLossInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_inputs(NAME, self.ipg, inputs)?;
        Ok(vec![TensorDesc::new(Role::Loss, &[1])])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, 6 * BceLossInputs::of(inputs).logits.len() as u64)
    }

    fn backward(&self, _inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        backward_rule(self)
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(*self, args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = cpu::Rows::of(args, *self);
        args.outputs[0].f32()[0] = rows.loss();
    }
}
