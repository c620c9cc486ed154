//! Test and benchmark cases of `sample_anchors`.

use super::SampleAnchors;
use crate::case::boxes::image_keys;
use crate::case::{OpCase, integers};

/// No image, no anchor, no sample, one of each, prime sizes, more samples than anchors, anchor
/// counts near the block size, and the anchors of an 800x1344 image.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 5, 4),
        (2, 0, 4),
        (2, 5, 0),
        (1, 1, 1),
        (5, 101, 13),
        (5, 101, 256),
        (1, 4200, 9000),
        (2, 4095, 64),
        (3, 4096, 7),
        (2, 4097, 300),
        (2, 268_569, 256),
    ];
    shapes
        .iter()
        .map(|&(n, a, batch)| {
            let inputs = vec![integers(&[n, a], 1, -1, 2), image_keys(n)];
            let op = SampleAnchors { batch, positive_fraction: 0.5, seed: 42 };
            OpCase::new(format!("N {n}, A_total {a}, B {batch}"), op, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::case::hand::run;
    use crate::case::{constant, index};
    use crate::cpu::HostTensor;
    use crate::philox::{Purpose, keyed};

    fn draw(op: &SampleAnchors, inputs: &[HostTensor]) -> (Vec<i32>, Vec<i32>) {
        let outputs = run(op, inputs);
        (outputs[0].as_i32().to_vec(), outputs[1].as_i32().to_vec())
    }

    fn op(batch: usize) -> SampleAnchors {
        SampleAnchors { batch, positive_fraction: 0.5, seed: 1 }
    }

    /// The two positives and the two negatives with the smallest keys; all anchors, if they fit.
    #[test]
    fn sample_anchors_matches_hand_computed_values() {
        let inputs = [index(&[1, 6], [1, 1, 0, 0, 0, 1]), image_keys(1)];
        let drawn = |mut of: [i32; 3]| {
            of.sort_by_key(|i| keyed(1, inputs[1].as_i32(), Purpose::Anchors, *i as u32));
            let mut two = of[..2].to_vec();
            two.sort_unstable();
            two
        };
        let idx = [drawn([0, 1, 5]), drawn([2, 3, 4])].concat();
        assert_eq!(draw(&op(4), &inputs), (idx, vec![2, 4]));
        let all = vec![0, 1, 5, 2, 3, 4, -1, -1];
        assert_eq!(draw(&op(8), &inputs), (all, vec![3, 6]));
        let ignored = [constant(&[1, 6], -1), image_keys(1)];
        assert_eq!(draw(&op(3), &ignored), (vec![-1; 3], vec![0, 0]));
    }

    /// Missing positives are replaced by negatives; missing negatives are not replaced.
    #[test]
    fn missing_positive_anchors_are_replaced_by_negatives() {
        for (positives, negatives) in [(0, 50), (3, 50), (40, 50), (40, 2), (40, 0), (1, 1)] {
            let rest = 100 - positives - negatives;
            let labels = [vec![1; positives], vec![0; negatives], vec![-1; rest]].concat();
            let inputs = [index(&[1, 100], &labels), image_keys(1)];
            let (idx, counts) = draw(&op(16), &inputs);
            let n_pos = positives.min(8);
            let n_neg = negatives.min(16 - n_pos);
            assert_eq!(counts, [n_pos as i32, (n_pos + n_neg) as i32]);
            let drawn = &idx[..n_pos + n_neg];
            assert!(drawn[..n_pos].iter().all(|&i| (i as usize) < positives));
            assert!(
                drawn[n_pos..].iter().all(|&i| (positives..100 - rest).contains(&(i as usize)))
            );
            assert!(drawn[..n_pos].is_sorted_by(|a, b| a < b));
            assert!(drawn[n_pos..].is_sorted_by(|a, b| a < b));
            assert!(idx[n_pos + n_neg..].iter().all(|&i| i == -1));
        }
    }

    /// Over 400 images each of 50 negatives is sampled with probability 8 / 50: 64 times on
    /// average, with a standard deviation of 7.3; the tolerance is five standard deviations, 37.
    #[test]
    fn anchors_are_sampled_uniformly() {
        let inputs = [constant(&[400, 50], 0), image_keys(400)];
        let (idx, _) = draw(&op(8), &inputs);
        let mut drawn = [0; 50];
        idx.iter().for_each(|&i| drawn[i as usize] += 1);
        assert!(drawn.iter().all(|n| (27..=101).contains(n)), "{drawn:?}");
    }

    /// An image's samples depend on its own key, not on the rest of the batch.
    #[test]
    fn images_sample_anchors_independently() {
        let labels = integers(&[1, 200], 4, -1, 2);
        let twice = [labels.as_i32(), labels.as_i32()].concat();
        let (both, _) = draw(&op(16), &[index(&[2, 200], &twice), image_keys(2)]);
        let (alone, _) = draw(&op(16), &[labels, image_keys(1)]);
        assert_eq!(both[..16], alone);
        assert_ne!(both[16..], alone);
    }
}
