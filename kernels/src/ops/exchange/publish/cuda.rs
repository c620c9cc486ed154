//! CUDA launch of `publish`.

use device::{Buffer, Launch, LaunchArgs, StructArg};

use super::MAX_INPUTS;
use crate::DType;

pub(super) fn launches(args: &LaunchArgs<'_>) -> Vec<Launch> {
    let (ring, step) = (args.updates[0], args.updates[1]);
    let pointers: Vec<_> = args.inputs.iter().map(Buffer::read).collect();
    let mut lens = [0i32; MAX_INPUTS];
    let mut is_int = [0i32; MAX_INPUTS];
    for ((input, len), is_int) in args.inputs.iter().zip(&mut lens).zip(&mut is_int) {
        // The row holds all values, and its width fits an int below.
        *len = input.len() as i32;
        *is_int = i32::from(input.dtype() == DType::I32);
    }
    let values = StructArg::new()
        .pointers(&pointers, MAX_INPUTS)
        .field(lens)
        .field(is_int)
        .field(args.inputs.len() as i32)
        .arg();
    vec![
        Launch::new("publish", [1, 1, 1])
            .arg(values)
            .arg(ring.update())
            .int(ring.dim(0))
            .int(ring.dim(1))
            .arg(step.update()),
    ]
}
