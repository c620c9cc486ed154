//! Box arithmetic against hand-computed values and properties, and the vector forms against the
//! scalar ones.

use super::*;
use crate::case::boxes::box_list;

const A: Box4 = [0.0, 0.0, 4.0, 4.0];
const B: Box4 = [2.0, 2.0, 6.0, 4.0];

#[test]
fn iou_matches_hand_computed_values() {
    assert_eq!((area(&B, false), area(&B, true)), (8.0, 15.0));
    // Intersection 2 x 2, union 16 + 8 - 4; inclusive 3 x 3, union 25 + 15 - 9.
    assert_eq!((iou(&A, &B, false), iou(&A, &B, true)), (4.0 / 20.0, 9.0 / 31.0));
    // The enclosing box is 6 x 4.
    assert_eq!(giou(&A, &B), 0.2 - 4.0 / 24.0);
    assert_eq!(giou(&A, &[8.0, 0.0, 12.0, 4.0]), -(48.0 - 32.0) / 48.0);
    // Inclusive boxes one pixel apart do not overlap; half a pixel apart they do.
    assert_eq!(iou(&A, &[5.0, 0.0, 9.0, 4.0], true), 0.0);
    assert!(iou(&A, &[4.5, 0.0, 9.0, 4.0], true) > 0.0);
    let point = [3.0; 4];
    assert_eq!((iou(&point, &point, false), giou(&point, &point)), (0.0, 0.0));
    assert_eq!(iou(&point, &point, true), 1.0);
}

#[test]
fn clip_and_min_size_match_hand_computed_values() {
    let size = ImageSize { height: 5, width: 10 };
    assert_eq!(clip(&[-1.0, 2.0, 12.0, 7.0], size, false), [0.0, 2.0, 10.0, 5.0]);
    assert_eq!(clip(&[-1.0, 2.0, 12.0, 7.0], size, true), [0.0, 2.0, 9.0, 4.0]);
    assert_eq!(clip(&A, ImageSize { height: 0, width: 0 }, true), [0.0; 4]);
    assert!(!is_small(&B, 2.0, false) && is_small(&B, 2.1, false) && !is_small(&B, 2.1, true));
    assert!(is_small(&[0.0, 0.0, f32::NAN, 9.0], 0.0, false));
    assert!(inside(&A, size) && !inside(&[0.0, 0.0, 10.0, 4.0], size));
}

#[test]
fn vectorized_iou_is_bit_identical_to_scalar_iou() {
    let (boxes, others) = (box_list(101, 3, 60.0, 40.0), box_list(13, 4, 60.0, 40.0));
    let boxes = [boxes, vec![[7.0; 4], [9.0, 9.0, 3.0, 3.0], [f32::NAN; 4]]].concat();
    for plus_one in [false, true] {
        let columns = BoxColumns::new(&boxes, plus_one);
        assert_eq!((columns.len(), columns.is_empty()), (104, false));
        for b in others.iter().chain(&[[7.0; 4]]) {
            let mut row = vec![f32::NAN; 99];
            columns.iou_into(b, 5, &mut row);
            // The last box has NaN coordinates, whose IoU is 0 in both the vector and the scalar
            // form.
            for (got, other) in row.iter().zip(&boxes[5..]) {
                assert_eq!(*got, iou(b, other, plus_one));
            }
        }
    }
}

#[test]
fn rank_orders_by_score_then_index() {
    let scores = [0.5, f32::NAN, 0.9, -0.0, 0.0, -3.0, 0.9, f32::INFINITY, f32::NEG_INFINITY];
    assert_eq!(sort_by_score(&scores), [7, 2, 6, 0, 3, 4, 5, 1, 8]);
    for k in 0..=10 {
        assert_eq!(top_k(&scores, k), sort_by_score(&scores)[..k.min(9)]);
    }
}

#[test]
fn nms_groups_do_not_suppress_each_other() {
    let boxes = [A, A, A, A];
    let scores = [0.1, 0.4, 0.3, 0.4];
    assert_eq!(batched_nms(&boxes, &scores, &[0, 1, 0, 2], 0.5, false), [1, 3, 2]);
    assert_eq!(batched_nms(&boxes, &scores, &[0; 4], 0.5, false), [1]);
    assert_eq!(batched_nms(&boxes, &scores, &[0; 4], 1.0, false), [1, 3, 2, 0], "strictly over");
}

#[test]
fn sampling_takes_smallest_keys() {
    assert_eq!((max_positives(256, 0.5), max_positives(5, 0.25)), (128, 1));
    let labels = [1, 0, -1, 2, 0, 0, 1];
    // Equal keys: the lower index first.
    assert_eq!(sample(&labels, 4, 0.5, |_| 7), (vec![0, 3], vec![1, 4]));
    assert_eq!(sample(&labels, 4, 0.5, |i| 100 - i as u32), (vec![3, 6], vec![4, 5]));
    assert_eq!(sample(&labels, 0, 1.0, |_| 0), (vec![], vec![]));
}

#[test]
fn matching_equals_hand_computed_values() {
    let thresholds = Thresholds { fg_iou: 0.7, bg_iou: 0.3 };
    #[rustfmt::skip]
    let iou = [
        0.7, 0.3, 0.2, 0.6, 0.0,
        0.7, 0.1, 0.4, 0.4, 0.0,
        0.1, 0.1, 0.1, 0.1, 0.0,
    ];
    assert_eq!(match_iou(&iou, 5, thresholds, false), [0, BETWEEN, BETWEEN, BETWEEN, BELOW]);
    // Row 2 has its highest IoU, 0.1, in four columns: each column is matched with its best
    // row.
    assert_eq!(match_iou(&iou, 5, thresholds, true), [0, 0, 1, 0, BELOW]);
    assert_eq!(match_iou(&[], 2, thresholds, true), [BELOW; 2]);
    assert_eq!(match_boxes(&[A, B], &[], thresholds, false), [BELOW; 2]);
    assert_eq!(match_boxes(&[A, B], &[B, A], thresholds, false), [1, 0]);
}
