//! Losses of one element, in forms that neither overflow nor cancel.

/// `1 / (1 + exp(-x))`, without overflow for any `x`.
pub fn sigmoid(x: f32) -> f32 {
    if x >= 0.0 {
        1.0 / (1.0 + (-x).exp())
    } else {
        let e = x.exp();
        e / (1.0 + e)
    }
}

/// `ln(1 + exp(x))`, without overflow for any `x`.
pub fn softplus(x: f32) -> f32 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// Binary cross-entropy of logit `x` and `target` in 0..1, and its derivative in `x`.
pub fn bce_with_logits(x: f32, target: f32) -> (f32, f32) {
    (softplus(x) - x * target, sigmoid(x) - target)
}

/// Smooth L1 of `difference` = prediction - target, and its derivative: quadratic below `beta`,
/// linear above; `beta` 0 is the absolute difference, with derivative 0 at 0.
pub fn smooth_l1(difference: f32, beta: f32) -> (f32, f32) {
    let size = difference.abs();
    if size < beta {
        (0.5 * difference * difference / beta, difference / beta)
    } else if difference == 0.0 {
        (0.0, 0.0)
    } else {
        (size - 0.5 * beta, difference.signum())
    }
}

/// The maximum logit, and the sum of exp(logit - maximum).
pub(crate) fn exponentials(logits: &[f32]) -> (f64, f64) {
    let max = f64::from(logits.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    (max, logits.iter().map(|&x| (f64::from(x) - max).exp()).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extreme_logits_stay_finite() {
        assert_eq!(sigmoid(-200.0), 0.0);
        assert_eq!(sigmoid(200.0), 1.0);
        assert_eq!(bce_with_logits(200.0, 0.0), (200.0, 1.0));
        assert_eq!(bce_with_logits(-200.0, 1.0), (200.0, -1.0));
        assert_eq!(bce_with_logits(-200.0, 0.0), (0.0, 0.0));
    }
}
