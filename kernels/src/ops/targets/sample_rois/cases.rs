//! Test and benchmark cases of `sample_rois`.

use super::SampleRois;
use crate::case::boxes::{boxes, image_keys};
use crate::case::{OpCase, integers};

/// No image, candidate or sample, one of each, prime sizes, sizes near the block size, a training
/// step, and so few distinct keys that candidates tie.
pub fn cases() -> Vec<OpCase> {
    let shapes = [
        (0, 5, 4, 100_000),
        (2, 0, 4, 100_000),
        (2, 5, 0, 100_000),
        (1, 1, 1, 100_000),
        (5, 101, 13, 100_000),
        (3, 7, 64, 100_000),
        (2, 1023, 100, 100_000),
        (2, 1024, 100, -7),
        (2, 2050, 300, -8),
        (2, 2100, 512, 100_000),
        (5, 9000, 512, 100_000),
    ];
    shapes
        .iter()
        .map(|&(n, c, batch, last_key)| {
            let inputs = vec![
                boxes(&[n, c, 4], 1, 300.0, 200.0),
                integers(&[n, c], 2, -1, 4),
                integers(&[n, c], 3, 0, 7),
                integers(&[n, c], 4, -9, last_key),
                integers(&[n], 5, c as i32 / 2, c as i32 + 1),
                image_keys(n),
            ];
            let op = SampleRois { batch, positive_fraction: 0.25, seed: 42 };
            OpCase::new(format!("N {n}, C {c}, R {batch}, keys to {last_key}"), op, inputs)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::boxes::as_boxes;
    use crate::case::hand::{outputs, run};
    use crate::case::{constant, index};
    use crate::philox::{Purpose, keyed};

    /// Positive 1 of the first image has a larger key than positives 4 and 5.
    #[test]
    fn sample_rois_matches_hand_computed_values() {
        let image_keys = image_keys(2);
        let mut keys = [10, 11, 12];
        keys.sort_by_key(|key| keyed(0, image_keys.as_i32(), Purpose::Rois, *key as u32));
        let [low, middle, high] = keys;
        let inputs = [
            boxes(&[2, 6, 4], 1, 50.0, 20.0),
            index(&[2, 6], [0, 7, -1, 0, 3, 5, 0, 2, 0, 0, 0, 0]),
            index(&[2, 6], [0, 1, 0, 0, 2, 3, 0, 4, 0, 0, 0, 0]),
            index(&[2, 6], [0, high, 0, 0, low, middle, 0, 0, 0, 0, 0, 0]),
            index(&[2], [6, 2]),
            image_keys,
        ];
        let op = SampleRois { batch: 4, positive_fraction: 0.5, seed: 0 };
        let outputs = run(&op, &inputs);
        let ints = |i: usize| outputs[i].as_i32();
        // Image 0: positives 5 and 4 of {1, 4, 5}, negatives 0 and 3; image 1: positive 1 and
        // negative 0.
        assert_eq!(ints(1), [0, 0, 0, 0, 1, 1, -1, -1]);
        assert_eq!(ints(2), [0, 0, 3, 5, 0, 2, -1, -1]);
        assert_eq!(ints(3), [0, 0, 2, 3, 0, 4, -1, -1]);
        assert_eq!(ints(4), [6]);
        assert_eq!(ints(6), [0, 0, 1, -1]);
        assert_eq!(ints(7), [3, 5, 2, -1]);
        assert_eq!(ints(8), [2, 3, 4, -1]);
        assert_eq!(ints(9), [3]);
        let candidates = as_boxes(inputs[0].as_f32());
        let mask_rois = [candidates[4], candidates[5], candidates[7], [0.0; 4]];
        assert_eq!(as_boxes(outputs[5].as_f32()), mask_rois);
        assert_eq!(as_boxes(outputs[0].as_f32())[5], candidates[7]);
        assert_eq!(as_boxes(outputs[0].as_f32())[6], [0.0; 4]);
    }

    /// Candidates in a different order, each with its key, give the same set of RoIs.
    #[test]
    fn roi_sample_depends_on_keys_not_positions() {
        let (c, n) = (61, 1);
        let boxes = boxes(&[n, c, 4], 1, 300.0, 99.0);
        let labels = integers(&[n, c], 2, 0, 3);
        let keys: Vec<i32> = (0..c as i32).map(|i| 1000 - 17 * i).collect();
        let op = SampleRois { batch: 16, positive_fraction: 0.25, seed: 5 };
        let draw = |order: &[usize]| {
            let pick = |values: &[i32]| {
                index(&[n, c], order.iter().map(|&i| values[i]).collect::<Vec<_>>())
            };
            let mut moved = boxes.clone();
            for (to, &from) in order.iter().enumerate() {
                let b = &boxes.as_f32()[4 * from..][..4];
                moved.as_f32_mut()[4 * to..][..4].copy_from_slice(b);
            }
            let matched = constant(&[n, c], 0);
            let counts = constant(&[n], c as i32);
            let inputs =
                [moved, pick(labels.as_i32()), matched, pick(&keys), counts, image_keys(n)];
            let outputs = run(&op, &inputs);
            let mut rois: Vec<[u32; 4]> =
                as_boxes(outputs[0].as_f32()).iter().map(|b| b.map(f32::to_bits)).collect();
            rois.sort_unstable();
            rois
        };
        let forward: Vec<usize> = (0..c).collect();
        let backward: Vec<usize> = (0..c).rev().collect();
        assert_eq!(draw(&forward), draw(&backward));
    }

    #[test]
    fn sampled_roi_lists_are_compact_and_positives_match_labels() {
        for case in cases() {
            let outputs = outputs(&case);
            let count = outputs[4].as_i32()[0] as usize;
            let labels = outputs[2].as_i32();
            assert!(outputs[1].as_i32()[..count].is_sorted(), "{case}");
            assert!(labels[..count].iter().all(|&l| l >= 0), "{case}");
            assert!(labels[count..].iter().all(|&l| l == -1), "{case}");
            let positives: Vec<i32> = labels.iter().copied().filter(|&l| l > 0).collect();
            assert_eq!(outputs[9].as_i32()[0] as usize, positives.len(), "{case}");
            assert_eq!(outputs[7].as_i32()[..positives.len()], positives, "{case}");
        }
    }
}
