//! `nms_proposals` by hand, and against a plain formulation on random input.

use super::{NmsProposals, ProposalScope, cases};
use crate::boxes::{as_boxes, iou};
use crate::case::boxes::index;
use crate::cpu::HostTensor;
use crate::on_cpu::run;
use crate::{Role, TensorDesc};

fn by_hand() -> Vec<HostTensor> {
    let (a, b) = ([0.0, 0.0, 10.0, 10.0], [0.0, 0.0, 10.0, 9.0]);
    let far = [50.0, 50.0, 60.0, 60.0];
    let boxes = [a, b, far, b, far, a].concat();
    let scores = vec![0.9, 0.8, 0.5, 0.85, 0.5, -1.0];
    vec![
        HostTensor::f32(TensorDesc::new(Role::Box, &[1, 6, 4]), boxes),
        HostTensor::f32(TensorDesc::new(Role::Score, &[1, 6]), scores),
        index(&[6], &[0, 0, 0, 1, 1, 1]),
        index(&[1, 6], &[10, 11, 12, 23, 24, 25]),
    ]
}

fn op(post_top_n: usize, scope: ProposalScope) -> NmsProposals {
    NmsProposals { threshold: 0.7, post_top_n, plus_one: false, scope }
}

/// Row 1 falls to row 0; row 3 is of another level; row 5 does not count.
#[test]
fn image_scope_ranks_all_levels() {
    let outputs = run(&op(5, ProposalScope::Image), &by_hand()).unwrap();
    assert_eq!(outputs[2].as_i32(), [10, 23, 12, 24, -1]);
    assert_eq!(outputs[1].as_f32(), [0.9, 0.85, 0.5, 0.5, 0.0]);
    assert_eq!(outputs[3].as_i32(), [4]);
    let outputs = run(&op(3, ProposalScope::Image), &by_hand()).unwrap();
    assert_eq!(outputs[2].as_i32(), [10, 23, 12]);
}

#[test]
fn level_scope_keeps_the_levels_apart() {
    let outputs = run(&op(1, ProposalScope::Level), &by_hand()).unwrap();
    assert_eq!(outputs[2].as_i32(), [10, 23, -1, -1, -1, -1]);
    let outputs = run(&op(9, ProposalScope::Level), &by_hand()).unwrap();
    assert_eq!(outputs[2].as_i32(), [10, 12, 23, 24, -1, -1]);
    let error = run(&op(1, ProposalScope::Batch), &by_hand()).unwrap_err().to_string();
    assert!(error.contains("not supported yet"), "{error}");
}

/// Independent: a row survives if no better surviving row of its level overlaps it, written as a
/// walk over all rows by comparison of scores.
#[test]
fn equals_the_plain_rule() {
    let case = &cases()[8];
    let (n, m) = (3, 101);
    let (boxes, scores) = (as_boxes(case.inputs[0].as_f32()), case.inputs[1].as_f32());
    let levels = case.inputs[2].as_i32();
    let outputs = run(case.op.as_ref(), &case.inputs).unwrap();
    for image in 0..n {
        let (boxes, scores) = (&boxes[image * m..], &scores[image * m..]);
        let mut order: Vec<usize> = (0..m).filter(|&i| scores[i] >= 0.0).collect();
        order.sort_by(|&a, &b| scores[b].partial_cmp(&scores[a]).unwrap());
        let mut kept: Vec<usize> = Vec::new();
        for i in order {
            let overlaps =
                |&&k: &&usize| levels[k] == levels[i] && iou(&boxes[k], &boxes[i], false) > 0.7;
            if !kept.iter().any(|k| overlaps(&k)) {
                kept.push(i);
            }
        }
        let idx = &case.inputs[3].as_i32()[image * m..];
        let want: Vec<i32> = kept.iter().take(17).map(|&i| idx[i]).collect();
        assert_eq!(outputs[3].as_i32()[image] as usize, want.len());
        assert_eq!(outputs[2].as_i32()[image * 17..][..want.len()], want);
    }
}
