//! Test and benchmark cases of `gelu`.

use super::Gelu;
use crate::Role;
use crate::case::{OpCase, normal};

/// Sizes 0, 1, near the vector size, and prime numbers, and values of large magnitude.
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

    use super::*;
    use crate::case::floats;
    use crate::case::hand::run;

    #[test]
    fn gelu_is_finite_at_extremes() {
        let ends = vec![-1e30, -100.0, 100.0, 1e18];
        let x = floats(Role::Activation, &[4], ends);
        let y = run(&Gelu, &[x]);
        assert_eq!(y[0].as_f32()[2..], [100.0, 1e18]);
        assert!(y[0].as_f32()[..2].iter().all(|y| y.abs() < 1e-30), "{:?}", y[0].as_f32());
    }
}
