//! CUDA launches of `fill_bucket` and `empty_bucket`: many gradients each.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use super::FillBucket;
use crate::many_tensors::{column, first_blocks};

/// Gradients of a launch: their struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

pub(super) fn fill(op: &FillBucket, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let bucket = args.outputs[0];
    let launch = |part: Part| {
        Launch::new("fill_bucket", [part.blocks, 1, 1])
            .arg(part.gradients)
            .arg(part.bucket)
            .arg(op.scale)
    };
    parts(&args.inputs, Buffer::read, bucket, Access::Write).map(launch).collect()
}

pub(super) fn empty(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let bucket = args.inputs[0];
    let launch = |part: Part| {
        Launch::new("empty_bucket", [part.blocks, 1, 1]).arg(part.gradients).arg(part.bucket)
    };
    parts(&args.outputs, Buffer::write, bucket, Access::Read).map(launch).collect()
}

/// The gradients of one launch, and their part of the bucket.
struct Part {
    blocks: usize,
    gradients: Arg,
    bucket: Arg,
}

fn parts<'a>(
    gradients: &'a [Buffer<'a>],
    of: fn(&Buffer<'a>) -> Arg,
    bucket: Buffer<'a>,
    access: Access,
) -> impl Iterator<Item = Part> {
    assert!(bucket.desc.role.follows_precision(), "{:?}", bucket.desc);
    let mut from = bucket.ptr;
    gradients.chunks(CAPACITY).map(move |some| {
        let len = || some.iter().map(|gradient| gradient.len());
        let (first_block, blocks) =
            first_blocks::<CAPACITY>(len().map(|len| len.div_ceil(BLOCK_ELEMENTS)));
        let mut total = 0;
        let first = len().map(|len| {
            total += len;
            (total - len) as u64
        });
        let first = column::<_, CAPACITY>(first);
        let gradients = StructArg::new()
            .pointers(some.iter().map(of), CAPACITY)
            .field(column::<_, CAPACITY>(len().map(|len| len as u64)))
            .field(first)
            .field(first_block)
            .arg();
        let bytes = total * bucket.dtype().size_bytes();
        let bucket = Arg::Buffer(Touch { ptr: from, bytes, access });
        from += bytes as u64;
        Part { blocks, gradients, bucket }
    })
}
