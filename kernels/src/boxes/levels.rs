//! Which FPN level a RoI is pooled from (Lin et al., FPN, equation 1).

use super::geometry::{Box4, area};

/// `floor(canonical_level + log2(sqrt(area) / canonical_size) + 1e-6)`, clamped to
/// `min_level..=max_level`; in f32 and in torchvision's order.
///
/// maskrcnn-benchmark adds its 1e-6 inside the logarithm instead. The two differ only for boxes
/// within some 1e-6 (relative) of a boundary between levels.
pub fn roi_level(
    roi: &Box4,
    min_level: i32,
    max_level: i32,
    canonical_size: f32,
    canonical_level: i32,
    plus_one: bool,
) -> i32 {
    let side = area(roi, plus_one).sqrt();
    let level = (canonical_level as f32 + (side / canonical_size).log2() + 1e-6).floor();
    // The cast saturates (a box without area is minus infinity), and NaN gives 0.
    (level as i32).max(min_level).min(max_level)
}
