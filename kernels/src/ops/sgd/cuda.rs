//! CUDA launches of `sgd`: many parameters each.

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use super::{Sgd, SgdGroup};
use crate::DType;

/// Parameters of a launch: their struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements a block updates.
const BLOCK_ELEMENTS: usize = 4096;

/// One parameter's tensors.
struct Parameter<'a> {
    group: SgdGroup,
    grad: Buffer<'a>,
    w: Buffer<'a>,
    m: Buffer<'a>,
    p: Option<Buffer<'a>>,
}

pub(super) fn launches(op: &Sgd, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let n = op.groups.len();
    let mut masters = args.updates[2 * n..].iter().copied();
    let parameters: Vec<_> = (0..n)
        .map(|i| Parameter {
            group: op.groups[i],
            grad: args.inputs[i],
            w: args.updates[i],
            m: args.updates[n + i],
            p: op.groups[i].master.then(|| masters.next()).flatten(),
        })
        .collect();
    parameters.chunks(CAPACITY).map(|some| launch(op, args.inputs[n], some)).collect()
}

fn launch(op: &Sgd, control: Buffer<'_>, parameters: &[Parameter<'_>]) -> Launch {
    let mut blocks = 0;
    let mut first_block = [0i32; CAPACITY];
    for (parameter, first) in parameters.iter().zip(&mut first_block) {
        for wide in [parameter.grad, parameter.m] {
            assert_eq!(wide.dtype(), DType::F32, "{:?}", wide.desc);
        }
        *first = blocks as i32;
        blocks += parameter.grad.len().div_ceil(BLOCK_ELEMENTS);
    }
    first_block[parameters.len()..].fill(blocks as i32);
    let pointers =
        |of: &dyn Fn(&Parameter<'_>) -> Arg| -> Vec<Arg> { parameters.iter().map(of).collect() };
    let structure = StructArg::new()
        .pointers(&pointers(&|p| p.grad.read()), CAPACITY)
        .pointers(&pointers(&|p| p.w.update()), CAPACITY)
        .pointers(&pointers(&|p| p.m.update()), CAPACITY)
        .pointers(&pointers(&|p| p.p.map_or(Arg::Null, |p| p.update())), CAPACITY)
        .field(column(parameters, 0, |p| p.grad.len() as u64))
        .field(column(parameters, 0.0, |p| p.group.weight_decay))
        .field(column(parameters, 0.0, |p| p.group.lr_factor))
        .field(column(parameters, 0, |p| i32::from(p.w.dtype() == DType::F16)))
        .field(first_block)
        .field(op.momentum)
        .field(i32::from(op.nesterov));
    Launch::new("sgd", [blocks, 1, 1]).arg(control.read()).arg(structure.arg())
}

/// An array of the struct: a value for each parameter, `rest` past the last.
fn column<T: Copy>(
    parameters: &[Parameter<'_>],
    rest: T,
    of: impl Fn(&Parameter<'_>) -> T,
) -> [T; CAPACITY] {
    std::array::from_fn(|i| parameters.get(i).map_or(rest, &of))
}
