//! The loss by hand, and against the loss without weights.

use std::sync::Arc;

use super::WeightedCrossEntropy;
use crate::Role;
use crate::case::hand::{assert_near, ints, loss_and_grad, tensor};
use crate::case::{integers, normal};
use crate::ops::softmax_cross_entropy::SoftmaxCrossEntropy;

/// Two rows, of classes that weigh 1 and 3: (1 * ln 2 + 3 * (ln 2 + 0)) / 4, whatever the scale.
#[test]
fn a_class_weighs_by_its_share_of_the_group() {
    let logits = tensor(&[3, 2], [0.0, 0.0, 5.0, 5.0, f32::NAN, 0.0]);
    let inputs = [logits, ints(&[0, 1, -1]), ints(&[0, 0, 0]), ints(&[1])];
    for scale in [1.0, 64.0] {
        let class_weights = Arc::new([scale, 3.0 * scale]);
        let op = WeightedCrossEntropy { ipg: 1, class_weights, label_smoothing: 0.0 };
        let (loss, grad) = loss_and_grad(&op, &inputs, 1.0);
        assert!((loss - 2.0f32.ln()).abs() < 1e-6);
        assert_eq!(grad, [-0.125, 0.125, 0.375, -0.375, 0.0, 0.0]);
    }
}

/// Fully smoothed, each class is as true as the others: level logits have no gradient.
#[test]
fn smoothing_shares_the_truth() {
    let logits = tensor(&[1, 4], [2.0; 4]);
    let inputs = [logits, ints(&[1]), ints(&[0]), ints(&[1])];
    let class_weights: Arc<[f32]> = Arc::new([1.0; 4]);
    let op = WeightedCrossEntropy { ipg: 1, class_weights, label_smoothing: 1.0 };
    let (loss, grad) = loss_and_grad(&op, &inputs, 1.0);
    assert!((loss - 4.0f32.ln()).abs() < 1e-6);
    assert_eq!(grad, [0.0; 4]);
}

#[test]
fn equal_weights_change_nothing() {
    let inputs = [
        normal(Role::Activation, &[31, 7], 1, 3.0),
        integers(&[31], 2, -1, 7),
        ints(&(0..31).map(|row| row / 8).collect::<Vec<_>>()),
        ints(&[3]),
    ];
    let (loss, grad) =
        loss_and_grad(&SoftmaxCrossEntropy { ipg: 2, rows_per_image: None }, &inputs, 1.0);
    let class_weights: Arc<[f32]> = Arc::new([0.5; 7]);
    let op = WeightedCrossEntropy { ipg: 2, class_weights, label_smoothing: 0.0 };
    let (weighted, weighted_grad) = loss_and_grad(&op, &inputs, 1.0);
    assert!((loss - weighted).abs() < 1e-6);
    assert_near(&grad, &weighted_grad, 1e-7);
}
