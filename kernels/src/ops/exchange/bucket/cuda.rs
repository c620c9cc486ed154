//! CUDA launches of `fill_bucket` and `empty_bucket`: many gradients each.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg, Touch};

use super::FillBucket;

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
        let (mut blocks, mut total) = (0, 0);
        let (mut len, mut first) = ([0u64; CAPACITY], [0u64; CAPACITY]);
        let mut first_block = [0i32; CAPACITY];
        for (i, gradient) in some.iter().enumerate() {
            (len[i], first[i]) = (gradient.len() as u64, total as u64);
            first_block[i] = blocks as i32;
            blocks += gradient.len().div_ceil(BLOCK_ELEMENTS);
            total += gradient.len();
        }
        first_block[some.len()..].fill(blocks as i32);
        let pointers: Vec<Arg> = some.iter().map(of).collect();
        let gradients = StructArg::new()
            .pointers(&pointers, CAPACITY)
            .field(len)
            .field(first)
            .field(first_block)
            .arg();
        let bytes = total * bucket.dtype().size_bytes();
        let bucket = Arg::Buffer(Touch { ptr: from, bytes, access });
        from += bytes as u64;
        Part { blocks, gradients, bucket }
    })
}
