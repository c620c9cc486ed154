//! Test and benchmark cases of `grad_norms`.

use super::GradNorms;
use crate::Role;
use crate::case::{OpCase, normal};

/// Sizes 0, 1, prime numbers, near the block size and near the chunk size, more blocks than a warp
/// adds in four iterations, weights of a res4 block, more tensors than a CUDA launch supports, and
/// values that are infinite or the largest finite f32.
pub fn cases() -> Vec<OpCase> {
    let lists: [&[&[usize]]; 5] = [
        &[&[0]],
        &[&[1], &[5, 7, 11], &[13]],
        &[&[8191], &[0], &[8192], &[8193], &[0]],
        &[&[16383], &[16384], &[16385], &[1_060_001]],
        &[&[256, 1, 1, 1024], &[256, 3, 3, 256], &[1024, 1, 1, 256]],
    ];
    let of_shapes = lists.iter().map(|shapes| case(format!("{shapes:?}"), shapes));
    let lens: Vec<usize> = (0..300).map(|i| i % 7 * 3).collect();
    let many: Vec<&[usize]> = lens.iter().map(std::slice::from_ref).collect();
    of_shapes.chain([case("300 tensors".into(), &many), infinite(), large()]).collect()
}

fn case(label: String, shapes: &[&[usize]]) -> OpCase {
    let grad = |(i, s): (usize, &&[usize])| normal(Role::WeightGradient, s, i as u32, 1e-3);
    OpCase::new(label, GradNorms {}, shapes.iter().enumerate().map(grad).collect())
}

/// One infinite element past the first block of the second tensor of three.
fn infinite() -> OpCase {
    let mut case = case("an infinite element".into(), &[&[5], &[9001], &[7]]);
    case.inputs[1].as_f32_mut()[8990] = f32::NEG_INFINITY;
    case
}

/// The largest floats are finite, and so is their norm.
fn large() -> OpCase {
    let mut case = case("the largest floats".into(), &[&[5], &[9001]]);
    case.inputs[1].as_f32_mut().fill(f32::MAX);
    case
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::floats;
    use crate::case::hand::run;

    fn norms(grads: &[&[f32]]) -> (Vec<f32>, i32) {
        let tensor = |g: &&[f32]| floats(Role::WeightGradient, &[g.len()], g);
        let inputs: Vec<_> = grads.iter().map(tensor).collect();
        let outputs = run(&GradNorms {}, &inputs);
        (outputs[0].as_f32().to_vec(), outputs[1].as_i32()[0])
    }

    #[test]
    fn gradient_norm_of_3_and_4_is_5() {
        assert_eq!(norms(&[&[3.0, 4.0], &[12.0], &[]]), (vec![5.0, 12.0, 0.0, 13.0], 1));
    }

    #[test]
    fn one_non_finite_gradient_is_detected() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut grad = vec![1.0; 20_000];
            grad[17_001] = bad;
            assert_eq!(norms(&[&[1.0], &grad]).1, 0, "{bad}");
        }
    }

    #[test]
    fn norm_of_largest_finite_gradients_is_finite() {
        let (norms, finite) = norms(&[&[f32::MAX; 100]]);
        assert_eq!((norms, finite), (vec![f32::MAX; 2], 1));
    }
}
