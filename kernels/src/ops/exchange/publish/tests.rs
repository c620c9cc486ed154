//! Rows by hand, and what the contract refuses.

use super::Publish;
use crate::Role;
use crate::case::floats;
use crate::case::hand::{ints, tensor, update};
use crate::cpu::HostTensor;
use crate::on_cpu::run_updating;

fn losses(values: &[f32]) -> HostTensor {
    floats(Role::Loss, &[values.len()], values)
}

fn ring(rows: usize, width: usize) -> [HostTensor; 2] {
    [floats(Role::Scalar, &[rows, width], vec![7.0; rows * width]), ints(&[0])]
}

/// Two rows: the third takes the place of the first, and what it does not fill is 0.
#[test]
fn rows_go_round() {
    let mut state = ring(2, 5);
    for step in 1..=3 {
        let inputs = [losses(&[0.5 * step as f32]), ints(&[step, -4])];
        update(&Publish, &inputs, &mut state);
    }
    let sequence = f32::from_bits;
    let expected = [sequence(3), 1.5, 3.0, -4.0, 0.0, sequence(2), 1.0, 2.0, -4.0, 0.0];
    let bits: Vec<u32> = state[0].as_f32().iter().map(|v| v.to_bits()).collect();
    assert_eq!(bits, expected.map(f32::to_bits));
    assert_eq!(state[1].as_i32(), [3]);
}

#[test]
fn a_ring_too_narrow_is_refused() {
    let refused =
        run_updating(&Publish, &[losses(&[1.0; 3])], &mut ring(4, 3)).expect_err("narrow");
    assert!(refused.to_string().contains("at least 4"), "{refused}");
}

#[test]
fn a_tensor_in_fp16_is_refused() {
    let half = tensor(&[1], [1.0]);
    let refused = run_updating(&Publish, &[half], &mut ring(4, 3)).expect_err("fp16");
    assert!(refused.to_string().contains("F32 or I32"), "{refused}");
}
