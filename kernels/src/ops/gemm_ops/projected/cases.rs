//! Test and benchmark cases of `projected`. The op has no gradient.

use super::super::conv2d::SCALED_FLOOR;
use super::{Projected, ProjectedInputs};
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No images, one position, channels that are not a multiple of a k-block, filters that are not a
/// multiple of a tile or of 8, odd maps with a stride, more positions than the tallest tile,
/// without the ReLU, and with signs.
pub fn cases() -> Vec<OpCase> {
    let op = |stride| Projected { stride, relu: true, signs: false };
    let rows = [
        (op(1), [0, 5, 4], [8, 8, 8]),
        (op(1), [1, 1, 1], [8, 16, 3]),
        (op(2), [2, 7, 9], [24, 40, 11]),
        (Projected { relu: false, ..op(2) }, [2, 8, 6], [32, 64, 72]),
        (op(1), [1, 17, 19], [64, 64, 256]),
        (Projected { signs: true, ..op(2) }, [2, 8, 8], [64, 128, 192]),
        (Projected { signs: true, ..op(1) }, [1, 4, 4], [40, 8, 64]),
    ];
    rows.into_iter().map(|(op, map, channels)| case(op, map, channels)).collect()
}

/// `map` is [images, height, width] of the projection's input; `c` and `d` are the input channels
/// of the convolution and of the projection, and `k` is the number of filters.
fn case(op: Projected, map: [usize; 3], [c, d, k]: [usize; 3]) -> OpCase {
    let [images, height, width] = map;
    let out = [height, width].map(|extent| (extent - 1) / op.stride + 1);
    let filters = |channels: usize, seed: u32| {
        let scale = 1.0 / (channels as f32).sqrt();
        normal(Role::Weight, &[k, 1, 1, channels], seed, scale)
    };
    let factors = |seed| uniform(Role::Master, &[k], seed, 0.5, 2.0);
    let summands = |seed| normal(Role::Master, &[k], seed, 1.0);
    let inputs = ProjectedInputs {
        x: normal(Role::Activation, &[images, out[0], out[1], c], 1, 1.0),
        w: filters(c, 2),
        scale: factors(3),
        bias: summands(4),
        from: normal(Role::Activation, &[images, height, width, d], 5, 1.0),
        w_from: filters(d, 6),
        scale_from: factors(7),
        bias_from: summands(8),
    };
    let label = format!("{images} of {height}x{width}, {c} and {d} to {k}, {op:?}");
    OpCase::new(label, op, inputs.into()).device_floor(SCALED_FLOOR)
}
