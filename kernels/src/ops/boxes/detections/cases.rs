//! Test and benchmark cases of `detections`.

use super::Detections;
use crate::Role;
use crate::case::boxes::{boxes, sizes};
use crate::case::{OpCase, constant, floats, index, normal};

/// Images, RoIs per image, foreground classes, detections per image.
type Shape = (usize, usize, usize, usize);

/// No image, RoI, class or output slot; one of each; prime sizes; 1000 RoIs in each of two images
/// with 80 classes. Then RoIs not sorted by image, some with NaN logits; more RoIs per class than
/// CUDA sorts in shared memory (2,048), of which more survive NMS than a chunk of 64; and deltas
/// shared by all classes.
pub fn cases() -> Vec<OpCase> {
    let shapes: [Shape; 7] = [
        (0, 3, 2, 5),
        (2, 0, 2, 5),
        (2, 3, 0, 5),
        (2, 3, 2, 0),
        (1, 1, 1, 1),
        (3, 37, 7, 11),
        (2, 1000, 80, 100),
    ];
    shapes
        .iter()
        .flat_map(|&s| [false, true].map(|plus_one| (s, plus_one)))
        .map(|(shape, plus_one)| case(shape, plus_one, false))
        .chain([
            case((3, 61, 5, 17), false, true),
            case((1, 2503, 2, 1000), false, false),
            case((2, 41, 5, 7), false, false),
            shared_deltas(case((3, 37, 7, 11), false, false)),
        ])
        .collect()
}

/// The case with the background's four deltas shared by all classes.
fn shared_deltas(mut case: OpCase) -> OpCase {
    let deltas = &mut case.inputs[1];
    let (rows, width) = (deltas.desc.dim(0), deltas.desc.dim(1));
    let first: Vec<f32> = deltas.as_f32().chunks(width).flat_map(|row| row[..4].to_vec()).collect();
    *deltas = floats(deltas.desc.role, &[rows, 4], first);
    case.label += ", shared deltas";
    case
}

fn case((n, rois, k, per_image): Shape, plus_one: bool, mixed: bool) -> OpCase {
    let m = n * rois + 3;
    // In the mixed order some RoIs belong to image n, which does not exist.
    let image_of = |i: usize| if mixed { (5 * i + i / 3) % (n + 1) } else { i / rois };
    let image_idx: Vec<i32> =
        (0..m).map(|i| if i < n * rois { image_of(i) as i32 } else { -1 }).collect();
    let mut logits = normal(Role::Activation, &[m, k + 1], 1, 2.0);
    if mixed {
        logits.as_f32_mut().iter_mut().step_by(53).for_each(|x| *x = f32::NAN);
    }
    let inputs = vec![
        logits,
        normal(Role::Activation, &[m, 4 * (k + 1)], 2, 1.0),
        boxes(&[m, 4], 3, 700.0, 300.0),
        index(&[m], image_idx),
        constant(&[1], (n * rois) as i32),
        sizes(n, 800, 600),
    ];
    let op = Detections {
        score_threshold: 0.05,
        nms_threshold: 0.5,
        per_image,
        weights: [10.0, 10.0, 5.0, 5.0],
        min_size: 1e-2,
        plus_one,
    };
    let order = if mixed { ", mixed images and NaN" } else { "" };
    let label = format!("N {n}, {rois} RoIs, K {k}, D {per_image}, plus_one {plus_one}{order}");
    OpCase::new(label, op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::{ImageSize, as_boxes, batched_nms, clip, decode, is_small};
    use crate::case::hand::{assert_near, outputs, run, tensor};

    /// Two classes. RoIs 0 and 1 are the same box; RoI 2 is in the second image; RoI 3 is beyond
    /// the count.
    #[test]
    fn detections_match_hand_computed_values() {
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
        // Image 0: class 1 of RoI 1 (0.946) suppresses class 1 of RoI 0; class 2 keeps only RoI 0
        // (0.721), since its score in RoI 1 is 0.047.
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
    fn nan_scores_give_no_detection() {
        let mut case = cases().swap_remove(8);
        assert!(outputs(&case)[5].as_i32()[0] > 0, "{case}");
        case.inputs[0].as_f32_mut().fill(f32::NAN);
        let outputs = outputs(&case);
        assert_eq!((outputs[5].as_i32(), outputs[4].as_i32()), (&[0][..], &[0][..]));
    }

    /// Independent reference: puts all classes of all RoIs into one list, filters it by score and
    /// size, and keeps the top D after `batched_nms`.
    #[test]
    fn detections_match_independent_reference() {
        for case in cases().iter().filter(|c| c.inputs[0].desc.shape[0] < 500) {
            let plus_one = case.label.contains("plus_one true");
            let outputs = outputs(case);
            let (n, d) =
                (outputs[4].desc.len(), outputs[1].desc.len() / outputs[4].desc.len().max(1));
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
}
