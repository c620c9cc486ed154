//! The rows of the gathered matrix: the input address at which each output position begins to read.

use std::ops::Range;

use super::ConvShape;
use super::axis::Axis;

/// One output position.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row {
    /// Its position in the output.
    pub position: usize,
    /// Index of the first input element that tap 0 reads; only valid for the taps in `mask`.
    pub base: isize,
    /// Bit `t` is set if tap `t` is inside the map.
    pub mask: u64,
}

/// Output positions of one residue class of both axes, with the taps that they read.
#[derive(Debug, Clone)]
pub(super) struct RowMap {
    /// Offset of each tap from `Row::base`, in elements.
    pub tap_offsets: Vec<isize>,
    /// The tap's position in the kernel, `r * S + s`.
    pub kernel_taps: Vec<usize>,
    h: Axis,
    w: Axis,
    input: [usize; 3],
    output: [usize; 2],
    h_masks: Vec<u64>,
    w_masks: Vec<u64>,
}

impl RowMap {
    /// Rows that a convolution reads.
    pub(super) fn forward(s: &ConvShape) -> Self {
        let around = (s.pad, s.dilation);
        Self::new(
            Axis::forward(s.height, s.kernel_h, s.stride, around),
            Axis::forward(s.width, s.kernel_w, s.stride, around),
            [s.height, s.width, s.channels],
            [s.out_height, s.out_width],
            s.kernel_w,
        )
    }

    /// Rows over an input of `[H, W, C]` per image and an output of `[P, Q]` positions per image.
    pub(super) fn new(
        h: Axis,
        w: Axis,
        input: [usize; 3],
        output: [usize; 2],
        kernel_w: usize,
    ) -> Self {
        assert!(h.taps * w.taps <= 64, "a kernel of {} x {} taps", h.taps, w.taps);
        let taps = || (0..h.taps).flat_map(|i| (0..w.taps).map(move |j| (i, j)));
        let step = [h.direction * (input[1] * input[2]) as isize, w.direction * input[2] as isize];
        let tap_offsets =
            taps().map(|(i, j)| i as isize * step[0] + j as isize * step[1]).collect();
        let kernel_taps = taps()
            .map(|(i, j)| (h.first_tap + i * h.tap_step) * kernel_w + w.first_tap + j * w.tap_step)
            .collect();
        // One bit per row of taps, spread so that a multiplication with a mask of columns sets the
        // bits of each row.
        let spread = |mask: u64| {
            (0..h.taps).filter(|t| mask >> t & 1 == 1).fold(0, |m, t| m | 1u64 << (t * w.taps))
        };
        let h_masks =
            (h.start..output[0]).step_by(h.step).enumerate().map(|(o, _)| spread(h.mask(o)));
        let h_masks = h_masks.collect();
        let w_masks = (w.start..output[1]).step_by(w.step).enumerate().map(|(o, _)| w.mask(o));
        let w_masks = w_masks.collect();
        Self { tap_offsets, kernel_taps, h, w, input, output, h_masks, w_masks }
    }

    /// Number of taps.
    pub(super) fn taps(&self) -> usize {
        self.tap_offsets.len()
    }

    /// Taps in one row of the kernel.
    pub(super) fn taps_w(&self) -> usize {
        self.w.taps
    }

    /// True if the pixels under a row of the kernel are contiguous, in order.
    pub(super) fn has_joined_taps(&self) -> bool {
        self.w.direction == 1
    }

    /// Mask of a position that reads no padding.
    pub(super) fn full_mask(&self) -> u64 {
        low_bits(self.taps())
    }

    /// Number of all output positions divided by the number of positions in this class.
    pub(super) fn density(&self) -> usize {
        self.h.step * self.w.step
    }

    /// Lists this class's rows among output `positions`, in order.
    pub(super) fn list(&self, positions: Range<usize>, rows: &mut Vec<Row>) {
        rows.clear();
        let [out_h, out_w] = self.output;
        let [in_h, in_w, channels] = self.input;
        if positions.is_empty() {
            return;
        }
        for line in positions.start / out_w..=(positions.end - 1) / out_w {
            let (image, y) = (line / out_h, line % out_h);
            if y < self.h.start || !(y - self.h.start).is_multiple_of(self.h.step) {
                continue;
            }
            let oh = (y - self.h.start) / self.h.step;
            let low = positions.start.max(line * out_w) - line * out_w;
            let high = positions.end.min((line + 1) * out_w) - line * out_w;
            let first = low.saturating_sub(self.w.start).div_ceil(self.w.step);
            let line_base = (image * in_h) as isize + self.h.origin(oh);
            for (ow, x) in
                (first..).zip((self.w.start + first * self.w.step..high).step_by(self.w.step))
            {
                let base = (line_base * in_w as isize + self.w.origin(ow)) * channels as isize;
                let mask = self.h_masks[oh].wrapping_mul(self.w_masks[ow]);
                rows.push(Row { position: line * out_w + x, base, mask });
            }
        }
    }
}

/// A mask of the lowest `count` bits.
pub(super) fn low_bits(count: usize) -> u64 {
    if count >= 64 { u64::MAX } else { (1 << count) - 1 }
}
