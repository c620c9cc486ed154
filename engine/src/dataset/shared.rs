//! Finds images that occur in several sets, by size, encoded length and checksum of their pixels.

use std::collections::{HashMap, HashSet};

use crate::config::Data;
use dali::store::Stores;

use super::{DataSet, Split};
use crate::progress::counted;

/// Height and width, encoded length, and checksum: equal for copies of an image, almost never for
/// different images.
type Stamp = ([u32; 2], u64, u32);

fn stamp(store: &Stores, image: usize) -> Stamp {
    let record = store.image(image);
    ([record.height, record.width], record.pixel_bytes, store.pixel_checksum(image))
}

impl DataSet {
    /// Number of this set's images at these positions that `other` also uses. If both sets use the
    /// same stores, images are compared by index, so that copies within a store are not counted.
    pub(crate) fn count_shared(&self, positions: &[usize], other: &DataSet) -> usize {
        let paths = |data: &DataSet| -> Vec<_> {
            data.store.stores().map(|store| store.path().canonicalize().ok()).collect()
        };
        let is_part = paths(self) == paths(other);
        let key = |store, image| if is_part { Err(image) } else { Ok(stamp(store, image)) };
        let images = other.images.iter();
        let known: HashSet<_> = images.map(|image| key(&other.store, *image)).collect();
        let is_known = |at: &&usize| known.contains(&key(&self.store, self.images[**at]));
        positions.iter().filter(is_known).count()
    }
}

/// A warning about images that occur in more than one of a split's sets.
pub(super) fn repeated(
    data: &Data,
    split: Split,
    (store, images): (&Stores, &[usize]),
) -> Option<String> {
    let key = match split {
        _ if store.stores().len() == 1 => return None,
        Split::Train => "data.train",
        // Validation uses the training sets, for which the warning was already printed.
        Split::Val if data.val_fraction > 0.0 => return None,
        Split::Val => "data.val",
    };
    let mut first_in = HashMap::new();
    let is_again = |image: &&usize| {
        let set = store.store_of(**image);
        *first_in.entry(stamp(store, **image)).or_insert(set) != set
    };
    let again = images.iter().filter(is_again).count();
    (again > 0).then(|| {
        format!(
            "{key}: {} in more than one set, used once per set; remove the copies",
            counted(again, "image")
        )
    })
}
