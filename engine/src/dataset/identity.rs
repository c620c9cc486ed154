//! The identity of a data set: a hash of everything in it that affects training and scores.

use dali::store::Segmentation;
use sha2::{Digest, Sha256};

use super::DataSet;
use crate::classes::stored_classes;

/// The identities of the sets, joined by `+`. A set's identity is the SHA-256 of its classes,
/// images (with the checksums of their pixels) and objects (with their masks), independent of
/// paths. If the set has keypoints, `:` and the SHA-256 of keypoint names, keypoints and object
/// areas follow.
pub(crate) fn identity_of(data: &DataSet) -> String {
    let sets = 0..data.store.stores().len();
    sets.map(|set| identity_of_set(data, set)).collect::<Vec<_>>().join("+")
}

/// True if two identities may belong to the same data. The part after `:` is compared only if both
/// have it, since older versions did not write it.
pub(crate) fn is_same_data(one: &str, other: &str) -> bool {
    let is_same = |(one, other): (&str, &str)| match (one.split_once(':'), other.split_once(':')) {
        (Some((hash, _)), None) => hash == other,
        (None, Some((hash, _))) => one == hash,
        _ => one == other,
    };
    one.matches('+').count() == other.matches('+').count()
        && one.split('+').zip(other.split('+')).all(is_same)
}

fn identity_of_set(data: &DataSet, set: usize) -> String {
    let mut hash = Sha256::new();
    for (name, id) in stored_classes(&data.categories()) {
        hash_all(&mut hash, name.as_bytes());
        hash.update(id.to_le_bytes());
    }
    let keypoints = data.store.stores().nth(set).and_then(|of| of.header().keypoints.as_ref());
    let mut of_keypoints = keypoints.map(|keypoints| {
        let mut hash = Sha256::new();
        keypoints.names.iter().for_each(|name| hash_all(&mut hash, name.as_bytes()));
        hash
    });
    for &index in data.images.iter().filter(|image| data.store.store_of(**image) == set) {
        let image = data.store.image(index);
        hash.update(image.image_id.to_le_bytes());
        hash.update(
            [image.height, image.width, image.objects.len() as u32].map(u32::to_le_bytes).concat(),
        );
        hash.update(data.store.pixel_checksum(index).to_le_bytes());
        for object in image.objects {
            let object = data.store.object(object);
            hash.update(object.annotation_id.to_le_bytes());
            hash.update([object.label, u32::from(object.crowd)].map(u32::to_le_bytes).concat());
            hash.update(object.bbox_xywh.map(f32::to_le_bytes).concat());
            match object.segmentation {
                Segmentation::Polygons(rings) => {
                    rings.iter().for_each(|ring| hash_all(&mut hash, ring))
                }
                Segmentation::Runs(runs) => hash_all(&mut hash, runs),
            }
            if let Some(hash) = &mut of_keypoints {
                hash.update(object.area.to_le_bytes());
                hash_all(hash, object.keypoints);
            }
        }
    }
    let of_keypoints = of_keypoints.map(|hash| format!(":{}", hex::encode(hash.finalize())));
    hex::encode(hash.finalize()) + &of_keypoints.unwrap_or_default()
}

fn hash_all<T: bytemuck::NoUninit>(hash: &mut Sha256, values: &[T]) {
    hash.update((values.len() as u64).to_le_bytes());
    hash.update(bytemuck::cast_slice::<T, u8>(values));
}
