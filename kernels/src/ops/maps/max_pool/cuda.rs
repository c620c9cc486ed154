//! CUDA launches of `max_pool` and its gradient.

use device::{Arg, BLOCK, Buffer, Launch, LaunchArgs, StructArg};

use super::MaxPool;

/// The kernel's `Pool`, for maps like `x` and outputs like `y`.
fn pool_arg(pool: &MaxPool, x: &Buffer<'_>, y: &Buffer<'_>) -> Arg {
    let extents = [x.dim(1), x.dim(2), y.dim(1), y.dim(2), x.dim(3)];
    StructArg::new().ints(extents).ints([pool.kernel, pool.stride, pool.pad]).arg()
}

/// A block row for each row of `map`.
fn grid(map: &Buffer<'_>, vector: usize) -> [usize; 3] {
    let vectors = map.dim(2) * map.dim(3) / vector;
    [map.dim(0) * map.dim(1), vectors.div_ceil(BLOCK as usize), 1]
}

pub(super) fn forward(pool: &MaxPool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (x, y) = (args.inputs[0], args.outputs[0]);
    let argmax = args.outputs.get(1).map_or(Arg::Null, |argmax| argmax.write());
    let (kernel, vector) =
        if x.dim(3).is_multiple_of(8) { ("max_pool_f16x8", 8) } else { ("max_pool_f16", 1) };
    vec![
        Launch::new(kernel, grid(&y, vector))
            .arg(x.read())
            .arg(y.write())
            .arg(argmax)
            .arg(pool_arg(pool, &x, &y)),
    ]
}

pub(super) fn backward(pool: &MaxPool, args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (g, dx) = (args.inputs[0], args.outputs[0]);
    let (kernel, vector) = if g.dim(3).is_multiple_of(8) {
        ("max_pool_grad_f16x8", 8)
    } else {
        ("max_pool_grad_f16", 1)
    };
    vec![Launch::new(kernel, grid(&dx, vector)).tensors(args).arg(pool_arg(pool, &dx, &g))]
}
