//! Buckets by hand, and that a filled bucket is emptied.

use super::{EmptyBucket, FillBucket};
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn gradient(shape: &[usize], values: &[f32]) -> HostTensor {
    HostTensor::f32(TensorDesc::new(Role::WeightGradient, shape), values.to_vec())
}

#[test]
fn a_bucket_by_hand() {
    let grads = [gradient(&[2], &[1.0, -2.0]), gradient(&[0], &[]), gradient(&[1, 2], &[8.0, 0.5])];
    let bucket = run(&FillBucket { scale: 0.5 }, &grads).expect("fits").remove(0);
    assert_eq!(bucket.desc, TensorDesc::new(Role::Gradient, &[4]));
    assert_eq!(bucket.as_f32(), [0.5, -1.0, 4.0, 0.25]);
    let shapes = vec![vec![2], vec![0], vec![1, 2]];
    let back = run(&EmptyBucket { shapes }, &[bucket]).expect("fits");
    assert_eq!(back[0], gradient(&[2], &[0.5, -1.0]));
    assert_eq!(back[1], gradient(&[0], &[]));
    assert_eq!(back[2], gradient(&[1, 2], &[4.0, 0.25]));
}

#[test]
fn what_is_no_bucket_is_refused() {
    let bucket = HostTensor::f32(TensorDesc::new(Role::Gradient, &[3]), vec![0.0; 3]);
    let too_long =
        run(&EmptyBucket { shapes: vec![vec![2], vec![2]] }, std::slice::from_ref(&bucket));
    let said = too_long.expect_err("4 elements of 3").to_string();
    assert_eq!(said, "empty_bucket: bucket should have shape [4], got [3]");
    let wide = gradient(&[3], &[0.0; 3]);
    run(&EmptyBucket { shapes: vec![vec![3]] }, &[wide]).expect_err("a bucket is fp16 on CUDA");
    run(&FillBucket { scale: 1.0 }, &[bucket]).expect_err("a gradient is f32 on CUDA");
    let grads = [gradient(&[1], &[1.0])];
    run(&FillBucket { scale: f32::NAN }, &grads).expect_err("no factor");
}
