//! One axis of a gather: which input coordinate an output coordinate reads at each kernel tap.

/// Output coordinates `start, start + step, ..` of an axis. The `o`-th of them reads input
/// coordinate `scale * o + offset + direction * t` at tap `t`, or zero outside the map.
#[derive(Debug, Clone, Copy)]
pub(super) struct Axis {
    /// First output coordinate.
    pub start: usize,
    /// Distance between output coordinates.
    pub step: usize,
    /// Number of taps.
    pub taps: usize,
    /// Kernel coordinate of tap 0.
    pub first_tap: usize,
    /// Distance between taps in the kernel.
    pub tap_step: usize,
    /// Input coordinates per tap: the dilation, or its negative.
    pub direction: isize,
    scale: isize,
    offset: isize,
    inputs: usize,
}

impl Axis {
    /// A convolution reads `o * stride - pad + t * dilation`.
    pub(super) fn forward(
        inputs: usize,
        kernel: usize,
        stride: usize,
        (pad, dilation): (usize, usize),
    ) -> Self {
        Self {
            start: 0,
            step: 1,
            taps: kernel,
            first_tap: 0,
            tap_step: 1,
            direction: dilation as isize,
            scale: stride as isize,
            offset: -(pad as isize),
            inputs,
        }
    }

    /// The input gradient at coordinates `o = class (mod stride)` reads `(o + pad - r * dilation) /
    /// stride` at the kernel coordinates `r` for which this is an integer. With a dilation, which
    /// is never combined with a stride, these are all kernel coordinates.
    pub(super) fn gradient(
        inputs: usize,
        kernel: usize,
        stride: usize,
        (pad, dilation): (usize, usize),
        class: usize,
    ) -> Self {
        let first_tap = (class + pad) % stride;
        Self {
            start: class,
            step: stride,
            taps: kernel.saturating_sub(first_tap).div_ceil(stride),
            first_tap,
            tap_step: stride,
            direction: -(dilation as isize),
            scale: 1,
            offset: ((class + pad - first_tap) / stride) as isize,
            inputs,
        }
    }

    /// Input coordinate of tap 0 for the `o`-th output.
    pub(super) fn origin(&self, o: usize) -> isize {
        self.scale * o as isize + self.offset
    }

    /// Bit `t` is set if tap `t` of the `o`-th output is inside the map.
    pub(super) fn mask(&self, o: usize) -> u64 {
        let inside = |t: usize| {
            let i = self.origin(o) + self.direction * t as isize;
            (0..self.inputs as isize).contains(&i)
        };
        (0..self.taps).filter(|&t| inside(t)).fold(0, |mask, t| mask | 1 << t)
    }
}
