//! SplitMix64: the n-th number of a stream is a hash of a key and n. Each image has its own stream,
//! so the numbers do not depend on threads.

use crate::mix::{GOLDEN_GAMMA, finalize, mix, unit};

/// A stream of random numbers.
#[derive(Debug, Clone)]
pub(super) struct Rng {
    state: u64,
}

impl Rng {
    /// The stream of one attempt to draw one image.
    pub(super) fn new(seed: u64, image: u64, attempt: u64) -> Rng {
        // The words are hashed successively, so that neighbouring seeds and images are
        // uncorrelated.
        let state = [image, attempt].into_iter().fold(finalize(seed), |state, word| {
            finalize(state.wrapping_add(GOLDEN_GAMMA) ^ mix(word))
        });
        Rng { state }
    }

    pub(super) fn next(&mut self) -> u64 {
        let next = mix(self.state);
        self.state = self.state.wrapping_add(GOLDEN_GAMMA);
        next
    }

    /// Uniform in [0, 1), with 53 bits.
    pub(super) fn uniform(&mut self) -> f64 {
        unit(self.next())
    }

    /// Uniform in 0..below: the high half of a random word times `below` (for small ranges the bias
    /// is below 2^-32).
    pub(super) fn below(&mut self, below: u32) -> u32 {
        ((u128::from(self.next()) * u128::from(below)) >> 64) as u32
    }

    /// Approximately normal with mean 0 and standard deviation 1: the sum of four 16-bit uniform
    /// numbers (Irwin-Hall), at most 3.5 deviations. Integer sums are bit-identical on every
    /// machine, and faster than a logarithm and a sine.
    pub(super) fn near_normal(&mut self) -> f32 {
        let word = self.next();
        let sum = (0..4).map(|lane| (word >> (16 * lane) & 0xFFFF) as i32).sum::<i32>();
        // The sum of four uniform numbers with 65,536 values has mean 2 * 65,535 and variance 4 *
        // 65,536^2 / 12.
        let deviation = 65_536.0 / 3f32.sqrt();
        (sum - 2 * 65_535) as f32 / deviation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_matches_splitmix64() {
        // First outputs for state 1234567, from the reference implementation.
        let mut rng = Rng { state: 1_234_567 };
        assert_eq!(rng.next(), 6_457_827_717_110_365_317);
        assert_eq!(rng.next(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn near_normal_has_zero_mean_and_unit_variance() {
        let mut rng = Rng::new(1, 2, 3);
        let draws: Vec<f64> = (0..100_000).map(|_| f64::from(rng.near_normal())).collect();
        let mean = draws.iter().sum::<f64>() / draws.len() as f64;
        let variance = draws.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / draws.len() as f64;
        // Limits of four standard errors: 1 / sqrt(1e5) for the mean, sqrt(2 / 1e5) for the
        // variance.
        assert!(mean.abs() < 0.0127, "{mean}");
        assert!((variance - 1.0).abs() < 0.018, "{variance}");
    }

    #[test]
    fn rng_streams_differ() {
        let first = |seed, image, attempt| Rng::new(seed, image, attempt).next();
        let all = [first(0, 0, 0), first(0, 0, 1), first(0, 1, 0), first(1, 0, 0)];
        for (i, a) in all.iter().enumerate() {
            assert!(!all[i + 1..].contains(a));
        }
    }
}
