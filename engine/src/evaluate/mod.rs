//! Evaluation: detections on a data set, masks pasted at image size, and COCO's scores.

mod detector;
mod ground_truth;
mod image;
mod model;
mod postprocess;
mod split;
mod trained;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use configs::Config;
use dali::score::{self, Analysis, Detection, GroundTruth, IouType, Summary};

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::{Backend, ModelState};

pub use detector::{Detector, Stages};
pub use image::Image;
pub use model::DetectionModel;
pub use postprocess::{Found, ImageDetections};
pub use trained::TrainedModel;

/// Scores of a model on a data set.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Box scores.
    pub bbox: Option<Summary>,
    /// Mask scores.
    pub segm: Option<Summary>,
    /// All detections, as COCO results.
    pub detections: Vec<Detection>,
}

impl Evaluation {
    /// Nothing was evaluated.
    pub fn none() -> Self {
        Self { bbox: None, segm: None, detections: Vec::new() }
    }

    /// The summaries present, under COCO's type names.
    pub fn summaries(&self) -> impl Iterator<Item = (&'static str, &Summary)> {
        let bbox = self.bbox.as_ref().map(|s| ("bbox", s));
        bbox.into_iter().chain(self.segm.as_ref().map(|s| ("segm", s)))
    }

    /// Writes `bbox.json` and `segm.json`, COCO's results files, into `dir`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), EngineError> {
        std::fs::create_dir_all(dir).map_err(crate::run_dir::io(dir))?;
        let files = [
            (self.bbox.is_some(), "bbox.json", score::Fields::Bbox),
            (self.segm.is_some(), "segm.json", score::Fields::Segm),
        ];
        for (_, name, fields) in files.into_iter().filter(|(scored, ..)| *scored) {
            score::write_results_json_of(&dir.join(name), &self.detections, fields)?;
        }
        Ok(())
    }
}

/// Runs the detection pass over a data set and scores it.
#[derive(Debug)]
pub struct Evaluator {
    data: DataSet,
    detector: Detector,
    ground_truth: GroundTruth,
    images: Vec<usize>,
    masks: bool,
}

impl Evaluator {
    /// Plans the detection pass for the padded shapes of `data`. `classes` and `state` are the
    /// trained model's.
    ///
    /// # Errors
    /// A config that describes no program, or a state of another model.
    pub fn new(
        config: &Config,
        data: DataSet,
        classes: usize,
        backend: &Backend,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let mut images: Vec<usize> = (0..data.images.len()).collect();
        if config.eval.max_images > 0 {
            images.truncate(config.eval.max_images);
        }
        let ground_truth = ground_truth::of_images(&data, &images)?;
        let room = (config.eval.batch_size, data.slot_shape().pixels);
        let detector = Detector::new(config, &data.shapes, classes, room, backend, state)?;
        let masks = config.model.kind.has_masks();
        Ok(Self { data, detector, ground_truth, images, masks })
    }

    /// Detection and scoring end early with [`EngineError::Interrupted`] once this flag is set: on
    /// the CPU before the next launch of a batch, on a device before the next batch.
    pub fn interrupt_by(&mut self, flag: Arc<AtomicBool>) {
        self.detector.interrupt_by(flag);
    }

    /// Detects on every image and scores boxes, and masks if the model has them.
    ///
    /// # Errors
    /// An image that cannot be read; [`EngineError::Interrupted`].
    pub fn run(
        &mut self,
        state: &mut ModelState,
        progress: &Progress,
    ) -> Result<Evaluation, EngineError> {
        let found = self.detect(state, &self.images.clone(), progress)?;
        self.score(&found)
    }

    /// Scores the detections on the evaluated images: boxes, and masks if the model has them. An
    /// image missing from `found` counts as one without detections.
    ///
    /// # Errors
    /// Detections that are not valid COCO results; [`EngineError::Interrupted`].
    pub fn score(&self, found: &[ImageDetections]) -> Result<Evaluation, EngineError> {
        let ids: Vec<u64> = self.data.categories().iter().map(|(_, id)| *id).collect();
        // A class that no category has is not among the results.
        let known: BTreeSet<u64> =
            self.data.store.header().categories.iter().map(|c| c.coco_id).collect();
        let detections: Vec<Detection> = found
            .iter()
            .flat_map(|image| image.to_coco(&ids))
            .filter(|detection| known.contains(&detection.category_id))
            .collect();
        let score = |kind| -> Result<Summary, EngineError> {
            self.detector.check_interrupt()?;
            Ok(score::evaluate(&self.ground_truth, &detections, kind)?)
        };
        let bbox = Some(score(IouType::Bbox)?);
        let segm = if self.masks { Some(score(IouType::Segm)?) } else { None };
        Ok(Evaluation { bbox, segm, detections })
    }

    /// Detections on images given by position in the data set.
    ///
    /// # Errors
    /// An image that cannot be read; [`EngineError::Interrupted`].
    pub fn detect(
        &mut self,
        state: &mut ModelState,
        images: &[usize],
        progress: &Progress,
    ) -> Result<Vec<ImageDetections>, EngineError> {
        let batches = self.batches(images);
        let found = self.detect_batches(state, images, batches, progress, &mut || {})?;
        Ok(in_order(images.len(), found))
    }

    /// Detections on some batches, with the positions of their images in `images`; calls `done`
    /// after each.
    fn detect_batches(
        &mut self,
        state: &mut ModelState,
        images: &[usize],
        batches: Vec<(usize, Vec<usize>)>,
        progress: &Progress,
        done: &mut dyn FnMut(),
    ) -> Result<Vec<(usize, ImageDetections)>, EngineError> {
        let count = batches.iter().map(|(_, positions)| positions.len()).sum();
        let bar = progress.bar("evaluating", count as u64);
        let mut found = Vec::with_capacity(count);
        for (shape, positions) in batches {
            let of_batch = self.detect_batch(state, images, shape, &positions)?;
            bar.inc(positions.len() as u64);
            done();
            found.extend(positions.into_iter().zip(of_batch));
        }
        bar.finish_and_clear();
        Ok(found)
    }

    /// Detections on a batch of one padded shape, given by positions in `images`.
    fn detect_batch(
        &mut self,
        state: &mut ModelState,
        images: &[usize],
        shape: usize,
        positions: &[usize],
    ) -> Result<Vec<ImageDetections>, EngineError> {
        let load = |&position: &usize| self.load(images[position]);
        let batch = positions.iter().map(load).collect::<Result<Vec<_>, _>>()?;
        self.detector.run(shape, &batch, state)
    }

    /// Why nothing was found, if the model computes values that are not finite
    /// ([`Detector::why_nothing`]).
    ///
    /// # Errors
    /// As for [`Self::detect`].
    pub fn why_nothing(&self, state: &mut ModelState) -> Result<Option<String>, EngineError> {
        let Some((shape, positions)) = self.batches(&self.images).into_iter().next() else {
            return Ok(None);
        };
        let image = self.load(self.images[positions[0]])?;
        self.detector.why_nothing(shape, &image, state)
    }

    /// Analyses an evaluation of this data: by boxes, and by masks if they were scored.
    ///
    /// # Errors
    /// Detections that are not valid COCO results.
    pub fn analyze(&self, evaluation: &Evaluation) -> Result<Vec<Analysis>, EngineError> {
        let kinds = evaluation.summaries().map(|(_, summary)| summary.iou_type);
        let analyze = |kind| score::analyze(&self.ground_truth, &evaluation.detections, kind);
        kinds.map(|kind| Ok(analyze(kind)?.1)).collect()
    }

    /// The annotated objects of an image, by position in the data set, and those that an
    /// evaluation detected on it.
    ///
    /// # Errors
    /// Annotations that are no masks.
    pub fn compare(
        &self,
        image: usize,
        evaluation: &Evaluation,
    ) -> Result<(ImageDetections, ImageDetections), EngineError> {
        let truth = ground_truth::objects(&self.data, image)?;
        let ids: Vec<u64> = self.data.categories().iter().map(|(_, id)| *id).collect();
        let of_image = evaluation.detections.iter().filter(|d| d.image_id == truth.image_id);
        let found = of_image.filter_map(|d| {
            let label = 1 + ids.iter().position(|id| *id == d.category_id)?;
            let [x, y, w, h] = d.bbox_xywh.map(|v| v as f32);
            let mask = d.segmentation.clone();
            Some(Found { label, score: d.score as f32, bbox: [x, y, x + w, y + h], mask })
        });
        let found = ImageDetections { image_id: truth.image_id, objects: found.collect() };
        Ok((truth, found))
    }

    /// The data set under evaluation.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// Reads an image, by position in the data set.
    ///
    /// # Errors
    /// An image that cannot be decoded.
    pub fn load(&self, image: usize) -> Result<Image, EngineError> {
        let index = self.data.images[image];
        let record = self.data.store.image(index);
        let mut rgb = Vec::new();
        self.data.store.decode_rgb(index, &mut rgb)?;
        Ok(Image {
            id: record.image_id,
            height: record.height as usize,
            width: record.width as usize,
            rgb,
        })
    }

    /// The batches that [`Self::detect`] runs: an index of a padded shape, and up to a batch of
    /// positions in `images`.
    pub fn batches(&self, images: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let size = self.detector.batch_size();
        let split = |(shape, positions): (usize, Vec<usize>)| {
            let chunks = positions.chunks(size).map(|chunk| (shape, chunk.to_vec()));
            chunks.collect::<Vec<_>>()
        };
        self.by_shape(images).into_iter().flat_map(split).collect()
    }

    /// The images under evaluation, by position in the data set.
    pub fn images(&self) -> &[usize] {
        &self.images
    }

    /// The detector that runs the batches.
    pub fn detector_mut(&mut self) -> &mut Detector {
        &mut self.detector
    }

    /// Positions in `images`, grouped by the smallest padded shape that fits.
    fn by_shape(&self, images: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let mut groups: Vec<(usize, Vec<usize>)> =
            (0..self.data.shapes.len()).map(|s| (s, Vec::new())).collect();
        for (position, &image) in images.iter().enumerate() {
            let (height, width) = self.data.sizes[image];
            let shapes = self.data.shapes.iter().enumerate();
            let fits = shapes.filter(|(_, s)| s.holds(height as usize, width as usize));
            let best = fits.min_by_key(|(_, s)| s.area()).map(|(i, _)| i);
            if let Some(shape) = best {
                groups[shape].1.push(position);
            }
        }
        groups.retain(|(_, positions)| !positions.is_empty());
        groups
    }
}

/// Detections in the order of their positions, of `count` images.
fn in_order(
    count: usize,
    found: impl IntoIterator<Item = (usize, ImageDetections)>,
) -> Vec<ImageDetections> {
    let mut results: Vec<Option<ImageDetections>> = vec![None; count];
    for (position, found) in found {
        if let Some(place) = results.get_mut(position) {
            *place = Some(found);
        }
    }
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests;
