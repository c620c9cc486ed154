//! Test and benchmark cases of `publish`.

use super::Publish;
use crate::Role;
use crate::case::{OpCase, constant, integers, normal};

/// Step whose sequence number (step + 1) has the bit pattern of f32 infinity: a sequence number
/// that is off by one is then a very different float. Small sequence numbers are floats close to 0,
/// for which the comparison of floats would not detect the error.
const BEFORE_INFINITY: i32 = 0x7f7f_ffff;

/// No input, lengths 0 and 1, lengths near the block size, a ring wider than the values, and the
/// values that a training step publishes.
pub fn cases() -> Vec<OpCase> {
    vec![
        case("nothing", &[], [1, 1], 0),
        case("one of one", &[1], [1, 2], 5),
        case("a wide ring", &[0, 1, 7, 13], [5, 64], 12),
        case("a block", &[255], [3, 256], 4),
        case("past a block", &[256, 1], [3, 258], 4),
        case("a training step", &[1, 1, 1, 1, 1, 4, 83, 12, 1], [16, 128], BEFORE_INFINITY),
        case("a step past the end of i32", &[4], [7, 5], -1),
    ]
}

/// Every third input holds integers.
fn case(label: &str, lens: &[usize], ring: [usize; 2], step: i32) -> OpCase {
    let input = |(i, &len): (usize, &usize)| match i % 3 {
        2 => integers(&[len], i as u32, -1000, 1000),
        _ => normal(Role::Loss, &[len], i as u32, 1.0),
    };
    let inputs = lens.iter().enumerate().map(input).collect();
    let ring = normal(Role::Scalar, &ring, 99, 1.0);
    let step = constant(&[1], step);
    OpCase::new(label, Publish, inputs).updating(vec![ring, step])
}

#[cfg(test)]
mod tests {
    use super::*;
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

    /// The ring has two rows: the third step overwrites the first row, and unused elements are 0.
    #[test]
    fn published_rows_wrap_around() {
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
    fn publish_to_too_narrow_ring_is_rejected() {
        let refused =
            run_updating(&Publish, &[losses(&[1.0; 3])], &mut ring(4, 3)).expect_err("narrow");
        assert!(refused.to_string().contains("at least 4"), "{refused}");
    }

    #[test]
    fn publish_of_fp16_tensor_is_rejected() {
        let half = tensor(&[1], [1.0]);
        let refused = run_updating(&Publish, &[half], &mut ring(4, 3)).expect_err("fp16");
        assert!(refused.to_string().contains("F32 or I32"), "{refused}");
    }
}
