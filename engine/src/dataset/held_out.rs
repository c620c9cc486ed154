//! Selects the images of the training set that are held out for validation (`data.val_fraction`).

use crate::config::Data;
use dali::mix;

use super::Split;

/// True if the image with this [`dali::store::Stores::stable_id`] belongs to the split. Each image
/// is in exactly one split, independent of the other images.
pub(super) fn is_in_split(data: &Data, split: Split, stable_id: u64) -> bool {
    let is_held_out = data.val_fraction > 0.0 && share(stable_id) < data.val_fraction;
    data.val_fraction == 0.0 || is_held_out == (split == Split::Val)
}

/// Hash of an id, as a number from 0 to 1.
fn share(id: u64) -> f64 {
    mix(id) as f64 / u64::MAX as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn held_out_splits_are_disjoint_with_requested_shares() {
        for fraction in [0.1, 0.5] {
            let data = Data { val_fraction: fraction, ..Data::default() };
            let held_out = (0..10_000).filter(|id| is_in_split(&data, Split::Val, *id)).count();
            let trained = (0..10_000).filter(|id| is_in_split(&data, Split::Train, *id)).count();
            assert_eq!(held_out + trained, 10_000);
            // Four standard deviations of a binomial distribution.
            let expected = 10_000.0 * fraction;
            let deviation = (expected * (1.0 - fraction)).sqrt();
            assert!((held_out as f64 - expected).abs() < 4.0 * deviation, "{held_out}");
        }
        let all = Data::default();
        assert!(is_in_split(&all, Split::Train, 7) && is_in_split(&all, Split::Val, 7));
        // The split must never change: old runs would be scored on images that they were trained
        // on.
        let data = Data { val_fraction: 0.2, ..Data::default() };
        let held_out: Vec<u64> = (1..30).filter(|id| is_in_split(&data, Split::Val, *id)).collect();
        assert_eq!(held_out, [3, 10, 18, 21]);
    }
}
