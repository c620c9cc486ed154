//! Source pixels of a resized image: as in `torch.nn.functional.interpolate` with
//! `align_corners=False` and the scale computed from the two sizes (`recompute_scale_factor=True`),
//! or as in Pillow ([`pil_taps`]).
//!
//! Sizes are in pixels along one axis; arithmetic in f32, as in PyTorch.

mod pil;

pub use pil::{PilTaps, pil_taps};

/// Two adjacent source pixels and the weight of the second.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BilinearTap {
    /// First source pixel.
    pub low: usize,
    /// Second source pixel; equals the first at the far border.
    pub high: usize,
    /// Weight of the second, 0..=1.
    pub fraction: f32,
}

/// Source of pixel `target` when `source_size` pixels become `target_size`, bilinearly.
pub fn bilinear_tap(target: usize, source_size: usize, target_size: usize) -> BilinearTap {
    let scale = source_size as f32 / target_size as f32;
    let at = (scale * (target as f32 + 0.5) - 0.5).max(0.0);
    let low = (at as usize).min(source_size - 1);
    let high = (low + 1).min(source_size - 1);
    BilinearTap { low, high, fraction: (at - low as f32).clamp(0.0, 1.0) }
}

/// Source index of pixel `target`, resizing from `source_size` to `target_size` pixels with
/// nearest-neighbor interpolation.
pub fn nearest_source(target: usize, source_size: usize, target_size: usize) -> usize {
    let scale = source_size as f32 / target_size as f32;
    ((target as f32 * scale) as usize).min(source_size - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resize_taps_are_inside_and_ascending() {
        for source in 1..40 {
            for target in 1..60 {
                let at = |x| bilinear_tap(x, source, target);
                assert!((0..target).all(|x| at(x).high < source));
                assert!((1..target).all(|x| at(x).low >= at(x - 1).low));
                assert!((0..target).all(|x| nearest_source(x, source, target) < source));
            }
        }
    }
}
