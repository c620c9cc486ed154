//! Evaluation: detects objects in a data set, pastes masks at image size, and computes COCO
//! metrics.

mod detector;
mod ground_truth;
mod image;
mod kept;
mod model;
mod pairs;
mod postprocess;
mod set;
mod split;
mod trained;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::config::Config;
use device::DevicePtr;
use rayon::prelude::*;
use score::{Detection, IouType, Summary};

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::{Backend, ModelState};

pub use crate::model::roi_heads::Found;
use detector::RawDetections;
pub use detector::{DetectionMemory, Detector, Stages};
pub use image::Image;
use kept::KeptInputs;
pub use model::DetectionModel;
pub use postprocess::ImageDetections;
use postprocess::Source;
pub use set::EvaluationSet;
pub use split::Gathered;
pub(crate) use trained::config_next_to;
pub use trained::{TrainedCheckpoint, TrainedModel};

/// Number of batches by which the model may be ahead of the thread that pastes masks.
const AHEAD: usize = 4;

/// Maximum number of objects drawn on a picture; a note on the picture states if there are more.
pub(crate) const MAX_DRAWN: usize = 500;

/// Number of batches decoded ahead of the model.
const DECODED_AHEAD: usize = 1;

/// Scores of a model on a data set.
#[derive(Debug, Clone)]
pub struct Evaluation {
    /// Summary of each IoU type (boxes, masks, keypoints) that applies to the model.
    pub scores: BTreeMap<IouType, Summary>,
    /// All detections, as COCO results.
    pub detections: Vec<Detection>,
    /// Additional scores of the model's heads, by name.
    pub numbers: Vec<(String, f64)>,
    /// For each keypoint of the annotation file, its index in a detection; `None` if the orders are
    /// equal.
    pub keypoint_order: Option<Vec<usize>>,
}

impl Evaluation {
    /// An empty evaluation.
    pub fn none() -> Self {
        Self {
            scores: BTreeMap::new(),
            detections: Vec::new(),
            numbers: Vec::new(),
            keypoint_order: None,
        }
    }

    /// The summaries that exist, each with COCO's name of its IoU type (`bbox`, `segm`,
    /// `keypoints`).
    pub fn summaries(&self) -> impl Iterator<Item = (&'static str, &Summary)> {
        self.scores.iter().map(|(kind, summary)| (kind.name(), summary))
    }

    /// The detections, with keypoints in the order of the annotation file.
    fn as_in_file(&self) -> Cow<'_, [Detection]> {
        let mut detections = Cow::Borrowed(self.detections.as_slice());
        if let Some(order) = &self.keypoint_order {
            for points in detections.to_mut().iter_mut().filter_map(|of| of.keypoints.as_mut()) {
                *points = order.iter().map(|place| points[*place]).collect();
            }
        }
        detections
    }

    /// Writes COCO results files (`bbox.json`, `segm.json`, ..) into the folder `dir`.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn write(&self, dir: &Path) -> Result<(), EngineError> {
        let detections = self.as_in_file();
        self.scores.keys().try_for_each(|kind| {
            let file = dir.join(format!("{kind}.json"));
            Ok(score::write_results_json_of(&file, &detections, *kind)?)
        })
    }
}

/// Runs the detection pass over a data set and scores it.
#[derive(Debug)]
pub struct Evaluator {
    set: Arc<EvaluationSet>,
    detector: Detector,
    kept: KeptInputs,
}

/// The detections of images, each with the image's position in the requested list.
type Positioned = Vec<(usize, ImageDetections)>;

impl Evaluator {
    /// Plans the detection pass for the padded shapes of `data`. `classes` is the trained model's
    /// number of classes, `state` its state. Annotations are read later, when they are needed.
    ///
    /// # Errors
    /// A config that describes no valid program, or the state of a different model.
    pub fn new(
        config: &Config,
        mut data: DataSet,
        classes: usize,
        backend: &Backend,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        data.shapes = data.shapes_of_evaluation(config);
        let room = room(config, &data);
        let detector = Detector::new(config, &data.shapes, classes, room, backend, state)?;
        let set = Arc::new(EvaluationSet::new(config, data));
        Ok(Self { set, detector, kept: KeptInputs::nothing() })
    }

    /// Memory that an evaluator needs in addition to the state; on the CPU, an upper bound.
    ///
    /// # Errors
    /// A config that describes no valid program.
    pub fn memory(
        config: &Config,
        data: &DataSet,
        classes: usize,
        backend: &Backend,
    ) -> Result<DetectionMemory, EngineError> {
        let shapes = data.shapes_of_evaluation(config);
        DetectionMemory::plan(config, &shapes, classes, room(config, data), backend)
    }

    /// From now on keeps the images of each batch on the device, for the next evaluation.
    pub fn keep_images(&mut self, backend: &Backend) {
        self.kept = KeptInputs::on(backend);
    }

    /// Detection ends early with [`EngineError::Interrupted`] once this flag is set: on the CPU
    /// before the next launch of a batch, on a device before the next batch.
    pub fn interrupt_by(&mut self, flag: Arc<AtomicBool>) {
        self.detector.interrupt_by(flag);
    }

    /// Detects objects in all images of the set, and scores them.
    ///
    /// # Errors
    /// An image that cannot be read; [`EngineError::Interrupted`].
    pub fn run(
        &mut self,
        state: &mut ModelState,
        progress: &Progress,
    ) -> Result<Evaluation, EngineError> {
        let set = self.set.clone();
        set.truth()?;
        set.score(&self.detect(state, set.images(), progress)?)
    }

    /// Detections in `images`, given by position in the data set.
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

    /// Detections in `batches`, whose positions are indices into `images`; calls `done` after each
    /// batch. While the model runs on a batch, one thread decodes the next batch, and another
    /// pastes the masks of the previous one.
    fn detect_batches(
        &mut self,
        state: &mut ModelState,
        images: &[usize],
        batches: Vec<(usize, Vec<usize>)>,
        progress: &Progress,
        done: &mut dyn FnMut(),
    ) -> Result<Positioned, EngineError> {
        let count: usize = batches.iter().map(|(_, positions)| positions.len()).sum();
        let bar = progress.bar("evaluating", count as u64);
        let config = self.detector.config().clone();
        let set = self.set.clone();
        let batches: Vec<(usize, Vec<usize>, Vec<usize>)> = batches
            .into_iter()
            .map(|(shape, positions)| {
                let batch = positions.iter().map(|p| images[*p]).collect();
                (shape, positions, batch)
            })
            .collect();
        let not_kept = batches.iter().filter(|(.., batch)| self.kept.of(batch).is_none());
        let not_kept: Vec<Vec<usize>> = not_kept.map(|(.., batch)| batch.clone()).collect();
        let found = std::thread::scope(|scope| {
            let (hand, decoded) = std::sync::mpsc::sync_channel(DECODED_AHEAD);
            scope.spawn(move || {
                let load = |image: &usize| set.load(*image);
                let load_all = |batch: Vec<usize>| {
                    batch.par_iter().map(load).collect::<Result<Vec<Image>, EngineError>>()
                };
                // Ends when all batches are sent, or the receiver is dropped.
                not_kept.into_iter().all(|batch| hand.send(load_all(batch)).is_ok())
            });
            let (give, take) = std::sync::mpsc::sync_channel::<(Vec<usize>, RawDetections)>(AHEAD);
            let pasting = scope.spawn(move || {
                let mut found = Vec::with_capacity(count);
                for (positions, raw) in take {
                    found.extend(positions.into_iter().zip(raw.objects(&config)));
                }
                found
            });
            for (shape, positions, batch) in batches {
                let raw = match self.kept.of(&batch) {
                    Some(kept) => self.detect_kept(state, shape, &batch, kept)?,
                    None => {
                        let Ok(images) = decoded.recv() else {
                            unreachable!("each batch that is not kept is decoded")
                        };
                        self.detect_batch(state, shape, &batch, &images?)?
                    }
                };
                bar.inc(positions.len() as u64);
                done();
                // Sending fails only if the pasting thread panicked; `join` below propagates the
                // panic.
                let _ = give.send((positions, raw));
            }
            drop(give);
            match pasting.join() {
                Ok(found) => Ok(found),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        bar.finish_and_clear();
        found
    }

    /// Runs the model on a batch whose inputs were kept on the device. `batch` lists positions in
    /// the data set.
    fn detect_kept(
        &mut self,
        state: &mut ModelState,
        shape: usize,
        batch: &[usize],
        kept: DevicePtr,
    ) -> Result<RawDetections, EngineError> {
        let data = self.set.data();
        let sources = batch.iter().map(|image| {
            let record = data.store.image(data.images[*image]);
            Source::new(record.image_id, record.height as usize, record.width as usize)
        });
        self.detector.run_kept(shape, sources.collect(), kept, state)
    }

    /// Runs the model on decoded images. On a device, keeps them for the next evaluation if
    /// requested and memory permits.
    fn detect_batch(
        &mut self,
        state: &mut ModelState,
        shape: usize,
        batch: &[usize],
        images: &[Image],
    ) -> Result<RawDetections, EngineError> {
        let bytes = self.detector.buffer_bytes(shape);
        let room = self.kept.room(bytes)?;
        let ran = self.detector.run_raw(shape, images, room, state);
        match (room, &ran) {
            (Some(memory), Ok(_)) => self.kept.keep(batch, memory, bytes),
            (Some(memory), Err(_)) => self.kept.give_up(memory),
            (None, _) => {}
        }
        Ok(ran?.0)
    }

    /// A warning if nothing was found because the model computes non-finite values
    /// ([`Detector::why_nothing`]); checks one image.
    ///
    /// # Errors
    /// As for [`Self::detect`].
    pub fn why_nothing(&self, state: &mut ModelState) -> Result<Option<String>, EngineError> {
        let Some((shape, positions)) = self.batches(self.set.images()).into_iter().next() else {
            return Ok(None);
        };
        let image = self.set.load(self.set.images()[positions[0]])?;
        self.detector.why_nothing(shape, &image, state)
    }

    /// Runs each program of a device once on an empty batch.
    ///
    /// # Errors
    /// Device errors.
    pub fn warm_up(&mut self, state: &mut ModelState) -> Result<(), EngineError> {
        self.detector.warm_up(state)
    }

    /// The set that the model is evaluated on.
    pub fn set(&self) -> &Arc<EvaluationSet> {
        &self.set
    }

    /// Bytes of images kept on the device.
    pub fn kept_bytes(&self) -> usize {
        self.kept.bytes()
    }

    /// The batches that [`Self::detect`] runs: for each, the index of its padded shape, and the
    /// positions of its images in `images`.
    pub fn batches(&self, images: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let size = self.detector.batch_size();
        let split = |(shape, positions): (usize, Vec<usize>)| {
            let chunks = positions.chunks(size).map(|chunk| (shape, chunk.to_vec()));
            chunks.collect::<Vec<_>>()
        };
        self.by_shape(images).into_iter().flat_map(split).collect()
    }

    /// The detector that runs the batches.
    pub fn detector_mut(&mut self) -> &mut Detector {
        &mut self.detector
    }

    /// Positions in `images`, grouped by the smallest padded shape that fits.
    fn by_shape(&self, images: &[usize]) -> Vec<(usize, Vec<usize>)> {
        let data = self.set.data();
        let mut groups: Vec<(usize, Vec<usize>)> =
            (0..data.shapes.len()).map(|s| (s, Vec::new())).collect();
        for (position, &image) in images.iter().enumerate() {
            let (height, width) = data.sizes[image];
            let shapes = data.shapes.iter().enumerate();
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

/// Number of images in a batch, and bytes of source pixels of the largest image.
fn room(config: &Config, data: &DataSet) -> (usize, usize) {
    (config.eval.batch_size, data.slot_shape().pixels)
}

/// Sorts the detections of `count` images by position.
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
