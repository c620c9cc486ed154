//! Test and benchmark cases of `keypoint_peaks`.

use super::KeypointPeaks;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, normal};
use crate::cpu::HostTensor;

/// No box, no keypoint, a map of one value, prime sizes, boxes smaller and larger than their maps,
/// the largest map, and person detections.
pub fn cases() -> Vec<OpCase> {
    let rows = [
        (0, 17, 56, 0, 20.0),
        (3, 0, 56, 3, 20.0),
        (1, 1, 1, 1, 5.0),
        (5, 3, 7, 4, 0.5),
        (7, 2, 28, 9, 90.0),
        (2, 3, 64, 2, 130.0),
        (3, 17, 56, 2, 70.0),
    ];
    rows.iter()
        .map(|&(m, per_box, side, count, max_side)| {
            let inputs = vec![
                bumps(normal(Role::Activation, &[m * per_box, side * side], 1, 0.05), side),
                boxes(&[m, 4], 2, 300.0, max_side),
                constant(&[1], count),
            ];
            let label = format!("M {m}, K {per_box}, S {side}, sides to {max_side}");
            OpCase::new(label, KeypointPeaks, inputs)
        })
        .collect()
}

/// Adds a bump to each map, so that the maximum is clearly at one pixel.
fn bumps(mut maps: HostTensor, side: usize) -> HostTensor {
    for (row, map) in maps.as_f32_mut().chunks_mut(side * side).enumerate() {
        let at = [(5 * row + 3) % side, (11 * row + 1) % side];
        for (i, value) in map.iter_mut().enumerate() {
            let far = [i % side, i / side].into_iter().zip(at).map(|(a, b)| a.abs_diff(b).pow(2));
            *value += 8.0 * (-0.31 * far.sum::<usize>() as f32).exp();
        }
    }
    maps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{ints, refusal, run, tensor};

    fn peaks(map: &[f32], b: [f32; 4]) -> Vec<f32> {
        let inputs = [tensor(&[1, map.len()], map), tensor(&[1, 4], b), ints(&[1])];
        run(&KeypointPeaks, &inputs).remove(0).as_f32().to_vec()
    }

    /// The first of equal values is the peak; an all-NaN map peaks at the first pixel.
    #[test]
    fn peak_tie_goes_to_first_and_nan_to_pixel_0() {
        let b = [0.0, 0.0, 3.0, 3.0];
        assert_eq!(peaks(&[1.0; 9], b)[..3], [0.5 / 3.0, 0.5 / 3.0, 1.0]);
        assert_eq!(peaks(&[f32::NAN; 9], b)[..2], [0.5 / 3.0, 0.5 / 3.0]);
        assert_eq!(peaks(&[1.0; 9], [2.0, 2.0, 2.0, 2.0])[..2], [0.5, 0.5]);
    }

    #[test]
    fn keypoint_peaks_of_non_square_map_is_rejected() {
        let inputs = |maps: [usize; 2]| {
            let logits = vec![0.0; maps[0] * maps[1]];
            [tensor(&maps, logits), tensor(&[2, 4], [0.0; 8]), ints(&[1])]
        };
        run(&KeypointPeaks, &inputs([6, 9]));
        for maps in [[6, 8], [5, 9], [6, 65 * 65]] {
            refusal(&KeypointPeaks, &inputs(maps));
        }
    }
}
