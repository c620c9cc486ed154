//! Test and benchmark cases of `roi_levels`.

use choices::LevelEps;

use super::RoiLevels;
use crate::case::boxes::boxes;
use crate::case::{OpCase, integers};

/// No RoI, one RoI, a prime number of RoIs, near the block size of 256, and 512 RoIs in each of 12
/// images.
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

#[cfg(test)]
mod tests {
    use super::*;

    use crate::case::hand::{refusal, run, tensor};
    use crate::case::index;

    #[test]
    fn roi_levels_match_hand_computed_boundaries() {
        let sides = [0.0, 111.9, 112.0, 223.9, 224.0, 447.9, 448.0, 9e9, 448.0];
        let rois: Vec<f32> = sides.iter().flat_map(|&s| [1.0, 1.0, 1.0 + s, 1.0 + s]).collect();
        let image_idx = index(&[9], [0, 0, 0, 0, 0, 0, 0, 0, -1]);
        let inputs = [tensor(&[9, 4], rois), image_idx];
        let op = RoiLevels {
            min_level: 2,
            max_level: 5,
            canonical_size: 224.0,
            canonical_level: 4,
            plus_one: false,
            rule: LevelEps::AfterLog,
        };
        assert_eq!(run(&op, &inputs)[0].as_i32(), [0, 0, 1, 1, 2, 2, 3, 3, 0]);
        let inclusive = RoiLevels { plus_one: true, ..op.clone() };
        assert_eq!(run(&inclusive, &inputs)[0].as_i32(), [0, 1, 1, 2, 2, 3, 3, 3, 0]);
        // A side just below a level boundary goes to the upper level only if the epsilon is added
        // after the logarithm.
        let below = 224.0 * (1.0 - 4e-7);
        let side = tensor(&[1, 4], [0.0, 0.0, below, below]);
        for (rule, level) in [(LevelEps::AfterLog, 2), (LevelEps::InLog, 1)] {
            let inputs = [side.clone(), index(&[1], [0])];
            assert_eq!(run(&RoiLevels { rule, ..op.clone() }, &inputs)[0].as_i32(), [level]);
        }
        let error = refusal(&RoiLevels { max_level: 1, ..op }, &inputs);
        assert!(error.contains("max_level"), "{error}");
    }
}
