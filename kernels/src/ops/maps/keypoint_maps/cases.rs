//! Test and benchmark cases of `keypoint_maps`.

use super::KeypointMaps;
use crate::Role;
use crate::case::{OpCase, constant, normal};

/// No RoI, one value, a map of one row, prime sizes, no RoI in use, and RoIs of the keypoint head.
pub fn cases() -> Vec<OpCase> {
    let rows: [([usize; 4], i32); 7] = [
        ([0, 4, 4, 3], 0),
        ([1, 1, 1, 1], 1),
        ([2, 1, 5, 3], 2),
        ([5, 7, 3, 11], 4),
        ([3, 4, 4, 2], 0),
        ([2, 13, 11, 5], 7),
        ([3, 28, 28, 17], 2),
    ];
    rows.iter()
        .map(|&(shape, count)| {
            let x = normal(Role::Activation, &shape, 1, 1.0);
            let label = format!("{shape:?}, {count} in use");
            OpCase::new(label, KeypointMaps, vec![x, constant(&[1], count)]).grad(&[0])
        })
        .collect()
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::case::hand::{run, tensor};
    use crate::case::index;

    /// Two keypoints, and maps of one row of two pixels; the second RoI is unused.
    #[test]
    fn keypoint_map_row_matches_hand_computed_values() {
        let x = tensor(&[2, 1, 2, 2], [0.0, 8.0, 4.0, 0.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
        let maps = run(&KeypointMaps, &[x, index(&[1], [1])]);
        let first = [0.0, 1.0, 3.0, 4.0];
        let second = [8.0, 6.0, 2.0, 0.0];
        assert_eq!(maps[0].as_f32()[..16], [first, first, second, second].concat());
        assert_eq!(maps[0].as_f32()[16..], [0.0; 16]);
    }
}
