//! The loss by hand and against the textbook.

use super::SoftmaxCrossEntropy;
use crate::Role;
use crate::case::hand::{ints, loss_and_grad, tensor};
use crate::case::normal;

const PLAIN: SoftmaxCrossEntropy = SoftmaxCrossEntropy { ipg: 1, rows_per_image: None };

/// Level logits cost ln(K+1), however large they are; an ignored row costs nothing.
#[test]
fn level_logits_by_hand() {
    let logits = vec![1e4, 1e4, 1e4, 1e4, -3.0, -3.0, -3.0, -3.0, f32::NAN, 0.0, 0.0, 0.0];
    let logits = tensor(&[3, 4], logits);
    let inputs = [logits, ints(&[0, 3, -1]), ints(&[0, 0, 0]), ints(&[1])];
    let (loss, grad) = loss_and_grad(&PLAIN, &inputs, 8.0);
    assert!((loss - 4.0f32.ln()).abs() < 1e-6);
    let expected = [[-3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -3.0], [0.0; 4]].concat();
    assert_eq!(grad, expected);
}

/// Minus the logarithm of the probability, computed as such; a row's gradient sums to 0.
#[test]
fn equals_the_textbook() {
    let logits = normal(Role::Activation, &[13, 7], 1, 3.0);
    let labels: Vec<i32> = (0..13).map(|i| i * 5 % 7).collect();
    let expected: f64 = (0..13)
        .map(|row| {
            let row_logits = &logits.as_f32()[7 * row..7 * row + 7];
            let sum: f64 = row_logits.iter().map(|&x| f64::from(x).exp()).sum();
            -(f64::from(row_logits[labels[row] as usize]).exp() / sum).ln() / 13.0
        })
        .sum();
    let inputs = [logits, ints(&labels), ints(&[0; 13]), ints(&[1])];
    let (loss, grad) = loss_and_grad(&PLAIN, &inputs, 1.0);
    assert!((f64::from(loss) - expected).abs() < 1e-6);
    for row in grad.chunks_exact(7) {
        assert!(row.iter().sum::<f32>().abs() < 1e-7);
    }
}
