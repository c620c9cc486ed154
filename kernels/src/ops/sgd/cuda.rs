//! CUDA launches of `sgd`: many parameters each.

use device::{Buffer, Launch, LaunchArgs};

use super::{Sgd, SgdGroup};
use crate::update::{CAPACITY, Chunk, Parameter, chunks, column};

pub(super) fn launches(op: &Sgd, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let masters = op.groups.iter().map(|group| group.master);
    let chunks = chunks(args, masters, op.stats);
    chunks.iter().flat_map(|chunk| launch(op, args.inputs[op.groups.len()], chunk)).collect()
}

fn launch(op: &Sgd, control: Buffer<'_>, chunk: &Chunk<'_>) -> Vec<Launch> {
    let groups = &op.groups[chunk.first..][..chunk.parameters.len()];
    let of = |value: fn(&SgdGroup) -> f32| column::<f32, CAPACITY>(groups.iter().map(value), 0.0);
    let structure = chunk
        .pointers()
        .field(chunk.lens())
        .field(of(|group| group.weight_decay))
        .field(of(|group| group.lr_factor))
        .field(chunk.column(0, |p: &Parameter<'_>| i32::from(p.is_half())))
        .field(chunk.first_block)
        .field(op.momentum)
        .field(i32::from(op.nesterov));
    let name = if op.stats { "sgd_sums" } else { "sgd" };
    let launch = Launch::new(name, [chunk.blocks, 1, 1]).arg(control.read()).arg(structure.arg());
    chunk.with_stats(launch, "sgd_stats")
}
