//! Cases of `keypoint_peaks` for the table of ops.

use super::KeypointPeaks;
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, constant, normal};
use crate::cpu::HostTensor;

/// No box, no keypoint, a map of one value, primes, boxes smaller and larger than their maps, the
/// largest map, and detections of a person.
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

/// Adds a hill to each map, so that one pixel stands out.
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
