//! Positions of a RoI's samples along one axis, merged into weights per feature row or column.
//!
//! A bilinear sample weighs feature rows and columns independently, and a sample out of range on
//! either axis has weight 0. So the mean over a bin's grid of samples is an outer product of two
//! short weight lists, with far fewer entries than four taps per sample.

/// Maximum samples per side of a bin in an adaptive grid; only a non-finite box covers more than
/// this many feature pixels per bin.
pub(crate) const MAX_GRID: usize = 4096;

/// Bins and samples of a RoI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    /// Bins per side.
    pub(crate) pooled: usize,
    /// Samples per side of a bin; 0 = adaptive.
    pub(crate) sampling_ratio: usize,
    /// Half-pixel shift, and no minimum size.
    pub(crate) aligned: bool,
}

/// Feature rows (or columns) and their weights, for each bin of an axis.
#[derive(Debug, Clone, Default)]
pub(crate) struct AxisTaps {
    /// Index in `taps` after the last tap of each bin.
    ends: Vec<u32>,
    taps: Vec<(u32, f32)>,
}

impl AxisTaps {
    /// Rows and weights of a bin.
    pub(crate) fn bin(&self, bin: usize) -> &[(u32, f32)] {
        let first = if bin == 0 { 0 } else { self.ends[bin - 1] };
        &self.taps[first as usize..self.ends[bin] as usize]
    }

    /// Multiplies all weights.
    pub(crate) fn scale(&mut self, factor: f32) {
        self.taps.iter_mut().for_each(|(_, weight)| *weight *= factor);
    }

    /// First and last row read by any bin.
    pub(crate) fn extent(&self) -> Option<(u32, u32)> {
        let first = self.taps.iter().map(|t| t.0).min()?;
        let last = self.taps.iter().map(|t| t.0).max()?;
        Some((first, last))
    }
}

impl Grid {
    /// Taps of the y and the x axis of `roi` on a map of `height` and `width`.
    pub(crate) fn taps(
        &self,
        roi: [f32; 4],
        spatial_scale: f32,
        [height, width]: [usize; 2],
    ) -> [AxisTaps; 2] {
        let offset = if self.aligned { 0.5 } else { 0.0 };
        let corner = roi.map(|v| v * spatial_scale - offset);
        [self.axis(corner[1], corner[3], height), self.axis(corner[0], corner[2], width)]
    }

    /// Taps of one axis, from the RoI's start and end in feature pixels.
    fn axis(&self, start: f32, end: f32, extent: usize) -> AxisTaps {
        let mut size = end - start;
        if !self.aligned {
            size = size.max(1.0);
        }
        let bin_size = size / self.pooled as f32;
        let grid = match self.sampling_ratio {
            0 => (bin_size.ceil() as usize).min(MAX_GRID),
            fixed => fixed,
        };
        let mut axis = AxisTaps::default();
        for bin in 0..self.pooled {
            let bin_start = axis.taps.len();
            for i in 0..grid {
                let within = (i as f32 + 0.5) * bin_size / grid as f32;
                let at = start + bin as f32 * bin_size + within;
                push_sample(&mut axis.taps, bin_start, at, extent, 1.0 / grid as f32);
            }
            axis.ends.push(axis.taps.len() as u32);
        }
        axis
    }
}

/// Adds the two taps of a sample at `at`; none if `at` is below -1 or above `extent`.
fn push_sample(taps: &mut Vec<(u32, f32)>, bin_start: usize, at: f32, extent: usize, weight: f32) {
    let outside = at < -1.0 || at > extent as f32;
    if outside || extent == 0 {
        return;
    }
    let at = at.max(0.0);
    let low = (at as usize).min(extent - 1);
    let fraction = if low == extent - 1 { 0.0 } else { at - low as f32 };
    push_tap(taps, bin_start, low, (1.0 - fraction) * weight);
    push_tap(taps, bin_start, low + 1, fraction * weight);
}

/// Adds `weight` to the tap of `row` if it is one of the bin's last two taps, which consecutive
/// samples share; else appends a tap.
fn push_tap(taps: &mut Vec<(u32, f32)>, bin_start: usize, row: usize, weight: f32) {
    if weight == 0.0 {
        return;
    }
    let recent = taps.len().saturating_sub(2).max(bin_start);
    match taps[recent..].iter_mut().find(|t| t.0 == row as u32) {
        Some(tap) => tap.1 += weight,
        None => taps.push((row as u32, weight)),
    }
}
