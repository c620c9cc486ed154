//! Probabilities by hand.

use super::MaskProbabilities;
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

#[test]
fn rows_without_a_class_have_none() {
    let logits = vec![2.0f32.ln(), 5.0, 0.0, 1.0];
    let ints = |v: &[i32]| HostTensor::i32(TensorDesc::new(Role::Index, &[v.len()]), v.to_vec());
    let inputs = [
        HostTensor::f32(TensorDesc::new(Role::Activation, &[4, 1, 1]), logits),
        ints(&[1, 0, 2, 1]),
        ints(&[3]),
    ];
    let probs = run(&MaskProbabilities, &inputs).expect("fits");
    for (p, expected) in probs[0].as_f32().iter().zip([2.0 / 3.0, 0.0, 0.5, 0.0]) {
        assert!((p - expected).abs() < 1e-6, "{p} {expected}");
    }
}
