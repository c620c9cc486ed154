//! Reads the ground truth for scoring from a data set's store.

use dali::store::{Category, ObjectView, Segmentation};
use score::{GroundTruth, GtAnnotation, GtCategory, GtImage, GtMask, Rle};

use super::MAX_DRAWN;
use super::postprocess::ImageDetections;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::roi_heads::Found;

/// Ground truth of the images at these positions in the data set.
pub(super) fn of_images(data: &DataSet, images: &[usize]) -> Result<GroundTruth, EngineError> {
    let categories = &data.store.contents().categories;
    let mut gt_images = Vec::new();
    let mut annotations = Vec::new();
    for &image in images {
        let record = data.store.image(data.images[image]);
        let (id, height, width) = (record.image_id, record.height, record.width);
        gt_images.push(GtImage { id, height, width });
        for object in record.objects {
            let view = data.store.object(object);
            annotations.push(GtAnnotation {
                id: view.annotation_id,
                image_id: id,
                category_id: categories[view.label as usize - 1].coco_id,
                bbox_xywh: view.bbox_xywh.map(f64::from),
                area: Some(f64::from(view.area)),
                iscrowd: view.crowd,
                mask: mask(&view, height, width),
                keypoints: keypoints(&view, f64::from),
            });
        }
    }
    let category = |c: &Category| GtCategory { id: c.coco_id, name: c.name.clone() };
    let categories = categories.iter().map(category).collect();
    Ok(GroundTruth::from_parts(gt_images, annotations, categories)?)
}

/// The annotated objects of one image, for a picture, without crowds. Objects beyond [`MAX_DRAWN`]
/// are not drawn and have no masks.
pub(super) fn objects(data: &DataSet, image: usize) -> Result<ImageDetections, EngineError> {
    let record = data.store.image(data.images[image]);
    let (height, width) = (record.height, record.width);
    let class_of_label = data.class_of_label();
    let views = record.objects.map(|object| data.store.object(object));
    let found = views.filter(|view| !view.crowd).enumerate().map(|(i, view)| {
        let [x, y, w, h] = view.bbox_xywh;
        let mask = match mask(&view, height, width).filter(|_| i < MAX_DRAWN) {
            None => None,
            Some(GtMask::Polygons(rings)) => Some(Rle::from_polygons(height, width, &rings)?),
            Some(GtMask::Rle(rle)) => Some(rle),
        };
        let label = class_of_label[view.label as usize] as usize;
        let found = Found::new(label, 1.0, [x, y, x + w, y + h], mask);
        Ok(Found { keypoints: keypoints(&view, |value| value), ..found })
    });
    let objects = found.collect::<Result<_, EngineError>>()?;
    Ok(ImageDetections { image_id: record.image_id, objects })
}

/// An object's keypoints; `None` if its store has none.
fn keypoints<T>(view: &ObjectView<'_>, value: fn(f32) -> T) -> Option<Vec<[T; 3]>> {
    let points = view.keypoints.iter().map(|point| point.map(value));
    (!view.keypoints.is_empty()).then(|| points.collect())
}

/// An object's mask; `None` if it has only a box.
fn mask(view: &ObjectView<'_>, height: u32, width: u32) -> Option<GtMask> {
    Some(match &view.segmentation {
        Segmentation::Polygons(rings) if rings.is_empty() => return None,
        Segmentation::Polygons(rings) => {
            let flat = |ring: &&[f32]| ring.iter().map(|v| f64::from(*v)).collect();
            GtMask::Polygons(rings.iter().map(flat).collect())
        }
        Segmentation::Runs(counts) => GtMask::Rle(Rle { height, width, counts: counts.to_vec() }),
    })
}
