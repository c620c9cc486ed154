//! Buckets: groups of weight gradients that share one all-reduce.
//!
//! One all-reduce per gradient would incur the latency for each gradient; a single all-reduce of
//! all gradients could start only after the backward pass. So gradients are grouped in the order in
//! which the Program computes them, and a bucket is all-reduced on a separate stream while later
//! gradients are still being computed.

use std::ops::Range;

use kernels::ops::all_reduce::AllReduce;
use kernels::ops::bucket::{EmptyBucket, FillBucket};
use kernels::{Precision, Role, TensorDesc};

use crate::{GraphError, Program, TensorId};

/// Adds nodes that replace each gradient by its all-reduced sum, times `scale` (1 / ranks gives the
/// mean). Returns the sums in the order of `grads`, as [`Role::WeightGradient`]; a tensor that is
/// listed twice is summed once.
///
/// A bucket contains gradients in the order of the nodes that write them, and is complete once it
/// has `bucket_bytes` bytes or more, counted in fp16, the type of buckets on GPUs. So a gradient is
/// never split, and with a size of 0 or 1 each gradient gets its own bucket. Ranks whose Programs
/// have the same nodes have the same buckets, regardless of shapes.
///
/// The added nodes belong to the Program's current part and pass.
///
/// # Errors
/// [`GraphError::Op`] if a gradient is not f32 on GPUs, or `scale` is not finite.
pub fn all_reduce_buckets(
    program: &mut Program,
    grads: &[TensorId],
    scale: f32,
    bucket_bytes: usize,
) -> Result<Vec<TensorId>, GraphError> {
    let ready = by_readiness(program, grads);
    let bytes = |id: &TensorId| {
        TensorDesc::new(Role::Gradient, &program.desc(*id).shape).gpu_bytes(Precision::Fp16)
    };
    let bytes: Vec<usize> = ready.iter().map(bytes).collect();
    let mut sums: Vec<(TensorId, TensorId)> = Vec::with_capacity(ready.len());
    for range in partition(&bytes, bucket_bytes) {
        let members = &ready[range];
        let shapes = members.iter().map(|id| program.desc(*id).shape.clone()).collect();
        let bucket = program.apply1(FillBucket { scale }, members)?;
        let total = program.apply1(AllReduce, [bucket])?;
        let parts = program.add(std::sync::Arc::new(EmptyBucket { shapes }), &[total], &[])?;
        sums.extend(members.iter().copied().zip(parts));
    }
    let sum_of = |grad: &TensorId| sums.iter().find(|(id, _)| id == grad).map(|(_, sum)| *sum);
    // Every gradient is in exactly one bucket, so `filter_map` drops none.
    Ok(grads.iter().filter_map(sum_of).collect())
}

/// The tensors without duplicates, in the order of the nodes that write them; tensors without a
/// writer come first.
fn by_readiness(program: &Program, grads: &[TensorId]) -> Vec<TensorId> {
    let writers = program.writers();
    let mut ready: Vec<TensorId> = Vec::with_capacity(grads.len());
    let mut seen = vec![false; program.tensors().len()];
    for grad in grads {
        if !std::mem::replace(&mut seen[grad.index()], true) {
            ready.push(*grad);
        }
    }
    ready.sort_by_key(|grad| writers[grad.index()]);
    ready
}

/// Divides a list of sizes into consecutive non-empty ranges: a range ends when it has `limit`
/// bytes or more. The remainder at the end is a range if it has at least a quarter of the limit or
/// is the only range; otherwise it joins the previous range, since it is too small to be worth the
/// latency.
fn partition(bytes: &[usize], limit: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::new();
    let (mut start, mut held) = (0, 0usize);
    for (i, bytes) in bytes.iter().enumerate() {
        held = held.saturating_add(*bytes);
        if held >= limit.max(1) {
            ranges.push(start..i + 1);
            (start, held) = (i + 1, 0);
        }
    }
    match ranges.last_mut() {
        Some(last) if held < limit.max(1) / 4 || held == 0 => last.end = bytes.len(),
        _ if start < bytes.len() => ranges.push(start..bytes.len()),
        _ => {}
    }
    ranges
}

#[cfg(test)]
mod tests {
    use super::partition;

    #[test]
    fn bucket_closes_when_full() {
        assert_eq!(partition(&[4, 4, 4, 4, 4], 8), [0..2, 2..4, 4..5]);
        assert_eq!(partition(&[4, 4, 4, 4, 4], 9), [0..3, 3..5]);
        assert_eq!(partition(&[4, 100, 4, 4], 8), [0..2, 2..4], "one is never split");
        assert_eq!(partition(&[4, 4, 8], usize::MAX - 1), vec![0..3]);
        assert_eq!(partition(&[usize::MAX, usize::MAX], usize::MAX), [0..1, 1..2]);
    }

    #[test]
    fn small_remainder_joins_last_bucket() {
        assert_eq!(partition(&[10, 1], 8), vec![0..2]);
        assert_eq!(partition(&[10, 2], 8), [0..1, 1..2], "a quarter is a bucket");
        assert_eq!(partition(&[1], 8), vec![0..1], "there is none to join");
    }

    #[test]
    fn minimum_limit_gives_each_gradient_a_bucket() {
        assert_eq!(partition(&[2, 2, 2], 0), [0..1, 1..2, 2..3]);
        assert_eq!(partition(&[2, 2, 2], 1), [0..1, 1..2, 2..3]);
        assert_eq!(partition(&[0, 0, 2, 0], 0), vec![0..4], "nothing fills no bucket");
    }

    #[test]
    fn empty_list_has_no_bucket() {
        assert!(partition(&[], 8).is_empty());
    }

    /// For any list of sizes, every gradient is in exactly one bucket, in order, and no bucket
    /// reaches the limit before its last gradient.
    #[test]
    fn every_gradient_is_in_one_bucket() {
        for seed in 0..200usize {
            let bytes: Vec<usize> = (0..seed % 40).map(|i| (seed * 31 + i * 17) % 23 * 2).collect();
            let limit = seed * 7 % 90;
            let ranges = partition(&bytes, limit);
            assert!(ranges.iter().cloned().flatten().eq(0..bytes.len()), "{ranges:?}");
            let sum = |range: std::ops::Range<usize>| bytes[range].iter().sum::<usize>();
            for (i, range) in ranges.iter().enumerate() {
                let before_last = sum(range.start..range.end - 1);
                let is_last = i + 1 == ranges.len();
                assert!(before_last < limit.max(1) || is_last, "closed too late");
                let full = sum(range.clone()) >= limit.max(1);
                assert!(full || is_last, "closed too early");
            }
        }
    }
}
