//! Converts the outputs of the detection pass to objects in image pixels.

use crate::config::Config;
use kernels::boxes::{Box4, nms_sorted};
use kernels::cpu::HostTensor;
use rayon::prelude::*;
use score::Detection;
use serde::{Deserialize, Serialize};

use super::image::Image;
use crate::dataset::network_size;
use crate::error::EngineError;
use crate::model::roi_heads::{Found, Place};
use crate::model::{DETECTIONS, Detector, detector};
use crate::runtime::Executor;

/// The detections in one image, in order of decreasing score.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ImageDetections {
    /// The image's id.
    pub image_id: u64,
    /// Its objects.
    pub objects: Vec<Found>,
}

impl ImageDetections {
    /// Converts to COCO results; `category_ids[label - 1]` is the COCO id of class `label`.
    /// Detections of classes without an id are omitted: `model.num_classes` may exceed the data's
    /// classes.
    pub fn to_coco<'a>(&'a self, category_ids: &'a [u64]) -> impl Iterator<Item = Detection> + 'a {
        self.objects.iter().filter_map(|object| {
            let [x1, y1, x2, y2] = object.bbox.map(f64::from);
            Some(Detection {
                image_id: self.image_id,
                category_id: *category_ids.get(object.label - 1)?,
                score: f64::from(object.score),
                bbox_xywh: [x1, y1, x2 - x1, y2 - y1],
                segmentation: object.mask.clone(),
                keypoints: object
                    .keypoints
                    .as_ref()
                    .map(|points| points.iter().map(|point| point.map(f64::from)).collect()),
                further: object
                    .further
                    .iter()
                    .map(|(name, own)| (name.clone(), own.iter().copied().map(f64::from).collect()))
                    .collect(),
            })
        })
    }
}

/// Id and size of an image, needed after its pixels are dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    id: u64,
    height: usize,
    width: usize,
}

impl Source {
    /// An image with this id, height and width.
    pub(super) fn new(id: u64, height: usize, width: usize) -> Self {
        Self { id, height, width }
    }

    /// Height and width of the image after resizing for the network.
    pub(super) fn network_size(&self, config: &Config) -> (u32, u32) {
        network_size(config, self.height as u32, self.width as u32)
    }
}

impl From<&Image> for Source {
    fn from(image: &Image) -> Self {
        Self::new(image.id, image.height, image.width)
    }
}

/// A batch's outputs on the host.
#[derive(Debug)]
pub(super) struct Outputs {
    boxes: HostTensor,
    scores: HostTensor,
    labels: HostTensor,
    image_idx: HostTensor,
    count: usize,
    /// Decodes `further`, the model's additional outputs, into each detection.
    detector: Box<dyn Detector>,
    further: Vec<HostTensor>,
}

impl Outputs {
    /// Reads back the results of the last run.
    pub(super) fn read(config: &Config, executor: &Executor) -> Result<Self, EngineError> {
        let detector = detector(&config.model);
        let further = detector.outputs().into_iter().map(|name| executor.read(name));
        let further = further.collect::<Result<_, EngineError>>()?;
        let [boxes, scores, labels, image_idx, _, count] = DETECTIONS;
        Ok(Self {
            boxes: executor.read(boxes)?,
            scores: executor.read(scores)?,
            labels: executor.read(labels)?,
            image_idx: executor.read(image_idx)?,
            count: executor.read(count)?.as_i32()[0] as usize,
            detector,
            further,
        })
    }

    /// Splits the detections by image, and scales them to image pixels.
    pub(super) fn split(&self, config: &Config, images: &[Source]) -> Vec<ImageDetections> {
        let sizes: Vec<_> = images.iter().map(|image| image.network_size(config)).collect();
        let (boxes, scores) = (self.boxes.as_f32(), self.scores.as_f32());
        let (labels, image_idx) = (self.labels.as_i32(), self.image_idx.as_i32());
        // The last batch may have fewer images than the program was planned for; detections of
        // missing images are meaningless, and come last, as detections are in image order.
        let is_here = |image: &i32| (*image as usize) < images.len();
        let count = image_idx[..self.count].partition_point(is_here);
        let inclusive = config.model.boxes.legacy_plus_one;
        let stay = match config.model.detections.class_agnostic_nms_threshold {
            Some(threshold) => {
                let (boxes, _) = boxes.as_chunks();
                stay_in_any_class(&boxes[..count], &image_idx[..count], threshold, inclusive)
            }
            None => (0..count).collect(),
        };
        let found = stay.into_par_iter().filter_map(|i| {
            let image = image_idx[i] as usize;
            let Source { height, width, .. } = images[image];
            let ratio =
                (width as f32 / sizes[image].1 as f32, height as f32 / sizes[image].0 as f32);
            let scale = |k: usize| if k.is_multiple_of(2) { ratio.0 } else { ratio.1 };
            let bbox = [0, 1, 2, 3].map(|k| boxes[4 * i + k] * scale(k));
            let place = Place { bbox, height, width };
            let bbox =
                if inclusive { [bbox[0], bbox[1], bbox[2] + 1.0, bbox[3] + 1.0] } else { bbox };
            // Zero-area boxes occur only if `model.detections.min_size` is 0.
            let has_area = bbox[2] > bbox[0] && bbox[3] > bbox[1];
            if !has_area {
                return None;
            }
            let mut object = Found::new(labels[i] as usize, scores[i], bbox, None);
            self.detector.decode(&self.further, i, place, &mut object);
            Some((image, object))
        });
        let found: Vec<_> = found.collect();
        let mut results: Vec<ImageDetections> = images
            .iter()
            .map(|image| ImageDetections { image_id: image.id, objects: Vec::new() })
            .collect();
        for (image, object) in found {
            results[image].objects.push(object);
        }
        results
    }
}

/// Class-agnostic NMS: drops a detection whose IoU with a higher-scoring one in the same image
/// exceeds `threshold`. Returns the indices that remain. The detections of an image are contiguous,
/// in order of decreasing score.
fn stay_in_any_class(
    boxes: &[Box4],
    image_idx: &[i32],
    threshold: f32,
    plus_one: bool,
) -> Vec<usize> {
    let mut stay = Vec::new();
    let mut first = 0;
    for image in image_idx.chunk_by(|a, b| a == b) {
        let of_image = &boxes[first..first + image.len()];
        let kept = nms_sorted(of_image, threshold, plus_one, usize::MAX);
        stay.extend(kept.into_iter().map(|i| first + i));
        first += image.len();
    }
    stay
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nms_suppresses_only_within_an_image() {
        let at = |x: f32| [x, 0.0, x + 10.0, 10.0];
        let boxes = [at(0.0), at(1.0), at(30.0), at(0.0), at(9.0), at(2.0)];
        let images = [0, 0, 0, 1, 1, 1];
        let stay = |threshold| stay_in_any_class(&boxes, &images, threshold, false);
        assert_eq!(stay(0.5), [0, 2, 3, 4]);
        assert_eq!(stay(0.05), [0, 2, 3]);
        assert_eq!(stay(1.0), [0, 1, 2, 3, 4, 5]);
    }
}
