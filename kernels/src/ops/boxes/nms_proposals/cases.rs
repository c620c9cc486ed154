//! Test and benchmark cases of `nms_proposals`.

use super::{NmsProposals, ProposalScope};
use crate::Role;
use crate::case::boxes::boxes;
use crate::case::{OpCase, index, integers, uniform};

/// No image, no row, no output slot, one row, prime sizes, row counts near the sizes of a chunk
/// (64) and of a band (33 chunks) of the CUDA kernel, and 2000 rows per level as in a training
/// step; then unsorted levels, more levels than CUDA has slots for, IoUs at the threshold, and rows
/// that are mostly suppressed.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 7, 5, 3),
        (2, 0, 5, 3),
        (2, 7, 0, 3),
        (1, 1, 1, 1),
        (3, 101, 17, 5),
        (1, 63, 50, 1),
        (1, 65, 50, 1),
        (1, 2113, 2000, 1),
        (1, 4801, 1500, 1),
        (2, 8819, 1000, 5),
    ];
    shapes
        .iter()
        .flat_map(|&s| [ProposalScope::Image, ProposalScope::Level].map(|scope| (s, scope)))
        .map(|((n, m, post_top_n, num_levels), scope)| {
            let levels: Vec<i32> = (0..m).map(|row| (row * num_levels / m) as i32).collect();
            let op = NmsProposals {
                threshold: 0.7,
                post_top_n,
                level_top_n: None,
                plus_one: false,
                scope,
            };
            case(op, (n, m), (600.0, 200.0), &levels, "")
        })
        .chain(groups_of_images())
        .chain([ProposalScope::Image, ProposalScope::Level].map(|scope| {
            let levels = integers(&[1009], 7, -5, 6);
            let op = NmsProposals {
                threshold: 0.7,
                post_top_n: 40,
                level_top_n: Some(7),
                plus_one: true,
                scope,
            };
            case(op, (2, 1009), (200.0, 200.0), levels.as_i32(), ", levels -5 to 5")
        }))
        .chain([at_the_threshold()])
        .chain([0.2, -1.0].map(|threshold| {
            let scope = ProposalScope::Image;
            let op = NmsProposals {
                threshold,
                post_top_n: 500,
                level_top_n: None,
                plus_one: false,
                scope,
            };
            case(op, (1, 2503), (60.0, 200.0), &[3; 2503], ", crowded")
        }))
        .collect()
}

/// Pairs of boxes whose IoU is at the threshold or close to it: the height of one box varies by up
/// to 20 units in the last place.
fn at_the_threshold() -> OpCase {
    let pairs = (0..41).flat_map(|i| {
        let (left, height) = (100.0 * i as f32, f32::from_bits(8f32.to_bits() + i - 20));
        [[left, 0.0, left + 16.0, 16.0], [left, 0.0, left + 16.0, height]]
    });
    let boxes: Vec<f32> = pairs.flatten().collect();
    let (rows, scope) = (boxes.len() / 4, ProposalScope::Image);
    let (level_top_n, plus_one) = (None, false);
    let op = NmsProposals { threshold: 0.5, post_top_n: rows, level_top_n, plus_one, scope };
    let mut case = case(op, (1, rows), (600.0, 200.0), &vec![0; rows], ", at the threshold");
    case.inputs[0].as_f32_mut().copy_from_slice(&boxes);
    case
}

/// Cases of scope `Batch`: no images, groups of one image, several groups, selections that keep all
/// rows or none, and scores that are all equal.
fn groups_of_images() -> impl Iterator<Item = OpCase> {
    let shapes = [(0, 7, 5, 1), (2, 0, 5, 2), (4, 7, 0, 2), (3, 101, 17, 1), (6, 101, 170, 3)];
    let large = [(4, 4801, 3000, 2), (2, 101, 1000, 2)];
    let spread = shapes.into_iter().chain(large).map(|(n, m, post_top_n, images)| {
        let levels: Vec<i32> = (0..m).map(|row| (row * 5 / m) as i32).collect();
        let scope = ProposalScope::Batch { images };
        let level_top_n = (n > 3).then_some(11);
        let op = NmsProposals { threshold: 0.7, post_top_n, level_top_n, plus_one: true, scope };
        case(op, (n, m), (600.0, 200.0), &levels, "")
    });
    let equal = [40, 150, 151].map(|post_top_n| {
        let scope = ProposalScope::Batch { images: 3 };
        let op =
            NmsProposals { threshold: 0.7, post_top_n, level_top_n: None, plus_one: true, scope };
        let mut case = case(op, (3, 101), (600.0, 60.0), &[2; 101], ", equal scores");
        case.inputs[1].as_f32_mut().fill(0.25);
        case
    });
    spread.chain(equal)
}

/// `size` is (images, rows); `spread` is the range of the corners and of the side lengths.
fn case(
    op: NmsProposals,
    size: (usize, usize),
    spread: (f32, f32),
    levels: &[i32],
    what: &str,
) -> OpCase {
    let (n, m) = size;
    let inputs = vec![
        boxes(&[n, m, 4], 1, spread.0, spread.1),
        uniform(Role::Score, &[n, m], 2, -0.2, 1.0),
        index(&[m], levels),
        integers(&[n, m], 3, 0, 1000),
    ];
    let NmsProposals { threshold, post_top_n, scope, .. } = op;
    let label = format!("N {n}, M {m}, top {post_top_n}, {scope:?}, over {threshold}{what}");
    OpCase::new(label, op, inputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    use crate::case::floats;
    use crate::case::hand::{refusal, run, tensor};
    use crate::cpu::HostTensor;

    fn hand_boxes() -> Vec<HostTensor> {
        let (a, b) = ([0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 9.0]);
        let far = [50.0, 50.0, 60.0, 60.0];
        let boxes = [a, b, far, b, far, a].concat();
        let scores = vec![0.9, 0.8, 0.5, 0.85, 0.5, -1.0];
        vec![
            tensor(&[1, 6, 4], boxes),
            tensor(&[1, 6], scores),
            index(&[6], [0, 0, 0, 1, 1, 1]),
            index(&[1, 6], [10, 11, 12, 23, 24, 25]),
        ]
    }

    fn op(post_top_n: usize, scope: ProposalScope) -> NmsProposals {
        NmsProposals { threshold: 0.7, post_top_n, level_top_n: None, plus_one: false, scope }
    }

    /// Row 0 suppresses row 1; row 3 is on a different level; row 5 is invalid.
    #[test]
    fn nms_image_scope_ranks_all_levels_together() {
        let outputs = run(&op(5, ProposalScope::Image), &hand_boxes());
        assert_eq!(outputs[2].as_i32(), [10, 23, 12, 24, -1]);
        assert_eq!(outputs[1].as_f32(), [0.9, 0.85, 0.5, 0.5, 0.0]);
        assert_eq!(outputs[3].as_i32(), [4]);
        let outputs = run(&op(3, ProposalScope::Image), &hand_boxes());
        assert_eq!(outputs[2].as_i32(), [10, 23, 12]);
    }

    #[test]
    fn nms_level_scope_ranks_levels_separately() {
        let outputs = run(&op(1, ProposalScope::Level), &hand_boxes());
        assert_eq!(outputs[2].as_i32(), [10, 23, -1, -1, -1, -1]);
        let outputs = run(&op(9, ProposalScope::Level), &hand_boxes());
        assert_eq!(outputs[2].as_i32(), [10, 12, 23, 24, -1, -1]);
    }

    /// Two images with the same rows, the second with halved scores: the top 5 over both images are
    /// 0.9, 0.85, 0.5 and 0.5 from the first and 0.45 from the second; within an image, levels stay
    /// in order.
    #[test]
    fn nms_batch_scope_limits_proposals_per_image_group() {
        let twice = |tensor: &HostTensor, shape: &[usize], factor: f32| {
            let values: Vec<f32> = tensor.as_f32().iter().map(|v| v * factor).collect();
            let all = [tensor.as_f32(), &values].concat();
            floats(tensor.desc.role, shape, all)
        };
        let [boxes, scores, levels, idx] = &hand_boxes()[..] else { unreachable!() };
        let ids: Vec<i32> = idx.as_i32().iter().chain(&[40, 41, 42, 53, 54, 55]).copied().collect();
        let inputs = [
            twice(boxes, &[2, 6, 4], 1.0),
            twice(scores, &[2, 6], 0.5),
            levels.clone(),
            index(&[2, 6], &ids),
        ];
        let outputs = run(&op(5, ProposalScope::Batch { images: 2 }), &inputs);
        assert_eq!(outputs[3].as_i32(), [4, 1]);
        assert_eq!(outputs[2].as_i32(), [10, 12, 23, 24, -1, 40, -1, -1, -1, -1]);
        let outputs = run(&op(3, ProposalScope::Batch { images: 1 }), &inputs);
        assert_eq!(outputs[2].as_i32(), [10, 12, 23, 40, 42, 53]);
        let one_a_level = ProposalScope::Batch { images: 2 };
        let one_a_level = NmsProposals { level_top_n: Some(1), ..op(5, one_a_level) };
        let outputs = run(&one_a_level, &inputs);
        assert_eq!(outputs[2].as_i32(), [10, 23, -1, -1, -1, 40, 53, -1, -1, -1]);
        let error = refusal(&op(1, ProposalScope::Batch { images: 3 }), &inputs);
        assert!(error.contains("a divisor of 2"), "{error}");
    }
}
