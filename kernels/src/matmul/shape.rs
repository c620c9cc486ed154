//! The sizes of a convolution, which its forward pass and both gradients share.

/// A convolution `x[N,H,W,C] * w[K,R,S,C] -> y[N,P,Q,K]`.
///
/// A linear layer is a 1x1 convolution over one row of `M` positions. A transposed convolution is
/// the input gradient of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ConvShape {
    /// N.
    pub images: usize,
    /// H.
    pub height: usize,
    /// W.
    pub width: usize,
    /// C, of the input.
    pub channels: usize,
    /// K, channels of the output.
    pub filters: usize,
    /// R.
    pub kernel_h: usize,
    /// S.
    pub kernel_w: usize,
    /// Step between windows, both axes.
    pub stride: usize,
    /// Zeros around the map, both axes.
    pub pad: usize,
    /// Distance between adjacent taps on the map, both axes; 1 with a stride.
    pub dilation: usize,
    /// Channels and filters are divided evenly: a filter reads only the channels of its group.
    pub groups: usize,
    /// P.
    pub out_height: usize,
    /// Q.
    pub out_width: usize,
}

impl ConvShape {
    /// `y[M,K] = x[M,C] * w[K,C]^T`.
    pub(crate) fn matrix(rows: usize, channels: usize, filters: usize) -> Self {
        Self {
            images: 1,
            height: 1,
            width: rows,
            channels,
            filters,
            kernel_h: 1,
            kernel_w: 1,
            stride: 1,
            pad: 0,
            dilation: 1,
            groups: 1,
            out_height: 1,
            out_width: rows,
        }
    }

    /// The same convolution over the first `images` images.
    pub(crate) fn with_images(self, images: usize) -> Self {
        Self { images, ..self }
    }

    /// Elements of one filter: R * S * C / groups.
    pub(crate) fn filter_len(&self) -> usize {
        self.kernel_h * self.kernel_w * self.group_channels()
    }

    /// Channels that a filter reads.
    pub(crate) fn group_channels(&self) -> usize {
        self.channels / self.groups
    }

    /// Filters that read the same channels.
    pub(crate) fn group_filters(&self) -> usize {
        self.filters / self.groups
    }

    /// Positions of the output: N * P * Q.
    pub(crate) fn out_positions(&self) -> usize {
        self.images * self.out_height * self.out_width
    }

    /// FLOPs, two per multiply-add, including multiply-adds on padding.
    pub(crate) fn flops(&self) -> u64 {
        2 * self.out_positions() as u64 * self.filters as u64 * self.filter_len() as u64
    }

    /// An equivalent convolution with a simpler loop: the map of a 1x1 convolution of stride 1
    /// becomes one long row.
    pub(super) fn simplified(self) -> Self {
        let pointwise = self.kernel_h == 1 && self.kernel_w == 1 && self.groups == 1;
        if pointwise && self.stride == 1 && self.pad == 0 {
            Self::matrix(self.out_positions(), self.channels, self.filters)
        } else {
            self
        }
    }
}

/// Number of positions of a window of `kernel` along an axis, or `None` if it does not fit once.
pub(crate) fn out_extent(extent: usize, kernel: usize, stride: usize, pad: usize) -> Option<usize> {
    let room = (extent + 2 * pad).checked_sub(kernel)?;
    Some(room / stride + 1)
}
