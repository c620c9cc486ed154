//! Assignment of RoIs to FPN levels (Lin et al., FPN, equation 1).

use choices::LevelEps;

use super::geometry::{Box4, area};

/// The constants that a rule adds inside the logarithm and to its result.
pub(crate) fn epsilons(rule: LevelEps) -> [f32; 2] {
    match rule {
        LevelEps::AfterLog => [0.0, 1e-6],
        LevelEps::InLog => [1e-8, 0.0],
    }
}

/// `floor(canonical_level + log2(sqrt(area) / canonical_size) + 1e-6)`, clamped to
/// `min_level..=max_level`; in f32 and in torchvision's order. detectron2's rule adds 1e-8 inside
/// the logarithm, and nothing to its result.
///
/// maskrcnn-benchmark adds 1e-6 inside the logarithm. The three rules differ only for boxes within
/// some 1e-6 (relative) of a boundary between levels.
pub fn roi_level(
    roi: &Box4,
    min_level: i32,
    max_level: i32,
    canonical_size: f32,
    canonical_level: i32,
    plus_one: bool,
    rule: LevelEps,
) -> i32 {
    let side = area(roi, plus_one).sqrt();
    let [inside, after] = epsilons(rule);
    let share = side / canonical_size + inside;
    let level = (canonical_level as f32 + share.log2() + after).floor();
    // The cast saturates (the level of a zero-area box is minus infinity), and turns NaN into 0.
    (level as i32).max(min_level).min(max_level)
}
