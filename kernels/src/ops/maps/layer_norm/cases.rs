//! Cases of `layer_norm` for the table of ops.

use super::LayerNorm;
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No positions, one value, primes, a warp of channels and its neighbours, more positions than a
/// chunk, and widths of more than one tile of the sums; a large mean.
pub fn cases() -> Vec<OpCase> {
    let rows: [&[usize]; 8] = [
        &[0, 4, 3],
        &[1, 1],
        &[5, 7, 11],
        &[2, 3, 3, 31],
        &[2, 3, 3, 33],
        &[3, 7, 9, 96],
        &[2, 13, 17, 24],
        &[67, 264],
    ];
    rows.iter()
        .map(|&shape| {
            let channels = shape[shape.len() - 1];
            let mut x = normal(Role::Activation, shape, 1, 1.0);
            x.as_f32_mut().iter_mut().for_each(|x| *x += 3.0);
            let inputs = vec![
                x,
                uniform(Role::Master, &[channels], 2, 0.5, 1.5),
                normal(Role::Master, &[channels], 3, 1.0),
            ];
            let small = shape.iter().product::<usize>() < 700;
            let checked: &[usize] = if small { &[0, 1, 2] } else { &[] };
            OpCase::new(format!("{shape:?}"), LayerNorm { eps: 1e-3 }, inputs)
                .grad(checked)
                .grad_bounds(2e-2, 2e-3)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{assert_near, refusal, run, tensor};

    /// Values 1 to 4 have a mean of 2.5 and a variance of 1.25; a constant position stays at the shift.
    #[test]
    fn by_hand() {
        let vector = |values: Vec<f32>| tensor(&[values.len()], values);
        let x = vec![1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0, 7.0];
        let x = tensor(&[2, 4], x);
        let (gamma, beta) = (vector(vec![1.0, 1.0, 2.0, 2.0]), vector(vec![0.0, 1.0, 0.0, 1.0]));
        let y = run(&LayerNorm { eps: 0.0 }, &[x, gamma, beta]);
        let unit = 1.0 / 1.25f32.sqrt();
        let want = [-1.5 * unit, 1.0 - 0.5 * unit, unit, 1.0 + 3.0 * unit];
        assert_near(&y[0].as_f32()[..4], &want, 1e-6);
        assert_eq!(y[1].as_f32()[..2], [2.5, unit]);
        let x = tensor(&[1, 2], [7.0; 2]);
        let inputs = [x, vector(vec![1.0; 2]), vector(vec![5.0, 6.0])];
        let y = run(&LayerNorm { eps: 1e-6 }, &inputs);
        assert_eq!(y[0].as_f32(), [5.0, 6.0]);
    }

    #[test]
    fn no_channels_are_refused() {
        let empty = [tensor(&[2, 0], []), tensor(&[0], []), tensor(&[0], [])];
        assert!(refusal(&LayerNorm { eps: 0.0 }, &empty).contains("[.., C] with C > 0"));
    }
}
