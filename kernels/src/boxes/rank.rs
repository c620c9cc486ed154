//! The order that every top-k and NMS uses: score descending, then index ascending.

/// A key whose ascending order is (score descending, index ascending). 0 and -0 rank equally, and
/// NaN ranks like minus infinity.
pub fn rank_key(score: f32, index: u32) -> u64 {
    let score = if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 };
    let bits = score.to_bits();
    // Flips all bits of negative numbers and the sign bit of all others, so that the unsigned order
    // equals the float order.
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(!ascending) << 32 | u64::from(index)
}

/// The index in a key of [`rank_key`].
pub(crate) fn rank_index(key: u64) -> usize {
    (key & u64::from(u32::MAX)) as usize
}

/// Indices of `scores` by (score descending, index ascending).
pub fn sort_by_score(scores: &[f32]) -> Vec<usize> {
    top_k(scores, scores.len())
}

/// The first `k` of [`sort_by_score`] (all, if there are fewer): selects, then sorts the selection.
pub fn top_k(scores: &[f32], k: usize) -> Vec<usize> {
    let mut keys: Vec<u64> =
        scores.iter().enumerate().map(|(i, &score)| rank_key(score, i as u32)).collect();
    if k == 0 {
        return Vec::new();
    }
    if k < keys.len() {
        keys.select_nth_unstable(k - 1);
        keys.truncate(k);
    }
    keys.sort_unstable();
    keys.into_iter().map(rank_index).collect()
}
