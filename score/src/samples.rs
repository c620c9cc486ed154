//! Small annotations and detections for the tests.

use super::{Detection, GroundTruth, GtAnnotation, GtCategory, GtImage, ScoreError};

/// An object without a mask, whose area is its box's.
pub(super) fn object(
    id: u64,
    image_id: u64,
    category_id: u64,
    bbox_xywh: [f64; 4],
) -> GtAnnotation {
    let (area, iscrowd, mask, keypoints) = (None, false, None, None);
    GtAnnotation { id, image_id, category_id, bbox_xywh, area, iscrowd, mask, keypoints }
}

/// A detection without a mask.
pub(super) fn detection(
    image_id: u64,
    category_id: u64,
    bbox_xywh: [f64; 4],
    score: f64,
) -> Detection {
    Detection { image_id, category_id, score, bbox_xywh, ..Detection::default() }
}

/// A ground truth with square images of this side, these objects, and categories given as id and
/// name.
pub(super) fn ground_truth(
    side: u32,
    images: impl IntoIterator<Item = u64>,
    objects: Vec<GtAnnotation>,
    categories: &[(u64, &str)],
) -> Result<GroundTruth, ScoreError> {
    let images = images.into_iter().map(|id| GtImage { id, height: side, width: side });
    let category = |(id, name): &(u64, &str)| GtCategory { id: *id, name: name.to_string() };
    GroundTruth::from_parts(images.collect(), objects, categories.iter().map(category).collect())
}
