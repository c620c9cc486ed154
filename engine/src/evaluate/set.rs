//! The images that a model is evaluated on, with their ground truth; scores detections.

use std::collections::{BTreeSet, HashMap};
use std::sync::OnceLock;

use crate::config::Config;
use score::{Analysis, Detection, GroundTruth, IouType};

use super::image::Image;
use super::pairs::pairs;
use super::postprocess::ImageDetections;
use super::{Evaluation, ground_truth};
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::roi_heads::Found;
use crate::model::{Detector, detector};
use crate::progress::counted;

/// Images to evaluate on. Scoring needs no device, so it can run on a separate thread.
#[derive(Debug)]
pub struct EvaluationSet {
    data: DataSet,
    images: Vec<usize>,
    /// OKS sigmas of keypoints; `None` selects the defaults.
    oks_sigmas: Option<Vec<f64>>,
    /// Read on first use.
    truth: OnceLock<GroundTruth>,
    /// The model's detector, which defines the IoU types.
    detector: Box<dyn Detector>,
}

impl EvaluationSet {
    /// The first `eval.max_images` images of `data`, or all if that is 0; does not read annotations
    /// yet.
    pub fn new(config: &Config, data: DataSet) -> Self {
        let mut images: Vec<usize> = (0..data.images.len()).collect();
        if config.eval.max_images > 0 {
            images.truncate(config.eval.max_images);
        }
        let detector = detector(&config.model);
        let sigmas = config.eval.oks_sigmas.clone();
        let oks_sigmas = (!sigmas.is_empty()).then_some(sigmas);
        Self { data, images, oks_sigmas, truth: OnceLock::new(), detector }
    }

    /// A text with the number of images and their data set, to be printed with the scores.
    pub fn describe(&self, config: &Config) -> String {
        let (of, all) = (self.images.len(), self.data.images.len());
        let count = match of == all {
            true => format!("all {}", counted(all, "image")),
            false => format!("{of} of {} (eval.max_images={of})", counted(all, "image")),
        };
        let training = match config.eval.train_set {
            true => ", the training images (eval.train_set=true)",
            false => "",
        };
        format!("scoring {count} of {}{training}", self.data.store)
    }

    /// A warning if the model was trained on some of these images.
    pub(crate) fn warn_of_shared(&self, trained_on: &DataSet) -> Option<String> {
        let (shared, all) = (self.data.count_shared(&self.images, trained_on), self.images.len());
        (shared > 0).then(|| {
            format!(
                "warning: {shared} of the {} to evaluate ({}) are also trained on ({}), \
                 so the scores say little about new images; remove them from one of the two",
                counted(all, "image"),
                self.data.store,
                trained_on.store
            )
        })
    }

    /// The ground truth, read on first use.
    ///
    /// # Errors
    /// An annotation without a valid mask.
    pub fn truth(&self) -> Result<&GroundTruth, EngineError> {
        if let Some(truth) = self.truth.get() {
            return Ok(truth);
        }
        let truth = ground_truth::of_images(&self.data, &self.images)?;
        let truth = truth.with_sigmas(self.oks_sigmas.clone());
        Ok(self.truth.get_or_init(|| truth))
    }

    /// Evaluates the detections in these images, for each of the model's IoU types. An image
    /// missing from `found` counts as an image without detections.
    ///
    /// # Errors
    /// Detections that are not valid COCO results.
    pub fn score(&self, found: &[ImageDetections]) -> Result<Evaluation, EngineError> {
        let ids: Vec<u64> = self.data.categories().iter().map(|(_, id)| *id).collect();
        // A model's class may have no category in the data; its detections are omitted from the
        // results.
        let known: BTreeSet<u64> =
            self.data.store.contents().categories.iter().map(|c| c.coco_id).collect();
        let detections: Vec<Detection> = found
            .iter()
            .flat_map(|image| image.to_coco(&ids))
            .filter(|detection| known.contains(&detection.category_id))
            .collect();
        let truth = self.truth()?;
        let score = |kind: &IouType| -> Result<_, EngineError> {
            Ok((*kind, score::evaluate(truth, &detections, *kind)?))
        };
        Ok(Evaluation {
            scores: self.detector.kinds_of_scores().iter().map(score).collect::<Result<_, _>>()?,
            numbers: self
                .detector
                .numbers(&self.data.store, &|| pairs(&self.data, &self.images, found)),
            detections,
            keypoint_order: self.data.keypoints_of_file(),
        })
    }

    /// Analyses an evaluation of these images, for each IoU type.
    ///
    /// # Errors
    /// Detections that are not valid COCO results.
    pub fn analyze(&self, evaluation: &Evaluation) -> Result<Vec<Analysis>, EngineError> {
        let truth = self.truth()?;
        let analyze = |kind| score::analyze(truth, &evaluation.detections, kind);
        evaluation.scores.keys().map(|kind| Ok(analyze(*kind)?.1)).collect()
    }

    /// The annotated objects and the detected objects of the image at position `image` in the data
    /// set.
    ///
    /// # Errors
    /// An annotation without a valid mask.
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
            let points = d.keypoints.as_ref();
            let keypoints = points.map(|p| p.iter().map(|p| p.map(|v| v as f32)).collect());
            let found = Found::new(label, d.score as f32, [x, y, x + w, y + h], mask);
            Some(Found { keypoints, ..found })
        });
        let found = ImageDetections { image_id: truth.image_id, objects: found.collect() };
        Ok((truth, found))
    }

    /// The data set.
    pub fn data(&self) -> &DataSet {
        &self.data
    }

    /// The images, by position in the data set.
    pub fn images(&self) -> &[usize] {
        &self.images
    }

    /// Each image's position in the data set, by image id.
    pub fn positions(&self) -> HashMap<u64, usize> {
        let id = |position: usize| self.data.store.image(self.data.images[position]).image_id;
        self.images.iter().map(|&position| (id(position), position)).collect()
    }

    /// Reads the image at this position in the data set.
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
}
