//! Buckets by hand, and that a filled bucket is emptied.

use super::{EmptyBucket, FillBucket};
use crate::case::floats;
use crate::case::hand::{refusal, run};
use crate::cpu::HostTensor;
use crate::{Role, TensorDesc};

fn gradient(shape: &[usize], values: &[f32]) -> HostTensor {
    floats(Role::WeightGradient, shape, values)
}

#[test]
fn a_bucket_by_hand() {
    let grads = [gradient(&[2], &[1.0, -2.0]), gradient(&[0], &[]), gradient(&[1, 2], &[8.0, 0.5])];
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
fn what_is_no_bucket_is_refused() {
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
