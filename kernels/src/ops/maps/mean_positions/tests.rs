//! `mean_positions` by hand.

use super::{MeanPositions, MeanPositionsGrad};
use crate::case::boxes::index;
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Op, Role, TensorDesc};

/// Two channels at three positions; the second row is not in use.
#[test]
fn by_hand() {
    let values = [[1.0, 10.0], [2.0, 20.0], [6.0, 0.0]].concat();
    let rows = [values, vec![f32::NAN; 6]].concat();
    let x = HostTensor::f32(TensorDesc::new(Role::Activation, &[2, 1, 3, 2]), rows);
    let count = index(&[1], &[1]);
    let y = run(&MeanPositions, &[x, count.clone()]).expect("fits");
    assert_eq!(y[0].as_f32(), [3.0, 10.0, 0.0, 0.0]);
    let g = HostTensor::f32(TensorDesc::new(Role::Gradient, &[2, 2]), vec![3.0, 6.0, 9.0, 9.0]);
    let dx = run(&MeanPositionsGrad { height: 1, width: 3 }, &[g, count]).expect("fits");
    assert_eq!(dx[0].as_f32()[..6], [1.0, 2.0, 1.0, 2.0, 1.0, 2.0]);
    assert_eq!(dx[0].as_f32()[6..], [0.0; 6]);
}

#[test]
fn a_map_without_positions_is_refused() {
    let x = TensorDesc::new(Role::Activation, &[2, 0, 3, 2]);
    assert!(MeanPositions.infer(&[x, TensorDesc::new(Role::Index, &[1])], &[]).is_err());
}
