//! Test and benchmark cases of `mean_logits`.

use super::MeanLogits;
use crate::Role;
use crate::case::{OpCase, uniform};

/// No row, one row, one class, prime sizes, the rows of a block and one row more, and the proposals
/// of an image.
pub fn cases() -> Vec<OpCase> {
    [([0, 3], 2), ([1, 1], 2), ([5, 7], 3), ([9, 33], 2), ([1000, 81], 3)]
        .iter()
        .map(|(shape, stages)| {
            let inputs = (0..*stages)
                .map(|stage| uniform(Role::Activation, shape, stage, -6.0, 6.0))
                .collect();
            OpCase::new(format!("{shape:?}, {stages} stages"), MeanLogits, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::{assert_near, run, tensor};

    /// Probabilities 1/4 and 3/4, and 1/2 twice; large logits do not overflow.
    #[test]
    fn mean_logits_matches_hand_computed_values() {
        let of = |values: [f32; 4]| tensor(&[2, 2], values);
        let sure = 3f32.ln();
        let inputs = [of([0.0, sure, 500.0, 500.0]), of([7.0, 7.0, 500.0, -500.0])];
        let outputs = run(&MeanLogits, &inputs);
        let want = [3.0 / 8.0, 5.0 / 8.0, 3.0 / 4.0, 1.0 / 4.0].map(f32::ln);
        assert_near(outputs[0].as_f32(), &want, 1e-6);
    }
}
