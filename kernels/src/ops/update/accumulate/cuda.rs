//! CUDA launches of `accumulate` and `add_accumulated`: many parameters each.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use crate::many_tensors::{column, first_blocks};

/// Parameters of a launch: their struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

/// A gradient, the sum so far, and where both together go.
type Triple<'a> = (Buffer<'a>, Buffer<'a>, Buffer<'a>);

pub(super) fn accumulate(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let n = args.inputs.len();
    let held = args.updates[n];
    let triples: Vec<_> =
        args.inputs.iter().zip(&args.updates).map(|(grad, sum)| (*grad, *sum, *sum)).collect();
    with_count(held, &triples, |sum| sum.update(), 1)
}

pub(super) fn add(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (grads, sums) = args.inputs.split_at(args.inputs.len() / 2);
    let triples: Vec<_> = grads
        .iter()
        .zip(sums)
        .zip(&args.outputs)
        .map(|((grad, sum), total)| (*grad, *sum, *total))
        .collect();
    with_count(args.updates[0], &triples, |total| total.write(), 0)
}

/// The additions, which read `held`, then the kernel that changes it.
fn with_count(
    held: Buffer<'_>,
    triples: &[Triple<'_>],
    write: fn(&Buffer<'_>) -> Arg,
    adds: i32,
) -> Vec<Launch> {
    let launch = |some: &[Triple<'_>]| {
        let len = || some.iter().map(|t| t.0.len());
        let (first_block, blocks) =
            first_blocks::<CAPACITY>(len().map(|len| len.div_ceil(BLOCK_ELEMENTS)));
        let structure = StructArg::new()
            .pointers(some.iter().map(|t| t.0.read()), CAPACITY)
            .pointers(some.iter().map(|t| t.1.read()), CAPACITY)
            .pointers(some.iter().map(|t| write(&t.2)), CAPACITY)
            .field(column::<_, CAPACITY>(len().map(|len| len as u64)))
            .field(first_block);
        Launch::new("accumulate", [blocks, 1, 1]).arg(held.read()).arg(structure.arg())
    };
    let mut launches: Vec<Launch> = triples.chunks(CAPACITY).map(launch).collect();
    let count = Launch::new("accumulate_count", [1, 1, 1]).block(32);
    launches.push(count.arg(held.update()).arg(adds));
    launches
}
