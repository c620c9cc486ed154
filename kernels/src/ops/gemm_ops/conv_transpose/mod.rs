//! Transposed convolution of stride 2: upsamples a map by 2. `y = relu(x (*) w + b)`.
//!
//! Matches `torch.nn.functional.conv_transpose2d(x, w, b, stride=2, padding=pad)` for a kernel of
//! `R = 2 + 2 pad` rows and columns: 2x2 without padding, where every input position writes a
//! separate block of y, or 4x4 with a padding of 1, where blocks overlap.
//!
//! Tensors: `x [N,H,W,C]`, `w [C,R,R,K]`, `b [K]`, with `counted` also `count [1] i32` -> `y
//! [N,2H,2W,K]`, overwritten. With `counted`, images past the count are neither read nor written.
//!
//! The op equals the input gradient of a stride-2 convolution from K to C channels with the same
//! weights. Its own input gradient is therefore that convolution, and its weight gradient is the
//! convolution's weight gradient. Compute-bound; deterministic.

mod cases;

use super::gemm_op::{Form, GemmOp, Pass};
use super::layer::Layer;

pub use cases::cases;

/// `y = relu(conv_transpose(x, w) + b)`.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvTranspose {
    /// Padding that is cropped from y; the kernel size is 2 + 2 `pad`.
    pub pad: usize,
    /// Applies ReLU.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of images that hold data.
    pub counted: bool,
    /// The single consumer of y already applies the ReLU mask to the gradient of y.
    pub masked: bool,
}

op_inputs! {
    /// The inputs of [`ConvTranspose`].
    pub struct ConvTransposeInputs {
        /// `[N, H, W, C]`.
        x,
        /// `[C, R, R, K]`.
        w,
        /// `[K]`.
        b,
    }
    optional {
        /// Number of images that hold data, `[1]` i32.
        count,
    }
}

impl GemmOp for ConvTranspose {
    fn form(&self) -> Form {
        let Self { pad, relu, counted, masked } = *self;
        Form {
            bias: true,
            relu,
            counted,
            masked,
            ..Form::new(Layer::ConvTranspose { pad }, Pass::Output)
        }
    }
}
