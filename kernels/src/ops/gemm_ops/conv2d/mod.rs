//! Convolution in NHWC with a fused epilogue: `y = relu(conv(x, w) * scale + bias + residual)`.
//!
//! Matches `torch.nn.functional.conv2d` (cross-correlation, zero padding), except that stride and
//! dilation cannot be combined. `scale` and `bias` may hold a folded frozen batch norm
//! ([`crate::frozen_bn`]).
//!
//! Tensors: `x [N,H,W,C]`, `w [K,R,S,C / groups]`, then the optional inputs whose flags are set, in
//! this order: `scale [K]`, `bias [K]`, `residual [N,P,Q,K]` (or of a different height and width,
//! read at the nearest position as in `upsample_add`), `count [1] i32` -> `y [N,P,Q,K]`,
//! overwritten, with `P = (H + 2 pad - dilation (R - 1) - 1) / stride + 1`, and with `signs` also
//! the [`signs`](crate::signs) of `y`. With `counted`, images past the count are neither read nor
//! written.
//!
//! CPU reference and launches are in `gemm_op.rs`. All inputs except the frozen `scale` have
//! gradients. At y = 0 the ReLU passes no gradient. Edge cases: N = 0 and 1x1 outputs are
//! supported; a window larger than the padded map and kernels with more than 64 taps are rejected.

mod cases;
mod epilogue_cases;

use super::gemm_op::{Form, GemmOp, Pass};
use super::layer::Layer;
use crate::Fusion;

pub(super) use cases::SCALED_FLOOR;
pub use cases::cases;

/// `y = relu(conv(x, w) * scale + bias + residual)`; a flag enables each part of the epilogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d {
    /// Step between windows, both axes.
    pub stride: usize,
    /// Zero padding in rows and columns.
    pub pad: usize,
    /// Dilation, both axes; must be 1 unless the stride is 1.
    pub dilation: usize,
    /// Groups of C and K; filters read only the channels of their group.
    pub groups: usize,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// There is an input `bias [K]`.
    pub bias: bool,
    /// There is an input `residual [N,P,Q,K]`.
    pub residual: bool,
    /// The residual is `[N,h,w,K]`, and position `(p, q)` reads `(p h / P, q w / Q)`, rounded down.
    pub nearest: bool,
    /// Applies ReLU.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of images that hold data.
    pub counted: bool,
    /// There is a second output, the [`signs`](crate::signs) of y.
    pub signs: bool,
}

op_inputs! {
    /// The inputs of [`Conv2d`]; each optional input is present if the flag of its name is set.
    pub struct Conv2dInputs {
        /// `[N, H, W, C]`.
        x,
        /// `[K, R, S, C / groups]`.
        w,
    }
    optional {
        /// `[K]`.
        scale,
        /// `[K]`.
        bias,
        /// `[N, P, Q, K]`.
        residual,
        /// Number of images that hold data, `[1]` i32.
        count,
    }
}

impl Conv2d {
    /// A convolution with no epilogue.
    pub fn new(stride: usize, pad: usize) -> Self {
        let (scale, bias, residual, nearest) = (false, false, false, false);
        let (relu, counted, signs) = (false, false, false);
        let (dilation, groups) = (1, 1);
        Self { stride, pad, dilation, groups, scale, bias, residual, nearest, relu, counted, signs }
    }

    /// The layer, without the epilogue.
    pub fn layer(&self) -> Layer {
        let Self { stride, pad, dilation, groups, .. } = *self;
        Layer::Conv2d { stride, pad, dilation, groups }
    }

    /// The convolution with the flags set for the optional inputs that `inputs` contains.
    pub fn reading<T>(self, inputs: &Conv2dInputs<T>) -> Self {
        let (scale, bias) = (inputs.scale.is_some(), inputs.bias.is_some());
        let (residual, counted) = (inputs.residual.is_some(), inputs.count.is_some());
        Self { scale, bias, residual, counted, ..self }
    }
}

impl GemmOp for Conv2d {
    fn form(&self) -> Form {
        let Self { scale, bias, residual, nearest, relu, counted, signs, .. } = *self;
        let plain = Form::new(self.layer(), Pass::Output);
        Form { scale, bias, residual, nearest, relu, counted, signs, ..plain }
    }

    fn with(&self, fusion: Fusion) -> Option<Self> {
        match fusion {
            Fusion::Signs if !self.signs && !self.nearest => {
                Some(Self { signs: true, ..self.clone() })
            }
            Fusion::UpsampleAdd
                if !self.residual && !self.relu && !self.counted && self.layer().is_plain() =>
            {
                Some(Self { residual: true, nearest: true, ..self.clone() })
            }
            _ => None,
        }
    }
}
