//! Fully connected layer: `y = relu(x * w^T + b)`.
//!
//! Matches `torch.nn.functional.linear` on `x` flattened after its first dimension. The weights may
//! have a different shape if their rows have the same length: RoI features `[M,7,7,C]` take
//! `[K,7,7,C]`.
//!
//! Tensors: `x [M, ..]`, `w [K, ..]`, `b [K]`, with `counted` also `count [1] i32` -> `y [M,K]`,
//! overwritten. With `counted`, rows past the count are neither read nor written. Compute-bound, or
//! bound by reading the weights if M is below about 50; deterministic.

mod cases;

use super::gemm_op::{Form, GemmOp, Pass};
use super::layer::Layer;

pub use cases::cases;

/// `y = relu(x * w^T + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct Linear {
    /// Applies ReLU.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of rows that hold data.
    pub counted: bool,
}

op_inputs! {
    /// The inputs of [`Linear`].
    pub struct LinearInputs {
        /// `[M, ..]`.
        x,
        /// `[K, ..]`.
        w,
        /// `[K]`.
        b,
    }
    optional {
        /// Number of rows that hold data, `[1]` i32.
        count,
    }
}

impl GemmOp for Linear {
    fn form(&self) -> Form {
        let Self { relu, counted } = *self;
        Form { bias: true, relu, counted, ..Form::new(Layer::Linear, Pass::Output) }
    }
}
