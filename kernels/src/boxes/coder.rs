//! Box deltas: a box relative to another (Girshick et al., R-CNN, appendix C).

use super::geometry::{Box4, height, one, width};

/// Maximum log of a side ratio in a delta: ln(1000 / 16). Keeps `exp` finite.
pub const MAX_LOG_RATIO: f32 = 4.135_166_5;

/// Deltas `[dx, dy, dw, dh]` that turn `anchor` into `target`, times `weights`.
/// Infinite or NaN if a side is not positive.
pub fn encode(anchor: &Box4, target: &Box4, weights: &[f32; 4], plus_one: bool) -> [f32; 4] {
    let (aw, ah) = (width(anchor, plus_one), height(anchor, plus_one));
    let (tw, th) = (width(target, plus_one), height(target, plus_one));
    let (ax, ay) = (anchor[0] + 0.5 * aw, anchor[1] + 0.5 * ah);
    let (tx, ty) = (target[0] + 0.5 * tw, target[1] + 0.5 * th);
    [
        weights[0] * (tx - ax) / aw,
        weights[1] * (ty - ay) / ah,
        weights[2] * (tw / aw).ln(),
        weights[3] * (th / ah).ln(),
    ]
}

/// Applies `deltas` to `anchor`; dw and dh are clamped from above to [`MAX_LOG_RATIO`].
pub fn decode(anchor: &Box4, deltas: &[f32; 4], weights: &[f32; 4], plus_one: bool) -> Box4 {
    let (aw, ah) = (width(anchor, plus_one), height(anchor, plus_one));
    let (ax, ay) = (anchor[0] + 0.5 * aw, anchor[1] + 0.5 * ah);
    let dw = (deltas[2] / weights[2]).min(MAX_LOG_RATIO);
    let dh = (deltas[3] / weights[3]).min(MAX_LOG_RATIO);
    let (x, y) = (deltas[0] / weights[0] * aw + ax, deltas[1] / weights[1] * ah + ay);
    let (half_w, half_h) = (0.5 * (dw.exp() * aw), 0.5 * (dh.exp() * ah));
    let one = one(plus_one);
    [x - half_w, y - half_h, x + half_w - one, y + half_h - one]
}
