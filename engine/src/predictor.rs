//! Detection on individual images with a trained model, for programs that use this crate and for
//! `onegraph predict`.

use std::collections::BTreeMap;
use std::path::Path;

use crate::config::Config;
use dali::decode::Exif;
use dali::order::PaddedShape;
pub use score::Rle;

use crate::classes::NO_CATEGORY;
use crate::dataset::network_size;
use crate::error::EngineError;
use crate::evaluate::{Detector, Found, Image, ImageDetections, TrainedModel};
use crate::model::classes_of;
use crate::progress::Progress;
use crate::runtime::{Backend, ModelState};

/// A detected object.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The model's class, from 1.
    pub label: usize,
    /// COCO id of the class.
    pub category_id: u64,
    /// Name of the class.
    pub name: String,
    /// Score, 0 to 1.
    pub score: f32,
    /// x1, y1, x2, y2 in image pixels.
    pub bbox: [f32; 4],
    /// Mask at image size, if the model predicts masks; [`Rle::decode`] returns its bitmap.
    pub mask: Option<Rle>,
    /// Keypoints, if the model predicts them: x, y in image pixels, and their score
    /// (`model.keypoint_head.score`).
    pub keypoints: Option<Vec<[f32; 3]>>,
    /// Predictions of custom heads, by name ([`crate::model::roi_heads`]).
    pub further: BTreeMap<String, Vec<f32>>,
}

/// Maximum batch size on a GPU.
const BATCH: usize = 8;
/// Maximum number of cached programs. On a CPU each has its own memory, so only one is cached.
const KEPT_ON_CPU: usize = 1;
const KEPT_ON_DEVICE: usize = 16;

/// Detects objects on images.
#[derive(Debug)]
pub struct Predictor {
    config: Config,
    state: ModelState,
    num_classes: usize,
    classes: Vec<(String, u64)>,
    /// Treatment of files' EXIF rotation: applied, unless it was ignored in the training data.
    exif: Exif,
    backend: Backend,
    /// Cached programs of recently used padded shapes and batch sizes, latest last. Consecutive
    /// images often have the same size, and planning a program takes long.
    planned: Vec<(PaddedShape, Detector)>,
}

impl Predictor {
    /// Opens the last checkpoint of a run, or the checkpoint at `run`.
    ///
    /// # Errors
    /// As for [`TrainedModel::open`].
    pub fn from_run(
        run: &Path,
        overrides: &[String],
        backend: &Backend,
    ) -> Result<Self, EngineError> {
        let model = TrainedModel::open(run, overrides, backend, &Progress::quiet())?;
        Ok(Self::new(model, backend))
    }

    /// Opens a weights file. `config` is a file or preset, by default the `config.toml` next to the
    /// weights.
    ///
    /// # Errors
    /// As for [`TrainedModel::from_weights`].
    pub fn from_weights(
        path: &Path,
        config: Option<&Path>,
        overrides: &[String],
        backend: &Backend,
    ) -> Result<Self, EngineError> {
        let quiet = Progress::quiet();
        let model = TrainedModel::from_weights(path, config, overrides, backend, &quiet)?;
        Ok(Self::new(model, backend))
    }

    /// Uses a model that is already open. `backend` must be the one that it was opened with.
    pub fn new(model: TrainedModel, backend: &Backend) -> Self {
        let classes = model.classes();
        let num_classes = classes_of(&model.params);
        let TrainedModel { config, state, exif, .. } = model;
        let (backend, planned) = (backend.clone(), Vec::new());
        let exif = exif.unwrap_or(Exif::Apply);
        Self { config, state, num_classes, classes, exif, backend, planned }
    }

    /// Names and COCO ids of the classes, from class 1. The name of a class without a category is
    /// [`NO_CATEGORY`].
    pub fn classes(&self) -> &[(String, u64)] {
        &self.classes
    }

    /// Detects objects in an image: `height * width * 3` bytes of RGB, row by row. The detections
    /// are sorted by score, highest first.
    ///
    /// # Errors
    /// A wrong number of bytes, or a device error.
    pub fn predict_rgb(
        &mut self,
        height: usize,
        width: usize,
        rgb: &[u8],
    ) -> Result<Vec<Prediction>, EngineError> {
        let image = Image::from_rgb(0, height, width, rgb.to_vec())?;
        let found = self.detect(&image)?;
        Ok(self.named(found))
    }

    /// Detects objects in a JPEG or PNG file. Its EXIF orientation is applied, unless it was
    /// ignored in the training data ([`Self::exif`]). The detections are sorted by score, highest
    /// first.
    ///
    /// # Errors
    /// A file that cannot be read or decoded; a device error.
    pub fn predict_file(&mut self, path: &Path) -> Result<Vec<Prediction>, EngineError> {
        let (image, _) = self.read(path)?;
        let found = self.detect(&image)?;
        Ok(self.named(found))
    }

    /// Detects objects in several images of any sizes. On a GPU, images with the same padded shape
    /// are batched; an error then applies to all images of the batch.
    pub fn predict_all(&mut self, images: Vec<Image>) -> Vec<Result<Vec<Prediction>, String>> {
        let found = self.detect_all(images).into_iter();
        found.map(|found| Ok(self.named(found?))).collect()
    }

    /// Maximum number of pixels of an image, from the model's config.
    pub fn max_image_pixels(&self) -> usize {
        self.config.data.max_image_pixels
    }

    /// Treatment of files' EXIF rotation.
    pub fn exif(&self) -> Exif {
        self.exif
    }

    /// Reads an image file, with the size limit of the model's config. The image's id is 0. Also
    /// returns the remark of [`Image::read`].
    ///
    /// # Errors
    /// As for [`Image::read`].
    pub fn read(&self, path: &Path) -> Result<(Image, Option<String>), EngineError> {
        Image::read(path, 0, self.config.data.max_image_pixels, self.exif)
    }

    /// Detects objects in one image. Detections of classes without a category are dropped.
    pub(crate) fn detect(&mut self, image: &Image) -> Result<ImageDetections, EngineError> {
        Ok(self.run(self.padded(image), std::slice::from_ref(image))?.swap_remove(0))
    }

    /// Like [`Self::detect`], for several images of any sizes. On a GPU, images with the same
    /// padded shape are divided into batches of 8, 4, 2 and 1, since a program always takes the
    /// time of a full batch. An error applies to all images of its batch.
    pub(crate) fn detect_all(
        &mut self,
        images: Vec<Image>,
    ) -> Vec<Result<ImageDetections, String>> {
        let mut found: Vec<_> = images.iter().map(|_| Err(String::new())).collect();
        let mut by_shape: BTreeMap<_, (Vec<usize>, Vec<Image>)> = BTreeMap::new();
        for (i, image) in images.into_iter().enumerate() {
            let shape = self.padded(&image);
            let (places, images) = by_shape.entry((shape.height, shape.width)).or_default();
            places.push(i);
            images.push(image);
        }
        let largest = if matches!(self.backend, Backend::Cpu) { 1 } else { BATCH };
        for ((height, width), (places, images)) in by_shape {
            let mut done = 0;
            while done < images.len() {
                let batch = (1 << (images.len() - done).ilog2()).min(largest);
                let now = done..done + batch;
                match self.run(PaddedShape { height, width }, &images[now.clone()]) {
                    Ok(objects) => {
                        let objects = objects.into_iter().map(Ok);
                        places[now].iter().zip(objects).for_each(|(i, of)| found[*i] = of);
                    }
                    Err(fault) => {
                        places[now].iter().for_each(|i| found[*i] = Err(fault.to_string()));
                    }
                }
                done += batch;
            }
        }
        found
    }

    /// The padded shape of the network input.
    fn padded(&self, image: &Image) -> PaddedShape {
        let (height, width) = network_size(&self.config, image.height as u32, image.width as u32);
        let pad = |side: u32| (side as usize).next_multiple_of(self.config.input.size_divisor);
        PaddedShape { height: pad(height), width: pad(width) }
    }

    /// Detects objects in one batch of images that have this padded shape.
    fn run(
        &mut self,
        shape: PaddedShape,
        images: &[Image],
    ) -> Result<Vec<ImageDetections>, EngineError> {
        let batch = images.len();
        let fits = |(planned, detector): &(PaddedShape, Detector)| {
            *planned == shape && detector.batch_size() == batch
        };
        let mut detector = match self.planned.iter().position(fits) {
            Some(at) => self.planned.remove(at).1,
            None => {
                self.make_room(&shape, batch);
                let pixels = images.iter().map(|image| image.rgb.len()).max().unwrap_or(0);
                let (config, state, backend) = (&self.config, &mut self.state, &self.backend);
                let size = (batch, pixels);
                let planned =
                    Detector::new(config, &[shape], self.num_classes, size, backend, state);
                // On failure, which may be a lack of memory, all cached programs are dropped.
                planned.inspect_err(|_| self.planned.clear())?
            }
        };
        let mut found = detector.run(0, images, &mut self.state)?;
        self.planned.push((shape, detector));
        let class = |label: usize| self.classes.get(label - 1);
        let is_named = |label| class(label).is_some_and(|(name, _)| name != NO_CATEGORY);
        for found in &mut found {
            found.objects.retain(|object| is_named(object.label));
        }
        Ok(found)
    }

    /// Drops cached programs before a new one is planned: the oldest if the cache is full, and all
    /// if the new program is the largest, since it then gets a new, larger arena.
    fn make_room(&mut self, shape: &PaddedShape, batch: usize) {
        let most = match self.backend {
            Backend::Cpu => KEPT_ON_CPU,
            Backend::Device(_) => KEPT_ON_DEVICE,
        };
        let area = |(shape, of): &(PaddedShape, Detector)| shape.area() * of.batch_size();
        if self.planned.iter().all(|planned| area(planned) < shape.area() * batch) {
            self.planned.clear();
        }
        self.planned.drain(..(self.planned.len() + 1).saturating_sub(most));
    }

    /// If nothing was detected because the model computes non-finite values, a message about that
    /// ([`Detector::why_nothing`]). `image` must have the shape of the last program.
    pub(crate) fn why_nothing(&mut self, image: &Image) -> Result<Option<String>, EngineError> {
        let Some((_, detector)) = self.planned.last() else { return Ok(None) };
        detector.why_nothing(0, image, &mut self.state)
    }

    fn named(&self, found: ImageDetections) -> Vec<Prediction> {
        let named = found.objects.into_iter().filter_map(|object| {
            let (name, category_id) = self.classes.get(object.label - 1)?.clone();
            let Found { label, score, bbox, mask, keypoints, further } = object;
            Some(Prediction { label, category_id, name, score, bbox, mask, keypoints, further })
        });
        named.collect()
    }
}
