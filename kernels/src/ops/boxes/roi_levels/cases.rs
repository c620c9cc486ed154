//! Cases of `roi_levels` for the table of ops.

use choices::LevelEps;

use super::RoiLevels;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No RoI, one, a prime, around a block of 256, and 512 of each of 12 images.
pub fn cases() -> Vec<OpCase> {
    [0, 1, 101, 255, 256, 257, 6144]
        .iter()
        .flat_map(|&m| {
            use LevelEps::{AfterLog, InLog};
            let rules = [(false, AfterLog), (true, AfterLog), (false, InLog)];
            rules.map(|(plus_one, rule)| (m, plus_one, rule))
        })
        .map(|(m, plus_one, rule)| {
            let inputs = vec![boxes(&[m, 4], 1, 700.0, 900.0), integers(&[m], 2, -1, 12)];
            let op = RoiLevels {
                min_level: 2,
                max_level: 5,
                canonical_size: 224.0,
                canonical_level: 4,
                plus_one,
                rule,
            };
            let mut label = format!("M {m}, plus_one {plus_one}");
            if rule == LevelEps::InLog {
                label += ", constant in the logarithm";
            }
            OpCase::new(label, op, inputs)
        })
        .collect()
}
