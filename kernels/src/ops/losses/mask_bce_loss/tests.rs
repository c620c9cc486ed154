//! The loss by hand: only positives in use.

use super::MaskBceLoss;
use crate::cpu::HostTensor;
use crate::losses::LossGrad;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn ints(values: &[i32]) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, &[values.len()]), values.to_vec())
}

/// Rows of one pixel: row 0 has logit 0 against a soft target (ln 2), row 1 ln 3 against 1
/// (ln 4/3); row 2 is background, row 3 past the count.
#[test]
fn positives_in_use_by_hand() {
    let logits = vec![0.0, 3.0f32.ln(), f32::NAN, f32::NAN];
    let mut inputs = vec![
        HostTensor::f32(TensorDesc::new(Role::Activation, &[4, 1, 1]), logits),
        ints(&[1, 2, 0, 1]),
        HostTensor::f32(TensorDesc::new(Role::Mask, &[4, 1, 1]), vec![0.25, 1.0, 0.0, 0.0]),
        ints(&[0; 4]),
        ints(&[3]),
        ints(&[1]),
    ];
    let loss = run(&MaskBceLoss { ipg: 1 }, &inputs).expect("fits")[0].as_f32()[0];
    let expected = 0.5 * (2.0f32.ln() + (4.0f32 / 3.0).ln());
    assert!((loss - expected).abs() < 1e-6, "{loss} {expected}");
    inputs.push(HostTensor::f32(TensorDesc::new(Role::Loss, &[1]), vec![2.0]));
    let grad = run(&LossGrad(MaskBceLoss { ipg: 1 }), &inputs).expect("fits");
    for (g, expected) in grad[0].as_f32().iter().zip([0.25, -0.25, 0.0, 0.0]) {
        assert!((g - expected).abs() < 1e-6, "{g} {expected}");
    }
}
