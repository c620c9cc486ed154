//! Test and benchmark cases of `top_k_per_level`.

use super::TopKPerLevel;
use crate::Role;
use crate::case::{OpCase, floats, integers, normal};

/// Height and width of each level.
type Maps<'a> = &'a [(usize, usize)];

/// An empty batch, empty levels, k below, at and above the size of a level, more than eight levels,
/// and the levels of a training step; level sizes near the maximum that CUDA sorts directly
/// (4,096), and a k above it; logits that are mostly equal, some NaN or infinite; and logits that
/// are f32 on every device.
pub fn cases() -> Vec<OpCase> {
    let shapes: [(usize, usize, Maps<'static>); 11] = [
        (4, 0, &[(2, 3)]),
        (4, 1, &[(0, 3), (1, 1)]),
        (0, 2, &[(5, 7)]),
        (105, 2, &[(5, 7), (11, 13)]),
        (104, 2, &[(5, 7), (1, 1)]),
        (7, 1, &[(1, 5); 11]),
        (101, 2, &[(35, 39), (5, 273), (17, 241)]),
        (1222, 1, &[(35, 40); 8]),
        (4000, 1, &[(35, 40)]),
        (5000, 1, &[(41, 43), (37, 61)]),
        (2000, 2, &[(200, 336), (100, 168), (50, 84), (25, 42), (13, 21)]),
    ];
    let random = shapes.iter().map(|&(k, n, maps)| {
        let logits = |(i, &(h, w)): (usize, &(usize, usize))| {
            normal(Role::Activation, &[n, h, w, 3], i as u32, 2.0 * 1.19f32.powi(i as i32))
        };
        let inputs = maps.iter().enumerate().map(logits).collect();
        OpCase::new(format!("k {k}, N {n}, {maps:?}"), TopKPerLevel { k }, inputs)
    });
    let ties = [Role::Activation, Role::Score].map(tied);
    let f32_logits = |h: usize| normal(Role::Score, &[2, h, 29, 3], h as u32, 1e-3);
    let f32s = OpCase::new(
        "k 1000, N 2, f32 on every device",
        TopKPerLevel { k: 1000 },
        vec![f32_logits(101), f32_logits(11)],
    );
    random.chain(ties).chain([f32s]).collect()
}

/// A level of two blocks of logits (`SPAN` each) with few distinct values, in the element type of
/// `role`.
fn tied(role: Role) -> OpCase {
    let shape = [2, 53, 67, 3];
    let special = [-0.0, 0.0, f32::NAN, f32::NEG_INFINITY, f32::INFINITY, -1.0, 1.0];
    let choice = integers(&shape, 5, 0, 400);
    let value = |&i: &i32| special.get(i as usize).copied().unwrap_or(-1.0);
    let values: Vec<f32> = choice.as_i32().iter().map(value).collect();
    let logits = floats(role, &shape, values);
    OpCase::new(format!("k 2000, ties, {role:?}"), TopKPerLevel { k: 2000 }, vec![logits])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{run, tensor};

    /// Ties go to the lower index, 0 and -0 are equal, NaN comes last.
    #[test]
    fn top_k_tie_goes_to_lower_index() {
        let first = tensor(&[1, 1, 3, 2], vec![0.0, 3.0, -0.0, 3.0, f32::NAN, -1.0]);
        let second = tensor(&[1, 1, 1, 2], vec![5.0, 6.0]);
        let outputs = run(&TopKPerLevel { k: 6 }, &[first.clone(), second.clone()]);
        assert_eq!(outputs[0].as_i32(), [1, 3, 0, 2, 5, 4, 7, 6]);
        assert_eq!(outputs[1].as_i32(), [0, 0, 0, 0, 0, 0, 1, 1]);
        let outputs = run(&TopKPerLevel { k: 1 }, &[first, second]);
        assert_eq!(outputs[0].as_i32(), [1, 7]);
        assert_eq!(outputs[1].as_i32(), [0, 1]);
    }
}
