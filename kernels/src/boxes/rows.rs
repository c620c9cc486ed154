//! The used rows of tensors that have a capacity and a count.

/// `count` as a length, clamped to `0..=capacity`: a wrong count must not cause an access past the
/// end of a tensor.
pub(crate) fn at_most(count: i32, capacity: usize) -> usize {
    usize::try_from(count).unwrap_or(0).min(capacity)
}

/// The used rows of image `n`: the first `counts[n]` of its rows in `rows` (`[N, G]`).
pub(crate) fn gt_rows<'a, T>(rows: &'a [T], counts: &[i32], n: usize) -> &'a [T] {
    let capacity = rows.len() / counts.len();
    &rows[n * capacity..][..at_most(counts[n], capacity)]
}
