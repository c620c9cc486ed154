//! CUDA launches of `scale_weights`: many tensors each.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

/// Tensors of a launch: their struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (weights, scales) = args.inputs.split_at(args.outputs.len());
    let mut all = weights.iter().chain(&args.outputs);
    assert!(all.all(|w| w.desc.role.follows_precision()), "weights that no kernel reads");
    let parts = weights.chunks(CAPACITY).zip(scales.chunks(CAPACITY));
    parts.zip(args.outputs.chunks(CAPACITY)).map(|((w, s), out)| launch(w, s, out)).collect()
}

fn launch(weights: &[Buffer<'_>], scales: &[Buffer<'_>], scaled: &[Buffer<'_>]) -> Launch {
    let mut blocks = 0;
    let (mut len, mut filter) = ([0i32; CAPACITY], [0i32; CAPACITY]);
    let mut first_block = [0i32; CAPACITY];
    for (i, w) in weights.iter().enumerate() {
        len[i] = i32::try_from(w.len()).expect("weights that an int counts");
        filter[i] = len[i] / (w.dim(0) as i32).max(1);
        first_block[i] = blocks as i32;
        blocks += w.len().div_ceil(BLOCK_ELEMENTS);
    }
    first_block[weights.len()..].fill(blocks as i32);
    let pointers = |of: &[Buffer<'_>], arg: fn(&Buffer<'_>) -> Arg| -> Vec<Arg> {
        of.iter().map(arg).collect()
    };
    let tensors = StructArg::new()
        .pointers(&pointers(weights, |w| w.read()), CAPACITY)
        .pointers(&pointers(scales, |w| w.read()), CAPACITY)
        .pointers(&pointers(scaled, |w| w.write()), CAPACITY)
        .field(len)
        .field(filter)
        .field(first_block)
        .arg();
    Launch::new("scale_weights", [blocks, 1, 1]).arg(tensors)
}
