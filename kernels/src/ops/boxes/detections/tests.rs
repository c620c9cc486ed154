//! `detections` by hand, and against a plain formulation on random input.

use super::{Detections, cases};
use crate::boxes::{ImageSize, as_boxes, batched_nms, clip, decode, is_small};
use crate::case::boxes::sizes;
use crate::case::hand::{assert_near, outputs, run, tensor};
use crate::case::index;

/// Two classes. RoIs 0 and 1 are the same box; RoI 2 is of the second image; RoI 3 is beyond the
/// count.
#[test]
fn by_hand() {
    let logits = [[1.0f32, 4.0, 5.0], [1.0, 6.0, 3.0], [0.0, 0.0, 9.0], [0.0, 9.0, 0.0]];
    let roi = [10.0, 10.0, 30.0, 30.0];
    let inputs = [
        tensor(&[4, 3], logits.concat()),
        tensor(&[4, 12], vec![0.0; 48]),
        tensor(&[4, 4], [roi, roi, roi, roi].concat()),
        index(&[4], [0, 0, 1, 1]),
        index(&[1], [3]),
        sizes(2, 25, 100),
    ];
    let op = Detections {
        score_threshold: 0.1,
        nms_threshold: 0.5,
        per_image: 3,
        weights: [10.0, 10.0, 5.0, 5.0],
        min_size: 1e-2,
        plus_one: false,
    };
    let outputs = run(&op, &inputs);
    // Image 0: class 1 of RoI 1 (0.946) beats that of RoI 0; class 2 is left with RoI 0 (0.721),
    // for in RoI 1 it has 0.047.
    assert_eq!(outputs[2].as_i32(), [1, 2, 2, 0, 0, 0]);
    assert_eq!(outputs[3].as_i32(), [0, 0, 1, -1, -1, -1]);
    assert_eq!((outputs[4].as_i32(), outputs[5].as_i32()), (&[2, 1][..], &[3][..]));
    let e = |x: f32| x.exp();
    let scores = [
        e(6.0) / (e(1.0) + e(6.0) + e(3.0)),
        e(5.0) / (e(1.0) + e(4.0) + e(5.0)),
        e(9.0) / (e(9.0) + 2.0),
    ];
    assert_near(&outputs[1].as_f32()[..3], &scores, 1e-6);
    let b = as_boxes(outputs[0].as_f32());
    assert_eq!((b[0], b[5]), ([10.0, 10.0, 30.0, 25.0], [0.0; 4]));
}

#[test]
fn nan_detects_nothing() {
    let mut case = cases().swap_remove(8);
    assert!(outputs(&case)[5].as_i32()[0] > 0, "{case}");
    case.inputs[0].as_f32_mut().fill(f32::NAN);
    let outputs = outputs(&case);
    assert_eq!((outputs[5].as_i32(), outputs[4].as_i32()), (&[0][..], &[0][..]));
}

/// Independent: every class of every RoI in one list, cut by score and size, `batched_nms`, top D.
#[test]
fn equals_the_plain_rule() {
    for case in cases().iter().filter(|c| c.inputs[0].desc.shape[0] < 500) {
        let plus_one = case.label.contains("plus_one true");
        let outputs = outputs(case);
        let (n, d) = (outputs[4].desc.len(), outputs[1].desc.len() / outputs[4].desc.len().max(1));
        let classes = case.inputs[0].desc.shape[1];
        let size = ImageSize { height: 800, width: 600 };
        let mut row = 0;
        for image in 0..n {
            let (mut boxes, mut scores, mut labels) = (vec![], vec![], vec![]);
            for (roi, _) in
                case.inputs[3].as_i32().iter().enumerate().filter(|&(_, &i)| i == image as i32)
            {
                let logits = &case.inputs[0].as_f32()[roi * classes..][..classes];
                let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                for (class, &logit) in logits.iter().enumerate().skip(1) {
                    let groups = case.inputs[1].desc.dim(1) / 4;
                    let own = roi * groups + if groups == 1 { 0 } else { class };
                    let deltas = as_boxes(case.inputs[1].as_f32())[own];
                    let b = as_boxes(case.inputs[2].as_f32())[roi];
                    let b = decode(&b, &deltas, &[10.0, 10.0, 5.0, 5.0], plus_one);
                    let b = clip(&b, size, plus_one);
                    let score = (f64::from(logit).exp() / sum) as f32;
                    if score > 0.05 && !is_small(&b, 1e-2, plus_one) {
                        boxes.push(b);
                        scores.push(score);
                        labels.push(class as i32);
                    }
                }
            }
            let kept = batched_nms(&boxes, &scores, &labels, 0.5, plus_one);
            let kept = &kept[..kept.len().min(d)];
            assert_eq!(outputs[4].as_i32()[image] as usize, kept.len(), "{case}");
            for &i in kept {
                assert_eq!(as_boxes(outputs[0].as_f32())[row], boxes[i], "{case}");
                assert_eq!(outputs[2].as_i32()[row], labels[i], "{case}");
                assert!((outputs[1].as_f32()[row] - scores[i]).abs() < 1e-6, "{case}");
                row += 1;
            }
        }
        assert_eq!(outputs[5].as_i32()[0] as usize, row, "{case}");
    }
}
