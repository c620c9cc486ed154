//! Cases of `gelu` for the table of ops.

use super::Gelu;
use crate::Role;
use crate::case::{OpCase, normal};

/// Sizes 0, 1, a vector and its neighbours, primes, and values far out.
pub fn cases() -> Vec<OpCase> {
    let rows: [(&[usize], f32); 6] = [
        (&[0], 1.0),
        (&[1], 1.0),
        (&[5, 7, 11], 1.0),
        (&[2, 3, 3, 8], 4.0),
        (&[15], 20.0),
        (&[2, 16, 17, 64], 1.5),
    ];
    rows.iter()
        .map(|&(shape, scale)| {
            let x = normal(Role::Activation, shape, 1, scale);
            let small = shape.iter().product::<usize>() < 1000;
            let label = format!("{shape:?} of {scale}");
            OpCase::new(label, Gelu, vec![x]).grad(if small { &[0] } else { &[] })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::GeluGrad;
    use super::*;
    use crate::case::floats;
    use crate::case::hand::run;

    /// x, `P(Z <= x)` and the density there: of tables, to eight digits.
    const NORMAL: [(f64, f64, f64); 6] = [
        (0.0, 0.5, 0.398_942_28),
        (0.5, 0.691_462_46, 0.352_065_33),
        (1.0, 0.841_344_75, 0.241_970_72),
        (2.0, 0.977_249_87, 0.053_990_97),
        (3.0, 0.998_650_10, 0.004_431_85),
        (5.0, 0.999_999_71, 0.000_001_49),
    ];

    #[test]
    fn values_are_those_of_the_normal_distribution() {
        let at = NORMAL.iter().flat_map(|&(x, p, d)| [(x, p, d), (-x, 1.0 - p, d)]);
        for (x, probability, density) in at {
            let tensor = |role, value| floats(role, &[1], [value]);
            let of = tensor(Role::Activation, x as f32);
            let y = run(&Gelu, std::slice::from_ref(&of))[0].as_f32()[0];
            assert!((f64::from(y) - x * probability).abs() < 1e-6, "{x}: {y}");
            let dx = run(&GeluGrad, &[tensor(Role::Gradient, 2.0), of])[0].as_f32()[0];
            let slope = probability + x * density;
            assert!((f64::from(dx) - 2.0 * slope).abs() < 2e-6, "{x}: {dx}");
        }
    }

    #[test]
    fn the_ends_are_finite() {
        let ends = vec![-1e30, -100.0, 100.0, 1e18];
        let x = floats(Role::Activation, &[4], ends);
        let y = run(&Gelu, &[x]);
        assert_eq!(y[0].as_f32()[2..], [100.0, 1e18]);
        assert!(y[0].as_f32()[..2].iter().all(|y| y.abs() < 1e-30), "{:?}", y[0].as_f32());
    }
}
