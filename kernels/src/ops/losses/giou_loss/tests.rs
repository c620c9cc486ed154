//! The loss by hand: decoding and weights around the plain formula.

use super::GiouLoss;
use crate::cpu::HostTensor;
use crate::losses::LossGrad;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn ints(values: &[i32]) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, &[values.len()]), values.to_vec())
}

fn boxes(rows: &[[f32; 4]]) -> HostTensor {
    HostTensor::f32(TensorDesc::new(Role::Box, &[rows.len(), 4]), rows.concat())
}

/// dx = 20/10 moves a unit square by two: a gap of one to its target at 0, which costs 4/3. Three
/// rows are sampled, one is positive.
#[test]
fn a_square_apart_by_hand() {
    let square = [0.0, 0.0, 1.0, 1.0];
    let mut inputs = vec![
        boxes(&[[20.0, 0.0, 0.0, 0.0], [f32::NAN; 4], [f32::NAN; 4], [f32::NAN; 4]]),
        boxes(&[square; 4]),
        boxes(&[square; 4]),
        ints(&[1, 0, 0, -1]),
        ints(&[0; 4]),
        ints(&[1]),
    ];
    let weights = [10.0, 10.0, 5.0, 5.0];
    let loss = run(&GiouLoss { weights, ipg: 1 }, &inputs).expect("fits")[0].as_f32()[0];
    assert!((loss - 4.0 / 9.0).abs() < 1e-6, "{loss}");
    inputs.push(HostTensor::f32(TensorDesc::new(Role::Loss, &[1]), vec![3.0]));
    let grad = run(&LossGrad(GiouLoss { weights, ipg: 1 }), &inputs).expect("fits");
    // GIoU = -1 + 2 / hull, hull = 1 + 2: moving by 1/10 a unit of dx costs 2/9 of that.
    assert!((grad[0].as_f32()[0] - 2.0 / 90.0).abs() < 1e-6, "{:?}", grad[0].as_f32());
    assert!(grad[0].as_f32()[4..].iter().all(|&g| g == 0.0));
}
