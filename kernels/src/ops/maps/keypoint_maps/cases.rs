//! Cases of `keypoint_maps` for the table of ops.

use super::KeypointMaps;
use crate::Role;
use crate::case::{OpCase, constant, normal};

/// No RoI, one value, a line, primes, none in use, and a RoI of the keypoint head.
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
    use super::super::KeypointMapsGrad;
    use super::*;
    use crate::case::hand::{run, tensor};
    use crate::case::index;
    use crate::cpu::HostTensor;

    /// Two keypoints in a line of two pixels; the second RoI is not in use.
    #[test]
    fn a_line_by_hand() {
        let x = tensor(&[2, 1, 2, 2], [0.0, 8.0, 4.0, 0.0, f32::NAN, f32::NAN, f32::NAN, f32::NAN]);
        let maps = run(&KeypointMaps, &[x, index(&[1], [1])]);
        let first = [0.0, 1.0, 3.0, 4.0];
        let second = [8.0, 6.0, 2.0, 0.0];
        assert_eq!(maps[0].as_f32()[..16], [first, first, second, second].concat());
        assert_eq!(maps[0].as_f32()[16..], [0.0; 16]);
    }

    /// <g, maps(x)> = <grad(g), x>, and a constant stays one.
    #[test]
    fn the_gradient_is_the_transpose() {
        for shape in [[2, 5, 7, 3], [1, 1, 4, 2], [3, 2, 1, 1]] {
            let count = index(&[1], [2]);
            let [m, h, w, k] = shape;
            let x = normal(Role::Activation, &shape, 1, 1.0);
            let g = normal(Role::Gradient, &[m * k, 4 * h * w], 2, 1.0);
            let maps = run(&KeypointMaps, &[x.clone(), count.clone()]);
            let dx = run(&KeypointMapsGrad { shape }, &[g.clone(), count.clone()]);
            let dot = |a: &HostTensor, b: &HostTensor| -> f64 {
                let pairs = a.as_f32().iter().zip(b.as_f32());
                pairs.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            let (a, b) = (dot(&g, &maps[0]), dot(&dx[0], &x));
            assert!((a - b).abs() < 1e-4, "{shape:?}: {a} {b}");
            let flat = tensor(&shape, vec![3.0; m * h * w * k]);
            let maps = run(&KeypointMaps, &[flat, count]);
            assert!(maps[0].as_f32()[..4 * h * w * k].iter().all(|v| *v == 3.0), "{shape:?}");
        }
    }
}
