//! Matches detections to annotated objects, for additional scores of a model.

use std::collections::HashMap;

use dali::store::ObjectView;
use kernels::boxes::iou;

use super::postprocess::ImageDetections;
use crate::dataset::DataSet;
use crate::model::roi_heads::{Found, Pair};

/// Minimum IoU of a pair.
const MIN_IOU: f32 = 0.5;

/// Pairs of annotated objects (without crowds) and detections in `images`. In order of score, each
/// detection is matched to the unmatched object of its class with the highest IoU, if that is at
/// least 0.5.
pub(super) fn pairs<'a>(
    data: &'a DataSet,
    images: &[usize],
    found: &'a [ImageDetections],
) -> Vec<Pair<'a>> {
    let class_of_label = data.class_of_label();
    let of_images: HashMap<u64, &ImageDetections> =
        found.iter().map(|of| (of.image_id, of)).collect();
    let mut pairs = Vec::new();
    for &image in images {
        let record = data.store.image(data.images[image]);
        let objects = record.objects.map(|object| data.store.object(object));
        let mut left: Vec<ObjectView<'_>> = objects.filter(|object| !object.crowd).collect();
        let of_image = of_images.get(&record.image_id);
        for found in of_image.into_iter().flat_map(|of| &of.objects) {
            let is_of = |object: &ObjectView<'_>| {
                class_of_label[object.label as usize] as usize == found.label
            };
            let overlap = |object: &ObjectView<'_>| overlap(found, object);
            let best = (0..left.len()).filter(|i| is_of(&left[*i]));
            let best = best.max_by(|a, b| overlap(&left[*a]).total_cmp(&overlap(&left[*b])));
            if let Some(best) = best.filter(|best| overlap(&left[*best]) >= MIN_IOU) {
                pairs.push(Pair { object: left.swap_remove(best), found });
            }
        }
    }
    pairs
}

fn overlap(found: &Found, object: &ObjectView<'_>) -> f32 {
    let [x, y, width, height] = object.bbox_xywh;
    iou(&found.bbox, &[x, y, x + width, y + height], false)
}
