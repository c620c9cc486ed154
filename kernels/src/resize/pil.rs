//! Pillow's bilinear resize of 8-bit pixels (`Image.resize(size, Image.BILINEAR)`), which averages
//! over an area when the image shrinks.
//!
//! Each axis is a sum with fixed-point weights, rounded to a byte after the columns and again after
//! the rows (`src/libImaging/Resample.c`). Sizes are in pixels along one axis; weights in f64.

/// Fraction bits of a weight.
const PRECISION: u32 = 32 - 8 - 2;
/// One half in fixed point.
const HALF: i32 = 1 << (PRECISION - 1);

/// Adjacent source pixels with their weights in fixed point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PilTaps {
    /// First source pixel.
    pub first: usize,
    /// Weights of the first and following source pixels.
    pub weights: Vec<i32>,
}

impl PilTaps {
    /// The weighted sum of `value(i)` over the source pixels i, as a byte.
    pub fn sum(&self, value: impl Fn(usize) -> u8) -> u8 {
        let taps = self.weights.iter().zip(self.first..);
        let sum = taps.map(|(weight, i)| weight * i32::from(value(i))).sum::<i32>() + HALF;
        (sum >> PRECISION).clamp(0, 255) as u8
    }
}

/// Source of pixel `target` when `source_size` pixels become `target_size`.
pub fn pil_taps(target: usize, source_size: usize, target_size: usize) -> PilTaps {
    let scale = source_size as f64 / target_size as f64;
    let support = scale.max(1.0);
    let center = (target as f64 + 0.5) * scale;
    // Truncated as in C; negative values count as 0.
    let first = (center - support + 0.5) as usize;
    let end = ((center + support + 0.5) as usize).min(source_size);
    let triangle = |i: usize| (1.0 - ((i as f64 - center + 0.5) / support).abs()).max(0.0);
    let shares: Vec<f64> = (first..end).map(triangle).collect();
    let total: f64 = shares.iter().sum();
    let fixed = |share: &f64| (0.5 + share / total * f64::from(1u32 << PRECISION)) as i32;
    PilTaps { first, weights: shares.iter().map(fixed).collect() }
}

#[cfg(test)]
mod tests {
    use super::pil_taps;

    const ONE: i32 = 1 << 22;

    #[test]
    fn pil_taps_are_inside_and_sum_to_one() {
        for source in 1..40 {
            for target in 1..60 {
                for x in 0..target {
                    let taps = pil_taps(x, source, target);
                    assert!(!taps.weights.is_empty());
                    assert!(taps.first + taps.weights.len() <= source);
                    let sum: i32 = taps.weights.iter().sum();
                    assert!((sum - ONE).abs() <= taps.weights.len() as i32);
                    assert_eq!(taps.sum(|_| 255), 255);
                }
            }
        }
    }
}
