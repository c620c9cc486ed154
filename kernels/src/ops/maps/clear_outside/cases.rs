//! Test and benchmark cases of `clear_outside`.

use super::ClearOutside;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// No anchors, one cell, prime sizes, a patch wider than its map, channels that are and are not a
/// multiple of a vector, and the hidden maps of sampled anchors.
pub fn cases() -> Vec<OpCase> {
    vec![
        case(3, &[[7, 5]], [2, 0, 3, 3]),
        case(1, &[[1, 1]], [1, 1, 1, 1]),
        case(2, &[[1, 2], [1, 1]], [1, 5, 5, 7]),
        case(3, &[[7, 11], [5, 3]], [2, 13, 3, 5]),
        case(3, &[[9, 17], [5, 9]], [2, 31, 3, 264]),
        case(3, &[[32, 40], [16, 20], [8, 10], [4, 5], [2, 3]], [2, 256, 3, 48]),
    ]
}

/// `a` is the number of anchors per cell; `b` anchors per image have patches of `side` x `side`
/// cells.
fn case(a: usize, sizes: &[[usize; 2]], [images, b, side, channels]: [usize; 4]) -> OpCase {
    let anchors = sizes.iter().map(|[h, w]| h * w * a).sum::<usize>();
    let inputs = vec![
        normal(Role::Activation, &[images * b, side, side, channels], 1, 1.0),
        integers(&[images, b], 9, -1, anchors as i32),
    ];
    let label = format!("{images}x{b} patches {side}x{side}x{channels} on {sizes:?}");
    let op = ClearOutside { anchors_per_cell: a, level_sizes: sizes.to_vec() };
    OpCase::new(label, op, inputs).grad(&[0])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDesc;
    use crate::case::hand::run;
    use crate::case::index;
    use crate::cpu::HostTensor;
    use crate::ops::conv2d::Conv2d;
    use crate::ops::gather_patches::GatherPatches;

    fn anchors(values: Vec<i32>) -> HostTensor {
        index(&[1, values.len()], values)
    }

    /// Levels 2x2 and 1x1: anchor 1 is at cell (0, 1) of the first level, anchor 4 at the only cell
    /// of the second level.
    #[test]
    fn patch_cells_outside_map_are_cleared() {
        let x = TensorDesc::new(Role::Activation, &[3, 3, 3, 1]);
        let x = HostTensor::f32(x, (1u8..28).map(f32::from).collect());
        let op = ClearOutside { anchors_per_cell: 1, level_sizes: vec![[2, 2], [1, 1]] };
        let y = run(&op, &[x, anchors(vec![1, -1, 4])]);
        let expected = [
            [0.0, 0.0, 0.0, 4.0, 5.0, 0.0, 7.0, 8.0, 0.0],
            [0.0; 9],
            [0.0, 0.0, 0.0, 0.0, 23.0, 0.0, 0.0, 0.0, 0.0],
        ];
        assert_eq!(y[0].as_f32(), expected.concat());
    }

    /// At every cell of a map, two convolutions of its 5x5 patch equal two convolutions of the
    /// whole map; without the op they differ at the border.
    #[test]
    fn two_patch_convs_match_full_map_convs() {
        let (height, width, channels, filters) = (3, 4, 2, 3);
        let tensor = |role, shape: &[usize], seed| normal(role, shape, seed, 1.0);
        let map = tensor(Role::Activation, &[1, height, width, channels], 1);
        let first = tensor(Role::Weight, &[filters, 3, 3, channels], 2);
        let second = tensor(Role::Weight, &[filters, 3, 3, filters], 3);
        let bias = tensor(Role::Master, &[filters], 4);
        let conv = |pad| Conv2d { relu: true, bias: true, ..Conv2d::new(1, pad) };
        let apply = |pad, x: &HostTensor, w: &HostTensor| {
            run(&conv(pad), &[x.clone(), w.clone(), bias.clone()]).remove(0)
        };
        let dense = apply(1, &apply(1, &map, &first), &second);

        let idx = anchors((0..(height * width) as i32).collect());
        let gather = GatherPatches { anchors_per_cell: 1, reach: 2 };
        let patches = run(&gather, &[map, idx.clone()]).remove(0);
        let hidden = apply(0, &patches, &first);
        let without = apply(0, &hidden, &second);
        let op = ClearOutside { anchors_per_cell: 1, level_sizes: vec![[height, width]] };
        let hidden = run(&op, &[hidden, idx]).remove(0);
        let sparse = apply(0, &hidden, &second);
        let far = |a: &HostTensor| {
            let pairs = a.as_f32().iter().zip(dense.as_f32());
            pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
        };
        assert!(far(&sparse) < 1e-5, "{}", far(&sparse));
        assert!(far(&without) > 0.1, "{}", far(&without));
    }
}
