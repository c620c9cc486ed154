//! The layers that run as GEMMs, expressed as convolutions: names, sizes and limits.

use crate::matmul::{ConvShape, out_extent};
use crate::{OpError, Role, TensorDesc, check};

/// How the input `x`, the weights `w` and the output `y` of a layer map to a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// `x [N,H,W,C]`, `w [K,R,S,C / groups]` -> `y [N,P,Q,K]`, with `P = (H + 2 pad - dilation
    /// (R - 1) - 1) / stride + 1`.
    Conv2d {
        /// Step between windows, both axes.
        stride: usize,
        /// Zero padding in rows and columns.
        pad: usize,
        /// Dilation, both axes; must be 1 unless the stride is 1.
        dilation: usize,
        /// Groups of C and K; filters read only the channels of their group.
        groups: usize,
    },
    /// `x [M, ..]`, `w [K, ..]` with rows of equal length -> `y [M,K]`: a 1x1 convolution of 1x1
    /// images.
    Linear,
    /// `x [N,H,W,C]`, `w [C,R,R,K]` with `R = 2 + 2 pad` -> `y [N,2H,2W,K]`: the input gradient of
    /// a stride-2 convolution that computes x from y.
    ConvTranspose {
        /// Padding of y in that convolution.
        pad: usize,
    },
}

impl Layer {
    /// A convolution without groups and dilation.
    pub const fn conv2d(stride: usize, pad: usize) -> Self {
        Self::Conv2d { stride, pad, dilation: 1, groups: 1 }
    }

    /// True if the underlying convolution maps the layer's output to the layer's input.
    pub(super) fn is_transposed(self) -> bool {
        matches!(self, Self::ConvTranspose { .. })
    }

    /// True for linear layers, and for convolutions without groups and dilation.
    pub(super) fn is_plain(self) -> bool {
        match self {
            Self::Conv2d { dilation, groups, .. } => dilation == 1 && groups == 1,
            Self::Linear => true,
            Self::ConvTranspose { .. } => false,
        }
    }

    /// Multiply-adds of the GEMM on a GPU divided by those of the layer, for `channels` and
    /// `filters`: above 1 if small groups are merged into one GEMM, which also multiplies the zeros
    /// between them.
    pub fn depth_on_gpu(self, channels: usize, filters: usize) -> usize {
        let Self::Conv2d { groups, .. } = self else { return 1 };
        let shape = ConvShape { groups, ..ConvShape::matrix(1, channels, filters) };
        groups / shape.on_gpu().groups
    }

    /// True for a convolution with one group per channel.
    pub(super) fn is_grouped_by_channel(self, channels: usize) -> bool {
        matches!(self, Self::Conv2d { groups, .. } if groups > 1 && groups == channels)
    }

    /// Names of the op and of its gradient ops.
    pub(super) fn names(self) -> [&'static str; 3] {
        match self {
            Self::Conv2d { .. } => ["conv2d", "conv2d_grad_input", "conv2d_grad_weight"],
            Self::Linear => ["linear", "linear_grad_input", "linear_grad_weight"],
            Self::ConvTranspose { .. } => {
                ["conv_transpose", "conv_transpose_grad_input", "conv_transpose_grad_weight"]
            }
        }
    }

    /// The convolution for `x` and `w`, and the shape of `y`.
    pub(super) fn sizes(
        self,
        op: &'static str,
        [x, w]: [&TensorDesc; 2],
    ) -> Result<(ConvShape, Vec<usize>), OpError> {
        match self {
            Self::Conv2d { stride, pad, dilation, groups } => {
                let s = conv_shape(op, [x, w], (stride, pad), (dilation, groups))?;
                Ok((s, vec![s.images, s.out_height, s.out_width, s.filters]))
            }
            Self::Linear => {
                let row_len = |desc: &TensorDesc| desc.shape.iter().skip(1).product::<usize>();
                for (name, desc) in [("x", x), ("w", w)] {
                    if desc.shape.is_empty() {
                        let expected = "at least one dimension".into();
                        return Err(check::shape_error(op, name, desc, expected));
                    }
                }
                if row_len(x) != row_len(w) {
                    let expected = format!("[K, ..] with {} elements per row", row_len(x));
                    return Err(check::shape_error(op, "w", w, expected));
                }
                let pixel = ConvShape::matrix(1, row_len(x), w.dim(0));
                let s = ConvShape { images: x.dim(0), ..pixel };
                Ok((s, vec![s.images, s.filters]))
            }
            Self::ConvTranspose { pad } => {
                let kernel = 2 + 2 * pad;
                check::rank(op, "x", x, "[N, H, W, C]")?;
                check::rank(op, "w", w, "[C, R, R, K]")?;
                check::shape(op, "w", w, &[x.dim(3), kernel, kernel, w.dim(3)])?;
                let y = vec![x.dim(0), 2 * x.dim(1), 2 * x.dim(2), w.dim(3)];
                let y_desc = TensorDesc::new(Role::Activation, &y);
                Ok((conv_shape(op, [&y_desc, w], (2, pad), (1, 1))?, y))
            }
        }
    }
}

/// Sizes of the convolution of `x [N,H,W,C]` with `w [K,R,S,C / groups]`.
fn conv_shape(
    op: &'static str,
    [x, w]: [&TensorDesc; 2],
    (stride, pad): (usize, usize),
    (dilation, groups): (usize, usize),
) -> Result<ConvShape, OpError> {
    check::rank(op, "x", x, "[N, H, W, C]")?;
    check::rank(op, "w", w, "[K, R, S, C]")?;
    let [images, height, width, channels] = [0, 1, 2, 3].map(|i| x.dim(i));
    let [filters, kernel_h, kernel_w, depth] = [0, 1, 2, 3].map(|i| w.dim(i));
    check::parameter(op, "stride", stride > 0, "at least 1", stride)?;
    let alone = dilation == 1 || dilation > 1 && stride == 1;
    check::parameter(op, "dilation", alone, "1, or more with a stride of 1", dilation)?;
    let divides = groups > 0 && channels.is_multiple_of(groups) && filters.is_multiple_of(groups);
    let expected = "a divisor of the channels and of the filters";
    check::parameter(op, "groups", divides, expected, groups)?;
    if depth * groups != channels || !(1..=64).contains(&(kernel_h * kernel_w)) {
        let expected = format!("[K, R, S, {}] with 1 to 64 taps R * S", channels / groups);
        return Err(check::shape_error(op, "w", w, expected));
    }
    let [out_height, out_width] = [(height, kernel_h), (width, kernel_w)]
        .map(|(extent, kernel)| out_extent(extent, dilation * (kernel - 1) + 1, stride, pad));
    let (Some(out_height), Some(out_width)) = (out_height, out_width) else {
        let expected =
            format!("a kernel within the padded map, {height} x {width} padded by {pad}");
        return Err(check::shape_error(op, "w", w, expected));
    };
    Ok(ConvShape {
        images,
        height,
        width,
        channels,
        filters,
        kernel_h,
        kernel_w,
        stride,
        pad,
        dilation,
        groups,
        out_height,
        out_width,
    })
}
