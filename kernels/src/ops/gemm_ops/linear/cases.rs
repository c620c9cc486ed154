//! Test and benchmark cases of `linear`.

use super::Linear;
use crate::case::{OpCase, integers, normal};
use crate::ops::gemm_op::GradInput;
use crate::ops::layer::Layer;
use crate::ops::relu_mask::one_sided;
use crate::{GradEpilogue, Role};

/// No rows, one row, prime sizes, sizes near the tile size, a reduction in several blocks, RoI
/// features with convolution weights, the first head layer of the small model, and predictors whose
/// columns CUDA pads.
pub fn cases() -> Vec<OpCase> {
    let rows: [(&[usize], &[usize]); 10] = [
        (&[0, 3], &[2, 3]),
        (&[1, 1], &[1, 1]),
        (&[5, 7], &[11, 7]),
        (&[6, 13], &[16, 13]),
        (&[7, 257], &[17, 257]),
        (&[5, 3, 3, 4], &[7, 36]),
        (&[11, 36], &[13, 3, 3, 4]),
        (&[128, 7, 7, 48], &[128, 7, 7, 48]),
        (&[70, 40], &[3, 40]),
        (&[131, 64], &[81, 64]),
    ];
    rows.iter()
        .flat_map(|row| [(false, false), (true, true)].map(|flags| (row, flags)))
        .map(|(&(x, w), (relu, counted))| {
            let scale = 1.0 / (w[1..].iter().product::<usize>() as f32).sqrt();
            let mut inputs = vec![
                normal(Role::Activation, x, 1, 1.0),
                normal(Role::Weight, w, 2, scale),
                one_sided(w[0]),
            ];
            if counted {
                inputs.push(integers(&[1], 4, 0, x[0] as i32 + 2));
            }
            let label = format!("{x:?} x {w:?}, relu {relu}, counted {counted}");
            OpCase::new(label, Linear { relu, counted }, inputs)
                .grad(&[0, 1, 2])
                .grad_bounds(1e-2, 2e-3)
        })
        .chain(epilogue_cases())
        .collect()
}

/// The gradient of x with an epilogue: small, unaligned, with feature maps as x, and with split-k.
fn epilogue_cases() -> Vec<OpCase> {
    let rows: [(&[usize], usize); 4] =
        [(&[0, 3], 2), (&[5, 7], 11), (&[11, 3, 3, 8], 16), (&[40, 48], 520)];
    let case = |&(x, k): &(&[usize], usize)| {
        let epilogue = GradEpilogue { other: true, mask: true };
        let layer = Layer::Linear;
        let op = GradInput { layer, x: x.to_vec(), scale: false, counted: true, epilogue };
        let row: usize = x[1..].iter().product();
        let inputs = vec![
            normal(Role::Gradient, &[x[0], k], 1, 1.0),
            normal(Role::Weight, &[k, row], 2, 1.0 / (k as f32).sqrt()),
            integers(&[1], 3, 0, x[0] as i32 + 2),
            normal(Role::Gradient, x, 4, 1.0),
            normal(Role::Gradient, x, 5, 1.0),
        ];
        OpCase::new(format!("{x:?} from {k}, with an epilogue"), op, inputs)
    };
    rows.iter().map(case).collect()
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use super::*;
    use crate::case::constant;
    use crate::case::hand::{refusal, run, tensor};
    use crate::ops::gemm_op::GradWeight;

    /// Rows past the count hold NaN and do not affect any output.
    #[test]
    fn linear_does_not_read_rows_past_count() {
        let nan = f32::NAN;
        let x = tensor(&[3, 2], [1.0, 2.0, nan, nan, nan, nan]);
        let g = tensor(&[3, 1], [3.0, nan, nan]);
        let w = tensor(&[1, 2], [4.0, 5.0]);
        let linear = Linear { relu: false, counted: true };
        let y = run(&linear, &[x.clone(), w.clone(), tensor(&[1], [0.5]), constant(&[1], 1)]);
        assert_eq!(y[0].as_f32()[..1], [14.5]);
        let (layer, scale, epilogue) = (Layer::Linear, false, GradEpilogue::default());
        let op = GradInput { layer, x: vec![3, 2], scale, counted: true, epilogue };
        let dx = run(&op, &[g.clone(), w, constant(&[1], 1)]);
        assert_eq!(dx[0].as_f32()[..2], [12.0, 15.0]);
        let op = GradWeight { layer, w: vec![1, 2], scale, counted: true };
        let dw = run(&op, &[x, g, constant(&[1], 1)]);
        assert_eq!(dw[0].as_f32(), [3.0, 6.0]);
    }

    #[test]
    fn linear_without_rows_has_zero_gradients() {
        let (x, g) = (tensor(&[2, 2], [f32::NAN; 4]), tensor(&[2, 1], [f32::NAN; 2]));
        let (layer, w) = (Layer::Linear, vec![1, 2]);
        let op = GradWeight { layer, w, scale: false, counted: true };
        for value in [0, -3] {
            let dw = run(&op, &[x.clone(), g.clone(), constant(&[1], value)]);
            assert_eq!(dw[0].as_f32(), [0.0, 0.0]);
        }
    }

    #[test]
    fn linear_with_wrong_row_length_is_rejected() {
        let inputs = [&[2, 7, 7, 4][..], &[3, 195], &[3]]
            .map(|shape| tensor(shape, vec![0.0; shape.iter().product()]));
        let error = refusal(&Linear { relu: false, counted: false }, &inputs);
        assert!(error.contains("196 elements per row") && error.contains("[3, 195]"), "{error}");
    }
}
