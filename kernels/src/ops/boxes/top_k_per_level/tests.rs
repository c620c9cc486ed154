//! `top_k_per_level` by hand, and against a full sort.

use super::TopKPerLevel;
use crate::case::hand::{run, tensor};
use crate::case::integers;

/// By hand: ties go to the lower index, both zeros are equal, NaN comes last.
#[test]
fn ties_go_to_the_lower_index() {
    let first = tensor(&[1, 1, 3, 2], vec![0.0, 3.0, -0.0, 3.0, f32::NAN, -1.0]);
    let second = tensor(&[1, 1, 1, 2], vec![5.0, 6.0]);
    let outputs = run(&TopKPerLevel { k: 6 }, &[first.clone(), second.clone()]);
    assert_eq!(outputs[0].as_i32(), [1, 3, 0, 2, 5, 4, 7, 6]);
    assert_eq!(outputs[1].as_i32(), [0, 0, 0, 0, 0, 0, 1, 1]);
    let outputs = run(&TopKPerLevel { k: 1 }, &[first, second]);
    assert_eq!(outputs[0].as_i32(), [1, 7]);
    assert_eq!(outputs[1].as_i32(), [0, 1]);
}

/// Against a full sort by comparison, on logits with many ties.
#[test]
fn equals_a_full_sort() {
    let values: Vec<f32> =
        integers(&[2, 11, 13, 3], 9, -5, 6).as_i32().iter().map(|&v| v as f32).collect();
    let outputs = run(&TopKPerLevel { k: 97 }, &[tensor(&[2, 11, 13, 3], values.clone())]);
    for (image, got) in values.chunks(429).zip(outputs[0].as_i32().chunks(97)) {
        let mut order: Vec<i32> = (0..429).collect();
        order.sort_by(|&a, &b| image[b as usize].partial_cmp(&image[a as usize]).unwrap());
        assert_eq!(got, &order[..97]);
    }
}
