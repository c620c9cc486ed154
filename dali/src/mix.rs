//! Hashes 64-bit words with SplitMix64 (Steele, Lea and Flood 2014).

/// Increment of the counter.
pub(crate) const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Increments the counter, then applies the finalizer. A bijection, so hashes of different words
/// never collide.
pub fn mix(word: u64) -> u64 {
    finalize(word.wrapping_add(GOLDEN_GAMMA))
}

/// The finalizer of SplitMix64, without the increment.
pub(crate) fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number in [0, 1), with 53 bits.
pub(crate) fn unit(word: u64) -> f64 {
    (word >> 11) as f64 / (1u64 << 53) as f64
}
