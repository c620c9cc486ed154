//! Test and benchmark cases of `layer_norm`.

use super::LayerNorm;
use crate::Role;
use crate::case::{OpCase, normal, uniform};

/// No positions, one value, prime sizes, channel counts near the warp size, more positions than a
/// chunk, widths above one tile of the sums, and a large mean.
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
    use crate::case::hand::{refusal, tensor};

    #[test]
    fn layer_norm_without_channels_is_rejected() {
        let empty = [tensor(&[2, 0], []), tensor(&[0], []), tensor(&[0], [])];
        assert!(refusal(&LayerNorm { eps: 0.0 }, &empty).contains("[.., C] with C > 0"));
    }
}
