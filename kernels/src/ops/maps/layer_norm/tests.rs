//! `layer_norm` by hand.

use super::LayerNorm;
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Op, Role, TensorDesc};

/// Values 1 to 4 have a mean of 2.5 and a variance of 1.25; a constant position stays at the shift.
#[test]
fn by_hand() {
    let vector =
        |values: Vec<f32>| HostTensor::f32(TensorDesc::new(Role::Master, &[values.len()]), values);
    let x = vec![1.0, 2.0, 3.0, 4.0, 7.0, 7.0, 7.0, 7.0];
    let x = HostTensor::f32(TensorDesc::new(Role::Activation, &[2, 4]), x);
    let (gamma, beta) = (vector(vec![1.0, 1.0, 2.0, 2.0]), vector(vec![0.0, 1.0, 0.0, 1.0]));
    let y = run(&LayerNorm { eps: 0.0 }, &[x, gamma, beta]).expect("fits");
    let unit = 1.0 / 1.25f32.sqrt();
    let want = [-1.5 * unit, 1.0 - 0.5 * unit, unit, 1.0 + 3.0 * unit];
    for (y, want) in y[0].as_f32().iter().zip(want) {
        assert!((y - want).abs() < 1e-6, "{y}, not {want}");
    }
    assert_eq!(y[1].as_f32()[..2], [2.5, unit]);
    let x = HostTensor::f32(TensorDesc::new(Role::Activation, &[1, 2]), vec![7.0; 2]);
    let inputs = [x, vector(vec![1.0; 2]), vector(vec![5.0, 6.0])];
    let y = run(&LayerNorm { eps: 1e-6 }, &inputs).expect("fits");
    assert_eq!(y[0].as_f32(), [5.0, 6.0]);
}

#[test]
fn no_channels_are_refused() {
    let desc = |shape: &[usize]| TensorDesc::new(Role::Activation, shape);
    let error = LayerNorm { eps: 0.0 }.infer(&[desc(&[2, 0]), desc(&[0]), desc(&[0])], &[]);
    assert!(error.expect_err("refused").to_string().contains("[.., C] with C > 0"));
}
