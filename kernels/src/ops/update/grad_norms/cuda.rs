//! CUDA launches of `grad_norms`: sums of squares by block, then the norms.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};

use crate::many_tensors::{column, first_blocks};
use crate::{DType, TensorDesc};

/// Tensors of a launch: their struct must stay under 4 KiB.
const CAPACITY: usize = 128;

/// Elements a block sums.
const BLOCK_ELEMENTS: usize = 8192;

/// Threads of the block that makes norms of the sums.
const ROOT_THREADS: u32 = 1024;

/// Blocks of a tensor. One without elements has one too, so that its sum is written.
fn blocks(grad: &TensorDesc) -> usize {
    grad.len().div_ceil(BLOCK_ELEMENTS).max(1)
}

/// The scratch memory: an f64 for each block, then the place of each tensor's first among them.
struct Scratch {
    partials: usize,
    tensors: usize,
}

impl Scratch {
    fn of<'a>(grads: impl Iterator<Item = &'a TensorDesc> + Clone) -> Self {
        Self { tensors: grads.clone().count(), partials: grads.map(blocks).sum() }
    }

    fn partial_bytes(&self) -> usize {
        self.partials * size_of::<f64>()
    }

    fn first_offset(&self) -> usize {
        self.partial_bytes().next_multiple_of(256)
    }

    fn first_bytes(&self) -> usize {
        self.tensors * size_of::<i32>()
    }
}

pub(super) fn workspace_bytes(grads: &[TensorDesc]) -> usize {
    let scratch = Scratch::of(grads.iter());
    scratch.first_offset() + scratch.first_bytes()
}

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let scratch = Scratch::of(args.inputs.iter().map(|grad| grad.desc));
    let partials = |access| args.workspace.piece(0, scratch.partial_bytes(), access);
    let firsts =
        |access| args.workspace.piece(scratch.first_offset(), scratch.first_bytes(), access);
    let mut launches = vec![];
    let mut blocks_before = 0;
    for (i, grads) in args.inputs.chunks(CAPACITY).enumerate() {
        let (structure, blocks) = gradients(grads, i * CAPACITY, blocks_before);
        let launch = Launch::new("grad_norms_squares", [blocks, 1, 1])
            .arg(structure)
            .arg(partials(Access::Write))
            .arg(firsts(Access::Write));
        launches.push(launch);
        blocks_before += blocks;
    }
    let roots = Launch::new("grad_norms_roots", [1, 1, 1])
        .block(ROOT_THREADS)
        .arg(partials(Access::Read))
        .arg(firsts(Access::Read))
        .int(scratch.partials)
        .int(scratch.tensors)
        .arg(args.outputs[0].write())
        .arg(args.outputs[1].write());
    launches.push(roots);
    launches
}

/// The struct of a launch, and its blocks.
fn gradients(grads: &[Buffer<'_>], first_tensor: usize, blocks_before: usize) -> (Arg, usize) {
    for grad in grads {
        assert_eq!(grad.dtype(), DType::F32, "{:?}", grad.desc);
    }
    let (first_block, total) = first_blocks::<CAPACITY>(grads.iter().map(|grad| blocks(grad.desc)));
    let structure = StructArg::new()
        .pointers(grads.iter().map(Buffer::read), CAPACITY)
        .field(column::<_, CAPACITY>(grads.iter().map(|grad| grad.len() as u64)))
        .field(first_block)
        .field(first_tensor as i32)
        .field(blocks_before as i32);
    (structure.arg(), total)
}
