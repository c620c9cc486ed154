//! Test and benchmark cases of `gather_patches`.

use super::GatherPatches;
use crate::Role;
use crate::case::{OpCase, integers, normal};

/// No anchors, one cell, prime sizes, heights near the size of a band (8 rows), the sampled anchors
/// of two images over five levels, and more anchors and channels than a block processes at once;
/// patches with a reach of one and of two.
pub fn cases() -> Vec<OpCase> {
    vec![
        case((3, 1), 2, &[[7, 5]], 3, 0),
        case((1, 1), 1, &[[1, 1]], 1, 1),
        case((3, 1), 2, &[[7, 11], [5, 3]], 5, 13),
        case((2, 1), 3, &[[8, 9], [9, 8], [17, 2]], 7, 64),
        case((3, 1), 2, &[[9, 17], [5, 9]], 136, 300),
        case((3, 1), 2, &[[32, 40], [16, 20], [8, 10], [4, 5], [2, 3]], 48, 256),
        case((1, 2), 1, &[[1, 1]], 1, 1),
        case((3, 2), 2, &[[7, 11], [5, 3]], 5, 13),
        case((2, 2), 3, &[[8, 9], [9, 8], [17, 2]], 7, 64),
        case((3, 2), 2, &[[9, 17], [5, 9]], 136, 300),
        case((3, 2), 2, &[[16, 20], [8, 10], [4, 5], [2, 3]], 48, 64),
    ]
}

/// `a` is the number of anchors per cell, `b` the number of patches per image.
fn case(
    (a, reach): (usize, usize),
    images: usize,
    sizes: &[[usize; 2]],
    channels: usize,
    b: usize,
) -> OpCase {
    let levels = sizes.len();
    let mut inputs: Vec<_> = (0..levels)
        .map(|l| {
            let shape = [images, sizes[l][0], sizes[l][1], channels];
            normal(Role::Activation, &shape, l as u32, 1.0)
        })
        .collect();
    let anchors = sizes.iter().map(|[h, w]| h * w * a).sum::<usize>();
    inputs.push(integers(&[images, b], 9, -1, anchors as i32));
    let rings = if reach > 1 { format!(", {reach} rings") } else { String::new() };
    let label = format!("{images}x{b} anchors on {sizes:?}x{channels}{rings}");
    let grads: Vec<usize> = (0..levels).collect();
    OpCase::new(label, GatherPatches { anchors_per_cell: a, reach }, inputs).grad(&grads)
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    /// Levels 2x3 and 1x2 with 2 anchors per cell: anchor 3 is at cell (0, 1) of the first level,
    /// anchor 14 at cell (0, 1) of the second level.
    #[test]
    fn gathered_patches_match_hand_computed_values() {
        let inputs = [
            tensor(&[1, 2, 3, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]),
            tensor(&[1, 1, 2, 1], [7.0, 8.0]),
            index(&[1, 3], [3, -1, 14]),
        ];
        let patches = run(&GatherPatches { anchors_per_cell: 2, reach: 1 }, &inputs);
        let expected = [
            [0.0, 0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0],
            [0.0; 9],
            [0.0, 0.0, 0.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0],
        ];
        assert_eq!(patches[0].as_f32(), expected.concat());
        let wide = run(&GatherPatches { anchors_per_cell: 2, reach: 2 }, &inputs);
        let of_last = &wide[0].as_f32()[50..];
        let expected = [[0.0; 10], [0.0, 7.0, 8.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]].concat();
        assert_eq!(of_last[..20], expected);
    }
}
