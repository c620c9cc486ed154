//! CUDA launches of `upsample_add` and its gradient.

use device::{Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg};

use crate::Finish;

/// The kernel's `Sizes`, and whether channels come in vectors of 8.
fn sizes(big: &Buffer<'_>, small: &Buffer<'_>) -> (Arg, bool) {
    let extents = [big.dim(1), big.dim(2), small.dim(1), small.dim(2), big.dim(3)];
    let extents = extents.map(|e| i32::try_from(e).expect("an extent that fits an int"));
    (StructArg::new().field(extents).arg(), big.dim(3).is_multiple_of(8))
}

/// A block row for each row of `map`.
fn grid(map: &Buffer<'_>, wide: bool) -> [usize; 3] {
    let vectors = map.dim(2) * map.dim(3) / if wide { 8 } else { 1 };
    [map.dim(0) * map.dim(1), vectors.div_ceil(BLOCK as usize), 1]
}

pub(super) fn forward(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (lateral, top, y) = (args.inputs[0], args.inputs[1], args.outputs[0]);
    let (sizes, wide) = sizes(&lateral, &top);
    let kernel = if wide { "upsample_add_f16x8" } else { "upsample_add_f16" };
    vec![
        Launch::new(kernel, grid(&y, wide))
            .arg(lateral.read())
            .arg(top.read())
            .arg(y.write())
            .arg(sizes),
    ]
}

pub(super) fn backward(finish: Finish, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, dtop) = (args.inputs[0], args.outputs[0]);
    let (sizes, wide) = sizes(&g, &dtop);
    let kernel = if wide { "upsample_grad_f16x8" } else { "upsample_grad_f16" };
    let other = finish.split(&args.inputs).1.other;
    vec![
        Launch::new(kernel, grid(&dtop, wide))
            .arg(g.read())
            .arg(other.map_or(Arg::Null, |other| other.read()))
            .arg(dtop.write())
            .arg(sizes),
    ]
}
