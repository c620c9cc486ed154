//! The loss by hand and against the textbook.

use super::SoftmaxCrossEntropy;
use crate::case::normal;
use crate::cpu::HostTensor;
use crate::losses::LossGrad;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn ints(values: &[i32]) -> HostTensor {
    HostTensor::i32(TensorDesc::new(Role::Index, &[values.len()]), values.to_vec())
}

/// Level logits cost ln(K+1), however large they are; an ignored row costs nothing.
#[test]
fn level_logits_by_hand() {
    let logits = vec![1e4, 1e4, 1e4, 1e4, -3.0, -3.0, -3.0, -3.0, f32::NAN, 0.0, 0.0, 0.0];
    let logits = HostTensor::f32(TensorDesc::new(Role::Activation, &[3, 4]), logits);
    let mut inputs = vec![logits, ints(&[0, 3, -1]), ints(&[0, 0, 0]), ints(&[1])];
    let loss = run(&SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }, &inputs).expect("fits")
        [0]
    .as_f32()[0];
    assert!((loss - 4.0f32.ln()).abs() < 1e-6);
    inputs.push(HostTensor::f32(TensorDesc::new(Role::Loss, &[1]), vec![8.0]));
    let grad = run(&LossGrad(SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }), &inputs)
        .expect("fits");
    let expected = [[-3.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, -3.0], [0.0; 4]].concat();
    assert_eq!(grad[0].as_f32(), expected);
}

/// Minus the logarithm of the probability, computed as such; a row's gradient sums to 0.
#[test]
fn equals_the_textbook() {
    let logits = normal(&TensorDesc::new(Role::Activation, &[13, 7]), 1, 3.0);
    let labels: Vec<i32> = (0..13).map(|i| i * 5 % 7).collect();
    let expected: f64 = (0..13)
        .map(|row| {
            let row_logits = &logits.as_f32()[7 * row..7 * row + 7];
            let sum: f64 = row_logits.iter().map(|&x| f64::from(x).exp()).sum();
            -(f64::from(row_logits[labels[row] as usize]).exp() / sum).ln() / 13.0
        })
        .sum();
    let mut inputs = vec![logits, ints(&labels), ints(&[0; 13]), ints(&[1])];
    let loss = run(&SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }, &inputs).expect("fits")
        [0]
    .as_f32()[0];
    assert!((f64::from(loss) - expected).abs() < 1e-6);
    inputs.push(HostTensor::f32(TensorDesc::new(Role::Loss, &[1]), vec![1.0]));
    let grad = run(&LossGrad(SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }), &inputs)
        .expect("fits");
    for row in grad[0].as_f32().chunks_exact(7) {
        assert!(row.iter().sum::<f32>().abs() < 1e-7);
    }
}
