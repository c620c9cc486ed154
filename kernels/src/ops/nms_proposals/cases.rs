//! Cases of `nms_proposals` for the table of ops.

use std::sync::Arc;

use super::{NmsProposals, ProposalScope};
use crate::boxes::values::{boxes, index};
use crate::case::{OpCase, integers, uniform};
use crate::{Role, TensorDesc};

/// No image, no row, no room, one row, primes, and 2000 a level of a training step.
pub fn cases() -> Vec<OpCase> {
    [(0, 7, 5, 3), (2, 0, 5, 3), (2, 7, 0, 3), (1, 1, 1, 1), (3, 101, 17, 5), (2, 8819, 1000, 5)]
        .iter()
        .flat_map(|&s| [ProposalScope::Image, ProposalScope::Level].map(|scope| (s, scope)))
        .map(|((n, m, post_top_n, num_levels), scope)| {
            let levels: Vec<i32> = (0..m).map(|row| (row * num_levels / m) as i32).collect();
            let inputs = vec![
                boxes(&[n, m, 4], 1, 600.0, 200.0),
                uniform(&TensorDesc::new(Role::Score, &[n, m]), 2, -0.2, 1.0),
                index(&[m], &levels),
                integers(&[n, m], 3, 0, 1000),
            ];
            let op = NmsProposals { threshold: 0.7, post_top_n, plus_one: false, scope };
            OpCase::new(format!("N {n}, M {m}, top {post_top_n}, {scope:?}"), Arc::new(op), inputs)
        })
        .collect()
}
