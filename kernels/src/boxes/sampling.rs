//! Sampling of positives and negatives: the candidates with the smallest keys.

/// Maximum number of positives among `batch` samples: `batch * fraction`, rounded down.
pub fn max_positives(batch: usize, fraction: f32) -> usize {
    (batch as f32 * fraction) as usize
}

/// Samples up to `batch` elements of `labels`: at most [`max_positives`] positives (label 1 or
/// more), the rest negatives (label 0); within positives and within negatives, the elements with
/// the smallest (key, index) are sampled. Returns the indices of positives and of negatives, each
/// in ascending order.
pub fn sample(
    labels: &[i32],
    batch: usize,
    fraction: f32,
    key: impl Fn(usize) -> u32,
) -> (Vec<usize>, Vec<usize>) {
    let of = |wanted: fn(i32) -> bool| -> Vec<usize> {
        labels.iter().enumerate().filter(|&(_, &l)| wanted(l)).map(|(i, _)| i).collect()
    };
    let positives = smallest(of(|l| l >= 1), max_positives(batch, fraction), &key);
    let room = batch.saturating_sub(positives.len());
    let negatives = smallest(of(|l| l == 0), room, &key);
    (positives, negatives)
}

/// The `count` of `indices` with the smallest (key, index), ascending; all of them, without
/// computing keys, if there are at most `count`.
fn smallest(indices: Vec<usize>, count: usize, key: impl Fn(usize) -> u32) -> Vec<usize> {
    if indices.len() <= count {
        return indices;
    }
    if count == 0 {
        return Vec::new();
    }
    let mut keyed: Vec<(u32, usize)> = indices.into_iter().map(|i| (key(i), i)).collect();
    keyed.select_nth_unstable(count - 1);
    keyed.truncate(count);
    let mut chosen: Vec<usize> = keyed.into_iter().map(|(_, i)| i).collect();
    chosen.sort_unstable();
    chosen
}
