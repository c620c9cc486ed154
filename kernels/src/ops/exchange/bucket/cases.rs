//! Test and benchmark cases of `fill_bucket` and `empty_bucket`.

use super::{EmptyBucket, FillBucket};
use crate::Role;
use crate::case::{OpCase, normal};

/// No gradient; sizes 0, 1, prime numbers and near the block size, at offsets of every alignment;
/// more gradients than one launch supports; and a bottleneck of res4.
pub fn cases() -> Vec<OpCase> {
    let lists: [(&str, &[&[usize]]); 6] = [
        ("no gradient", &[]),
        ("empty gradients", &[&[0], &[3, 0]]),
        ("one number", &[&[1]]),
        ("aligned places", &[&[4096], &[0], &[2, 4096], &[8], &[5, 7, 11]]),
        ("odd places", &[&[13], &[4095], &[4096], &[4097], &[1], &[9001]]),
        ("a bottleneck of res4", &[&[256, 1, 1, 1024], &[256, 3, 3, 256], &[1024, 1, 1, 256]]),
    ];
    let lens: Vec<usize> = (0..131).map(|i| i * i % 97).collect();
    let many: Vec<&[usize]> = lens.iter().map(std::slice::from_ref).collect();
    let named = lists.into_iter().chain([("131 gradients", many.as_slice())]);
    named.flat_map(|(label, shapes)| [fill(label, shapes), empty(label, shapes)]).collect()
}

fn fill(label: &str, shapes: &[&[usize]]) -> OpCase {
    let grad =
        |(i, shape): (usize, &&[usize])| normal(Role::WeightGradient, shape, i as u32, 100.0);
    let op = FillBucket { scale: 0.125 };
    OpCase::new(label, op, shapes.iter().enumerate().map(grad).collect())
}

fn empty(label: &str, shapes: &[&[usize]]) -> OpCase {
    let shapes: Vec<Vec<usize>> = shapes.iter().map(|shape| shape.to_vec()).collect();
    let total = shapes.iter().map(|shape| shape.iter().product::<usize>()).sum();
    let bucket = normal(Role::Gradient, &[total], 7, 1.0);
    let op = EmptyBucket { shapes };
    OpCase::new(label, op, vec![bucket])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TensorDesc;
    use crate::case::floats;
    use crate::case::hand::{refusal, run};
    use crate::cpu::HostTensor;

    fn gradient(shape: &[usize], values: &[f32]) -> HostTensor {
        floats(Role::WeightGradient, shape, values)
    }

    #[test]
    fn bucket_matches_hand_computed_values() {
        let grads =
            [gradient(&[2], &[1.0, -2.0]), gradient(&[0], &[]), gradient(&[1, 2], &[8.0, 0.5])];
        let bucket = run(&FillBucket { scale: 0.5 }, &grads).remove(0);
        assert_eq!(bucket.desc, TensorDesc::new(Role::Gradient, &[4]));
        assert_eq!(bucket.as_f32(), [0.5, -1.0, 4.0, 0.25]);
        let shapes = vec![vec![2], vec![0], vec![1, 2]];
        let back = run(&EmptyBucket { shapes }, &[bucket]);
        assert_eq!(back[0], gradient(&[2], &[0.5, -1.0]));
        assert_eq!(back[1], gradient(&[0], &[]));
        assert_eq!(back[2], gradient(&[1, 2], &[4.0, 0.25]));
    }

    #[test]
    fn invalid_bucket_is_rejected() {
        let bucket = floats(Role::Gradient, &[3], [0.0; 3]);
        let bucket = std::slice::from_ref(&bucket);
        let said = refusal(&EmptyBucket { shapes: vec![vec![2], vec![2]] }, bucket);
        assert_eq!(said, "empty_bucket: bucket should have shape [4], got [3]");
        let wide = gradient(&[3], &[0.0; 3]);
        refusal(&EmptyBucket { shapes: vec![vec![3]] }, &[wide]); // a bucket is fp16 on CUDA
        refusal(&FillBucket { scale: 1.0 }, bucket); // a gradient is f32 on CUDA
        let grads = [gradient(&[1], &[1.0])];
        refusal(&FillBucket { scale: f32::NAN }, &grads);
    }
}
