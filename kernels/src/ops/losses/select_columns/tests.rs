//! Selection by hand.

use super::{SelectColumns, SelectColumnsGrad};
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn index(values: [i32; 3]) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, &[3]), values.to_vec())
}

#[test]
fn selects_and_puts_back() {
    let values: Vec<f32> = (0..12).map(|v| v as f32).collect();
    let x = HostTensor::f32(TensorDesc::new(Role::Activation, &[3, 4]), values);
    let plain = SelectColumns { width: 2, modulo: false };
    let y = run(&plain, &[x.clone(), index([1, -1, 0])]).expect("fits");
    assert_eq!(y[0].as_f32(), [2.0, 3.0, 0.0, 0.0, 8.0, 9.0]);
    let modulo = SelectColumns { width: 2, modulo: true };
    let y = run(&modulo, &[x, index([7, -1, 4])]).expect("fits");
    assert_eq!(y[0].as_f32(), [2.0, 3.0, 0.0, 0.0, 8.0, 9.0]);
    let grad = SelectColumnsGrad { width: 2, modulo: true, columns: 4 };
    let dx = run(&grad, &[y[0].clone(), index([7, -1, 4])]).expect("fits");
    assert_eq!(dx[0].as_f32(), [0.0, 0.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 8.0, 9.0, 0.0, 0.0]);
}

#[test]
fn a_width_that_does_not_divide_is_refused() {
    let x = HostTensor::f32(TensorDesc::new(Role::Activation, &[3, 4]), vec![0.0; 12]);
    let fault = run(&SelectColumns { width: 3, modulo: false }, &[x, index([0; 3])]);
    let message = fault.expect_err("3 does not divide 4").to_string();
    assert!(message.contains("`width` should be a divisor of 4"), "{message}");
}
