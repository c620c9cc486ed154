//! Detectors. Each detector is a folder with its keys, layers, losses, detections and parameter
//! names.
//!
//! This file has the common part: a detector takes the backbone's maps, adds losses to a training
//! step, and adds the tensors of `DETECTIONS` to the detection pass.

pub mod rcnn;

use std::fmt::Debug;

use choices::PasteRule;
use configs::{Check, table};
use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{ObjectView, Stores};
use graph::{GraphError, TensorId};
use kernels::cpu::HostTensor;
use score::IouType;

use super::found::Found;
use super::inputs::ImageInputs;
use super::net::{Loss, Net, Truth};
use super::params::Param;
use super::schema::Array;
use crate::config::{Config, Idle, Model, ModelKind, NormKind, Tensor};

/// Output tensors of a detection pass, with up to D detections per image, compacted over the batch
/// in image order: boxes `[N*D, 4]` in network pixels, scores `[N*D]`, labels from 1 `[N*D]`, image
/// indices `[N*D]`, number of detections per image `[N]`, and in total `[1]`.
pub(crate) const DETECTIONS: [&str; 6] =
    ["det_boxes", "det_scores", "det_labels", "det_image_idx", "det_counts", "num_detections"];

table! {
    /// `[model.detections]`: selection of detections from scored boxes.
    pub struct Detections {
        /// Minimum score of a detection (exclusive), 0 to 1. Default 0.05.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub score_threshold: f32 = 0.05,
        /// NMS within a class drops a box whose IoU with a higher-scoring one exceeds this. Default
        /// 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub nms_threshold: f32 = 0.5,
        /// Class-agnostic NMS, after the selection by `per_image`: drops a box whose IoU with a
        /// higher-scoring one of any class exceeds this. Default: none.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub class_agnostic_nms_threshold: Option<f32> = None,
        /// Detections kept per image. Default 100, as in COCO.
        #[key(range = 1..=100_000, unit = "detections", resume = Step, mlperf = Model)]
        pub per_image: usize = 100,
        /// Detections with a side of less than this many pixels in the resized image are dropped.
        /// Default 1e-2 (torchvision); 0 (detectron2) drops only boxes with zero area.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub min_size: f32 = 1e-2,
        /// How a mask is pasted into the image: `"integer_box"` (default, torchvision and MLPerf)
        /// rounds the box to integers; `"grid_sample"` (detectron2) samples the mask at pixel
        /// centres, which is more accurate.
        #[key(resume = Step, mlperf = Model)]
        pub paste_rule: PasteRule = PasteRule::IntegerBox,
        /// A pixel belongs to the mask if its probability is above this threshold (with `paste_rule
        /// = "grid_sample"`, even if it equals the threshold). Default 0.5.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub mask_threshold: f32 = 0.5,
    }
}

fn check_detections(config: &Config, check: &mut Check) {
    let detections = &config.model.detections;
    check.fraction("model.detections.score_threshold", detections.score_threshold);
    check.fraction("model.detections.nms_threshold", detections.nms_threshold);
    check.at_least_one("model.detections.per_image", detections.per_image);
    check.not_negative("model.detections.min_size", detections.min_size);
    check.fraction("model.detections.mask_threshold", detections.mask_threshold);
}

/// The part of a model after its backbone.
pub(crate) trait Detector: Debug + Send + Sync {
    /// The arrays that a training step needs in addition to [`ImageInputs`] and
    /// [`super::inputs::ObjectInputs`]. Each is a program input with the array's name.
    fn arrays(&self) -> Vec<Array> {
        vec![]
    }

    /// Fills these arrays for image `image` of the stores; called after the image's view is filled.
    /// `objects` are the objects that have rows in [`super::inputs::ObjectInputs`].
    ///
    /// # Errors
    /// An array whose name or size does not match.
    fn fill(
        &self,
        _store: &Stores,
        _image: usize,
        _objects: &[ObjectView<'_>],
        _rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        Ok(())
    }

    /// Adds the detector to a training step; `maps` are the backbone's maps, finest first. Returns
    /// its losses, each `[1]`, and the counts for its accuracies if the config requests them.
    ///
    /// # Errors
    /// A config that an op rejects.
    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        truth: &Truth,
    ) -> Result<Losses, GraphError>;

    /// Adds the detector to the detection pass, with the output tensors [`DETECTIONS`] and
    /// [`Self::outputs`].
    ///
    /// # Errors
    /// A config that an op rejects.
    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        images: ImageInputs,
    ) -> Result<(), GraphError>;

    /// Names of additional output tensors, each `[N*D, ..]`.
    fn outputs(&self) -> Vec<&'static str> {
        vec![]
    }

    /// Adds the prediction in row `row` of the additional outputs to a detected object.
    fn decode(&self, _outputs: &[HostTensor], _row: usize, _place: Place, _object: &mut Found) {}

    /// Additional scores, by name. `pairs` returns matched annotated objects and detections;
    /// `stores` contains the objects.
    fn numbers<'a>(
        &self,
        _stores: &'a Stores,
        _pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        vec![]
    }

    /// The IoU types computed for its detections; `train.best_metric = "auto"` selects the last
    /// one.
    fn kinds_of_scores(&self) -> Vec<IouType> {
        vec![IouType::Bbox]
    }
}

/// The part of a training step that a detector adds.
#[derive(Debug)]
pub(crate) struct Losses {
    pub(crate) losses: Vec<Loss>,
    /// The counts from which accuracies are computed, if the config requests these.
    pub(crate) counts: Option<TensorId>,
}

/// An annotated object and the detection matched to it.
#[derive(Debug, Clone)]
pub struct Pair<'a> {
    /// The object.
    pub object: ObjectView<'a>,
    /// The detection.
    pub found: &'a Found,
}

/// The location of a detection in its image.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// x1, y1, x2, y2 in image pixels, in the model's box convention (`model.boxes`).
    pub bbox: [f32; 4],
    /// Height of the image.
    pub height: usize,
    /// Width of the image.
    pub width: usize,
}

/// Size and centre of a data set's object in network pixels, without augmentation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Object {
    /// Width and height.
    pub(crate) sides: [f64; 2],
    pub(crate) middle: [f64; 2],
}

impl Object {
    /// The square root of its area.
    pub(crate) fn side(&self) -> f64 {
        (self.sides[0] * self.sides[1]).sqrt()
    }
}

/// A detector's notes on the objects of a data set, for the page of `onegraph inspect data`.
#[derive(Debug, Default)]
pub(crate) struct ObjectNotes {
    /// Number of objects that are hard to learn, and their description.
    pub(crate) hard: Option<(usize, &'static str)>,
    /// A section of the page, as HTML.
    pub(crate) section: String,
}

/// A part of a model whose convolutions may have a norm.
#[derive(Debug, Clone)]
pub(crate) struct Normed {
    pub(crate) norm: Option<NormKind>,
    /// Channels normalized after each convolution.
    pub(crate) channels: Vec<usize>,
    /// Its name in messages.
    pub(crate) part: &'static str,
}

/// A family of detectors.
#[derive(Debug)]
pub(crate) struct DetectorEntry {
    make: fn(&Model) -> Box<dyn Detector>,
    /// Checks its keys.
    check: fn(&Config, &mut Check),
    /// Its largest tensors.
    pub(crate) tensors: fn(&Config) -> Vec<Tensor>,
    /// The parts of a model that may have a norm.
    pub(crate) normed: fn(&Model) -> Vec<Normed>,
    /// The losses of a model, by their keys in `[loss_weights]`.
    pub(crate) losses: fn(&Model) -> Vec<&'static str>,
    /// Its parts: the prefix of the parameter names, and the name of the part.
    parts: &'static [(&'static str, &'static str)],
    /// Computes accuracies, by name, from a step's counts of predictions.
    pub(crate) shares: fn(&[f64]) -> Vec<(&'static str, f32)>,
    /// Notes on a data set's objects, for the page of `onegraph inspect data`.
    pub(crate) notes: fn(&Config, &[Object]) -> ObjectNotes,
    /// Its keys that have no effect for certain values of another key.
    pub(crate) idle: &'static [Idle],
    /// Messages about combinations of config values that leave a part of the model untrained.
    pub(crate) advice: fn(&Config) -> Vec<String>,
    /// Sets keys that detection does not read to values that pass the checks.
    pub(crate) to_detect: fn(&mut Model),
    /// Its keys and tables (such as `model.rpn.`) that the given model of this family does not
    /// read; for `None`, all keys and tables that only this family reads.
    idle_keys: fn(Option<&Model>) -> Vec<&'static [&'static str]>,
    /// A description of the detector with its config key, if no other project has such a model.
    pub(crate) own: Option<&'static str>,
    /// Name of the classifier's bias, and the index of the first foreground class in it: 1 with a
    /// background class, else 0.
    classifier: (&'static str, usize),
    /// True if the shape of the parameter with this name and torchvision shape depends on the
    /// number of classes.
    depends_on_classes: fn(&str, &[usize]) -> bool,
}

/// Passes the list of detectors to a macro: the kinds of model with their families, the tables
/// under `[model]`, and the losses. The word after a loss names what it is computed on, which a
/// model without this loss lacks.
macro_rules! detectors {
    ($with:ident) => {
        $with! {
            /// `"mask_rcnn"` (default), `"keypoint_rcnn"` (keypoints instead of masks) or
            /// `"faster_rcnn"` (only boxes).
            kinds {
                /// Boxes and masks.
                MaskRcnn "mask_rcnn" = rcnn,
                /// Boxes only.
                FasterRcnn "faster_rcnn" = rcnn,
                /// Boxes and keypoints.
                KeypointRcnn "keypoint_rcnn" = rcnn,
            }
            tables {
                /// The feature pyramid.
                fpn: crate::config::Fpn,
                /// Anchor boxes of the RPN.
                anchors: crate::config::Anchors,
                /// Convention of box corners.
                boxes: crate::config::Boxes,
                /// Region proposal network.
                rpn: crate::config::Rpn,
                /// Sampling of RoIs and pooling of their features.
                roi: crate::config::Roi,
                /// The head that predicts the class and box of an RoI.
                box_head: crate::config::BoxHead,
                /// Additional box heads of a Cascade R-CNN.
                cascade: crate::config::Cascade,
                /// The head that predicts the mask of an RoI.
                mask_head: crate::config::MaskHead,
                /// The head that predicts the keypoints of an RoI.
                keypoint_head: crate::config::KeypointHead,
                /// Selection of detections from scored boxes.
                detections: crate::config::Detections,
            }
            losses {
                /// Weight of `loss_objectness`. Default 1.
                objectness "anchors",
                /// Weight of `loss_rpn_box_reg`. Default 1.
                rpn_box_reg "anchors",
                /// Weight of `loss_classifier`. Default 1.
                classifier "classes",
                /// Weight of `loss_box_reg`. Default 1.
                box_reg "boxes",
                /// Weight of `loss_mask`. Default 1.
                mask "masks",
                /// Weight of `loss_keypoint`. Default 1.
                keypoint "keypoints",
            }
        }
    };
}
pub(crate) use detectors;

/// Generates the mapping from kinds of model to families.
macro_rules! families {
    (
        $(#[doc = $kinds:tt])*
        kinds { $($(#[doc = $doc:tt])* $kind:ident $word:literal = $family:ident,)* }
        $($rest:tt)*
    ) => {
        impl ModelKind {
            /// Its family of detectors.
            pub(crate) fn family(self) -> &'static DetectorEntry {
                match self {
                    $(Self::$kind => &$family::ENTRY,)*
                }
            }
        }

        const FAMILIES: &[&DetectorEntry] = &[$(&$family::ENTRY),*];
    };
}
detectors!(families);

/// The distinct families: several kinds of model may belong to one family.
fn families() -> impl Iterator<Item = &'static DetectorEntry> {
    let is_new = |at: usize| !FAMILIES[..at].iter().any(|of| std::ptr::eq(*of, FAMILIES[at]));
    (0..FAMILIES.len()).filter(move |at| is_new(*at)).map(|at| FAMILIES[at])
}

/// The detector of a model.
pub(crate) fn detector(model: &Model) -> Box<dyn Detector> {
    (model.kind.family().make)(model)
}

/// Checks the keys of the model's detector.
pub(crate) fn check(config: &Config, check: &mut Check) {
    (config.model.kind.family().check)(config, check);
    check_detections(config, check);
}

/// The part of a detector that the parameter with this name belongs to.
pub(crate) fn part_of(name: &str) -> Option<&'static str> {
    let mut parts = FAMILIES.iter().flat_map(|of| of.parts);
    parts.find(|(prefix, _)| name.starts_with(prefix)).map(|(_, part)| *part)
}

/// Keys and tables that this model does not read, but other kinds of model do.
pub(crate) fn idle_keys(model: &Model) -> Vec<&'static [&'static str]> {
    let own = model.kind.family();
    let of_family = |of: &DetectorEntry| (of.idle_keys)(std::ptr::eq(of, own).then_some(model));
    families().flat_map(of_family).collect()
}

/// True if the parameter with this name belongs to a detector, not to a backbone.
pub(crate) fn is_of_detector(name: &str) -> bool {
    part_of(name).is_some()
}

/// True if the shape of this parameter depends on the number of classes; `shape` is in
/// torchvision's layout.
pub(crate) fn depends_on_classes(name: &str, shape: &[usize]) -> bool {
    families().any(|of| (of.depends_on_classes)(name, shape))
}

/// Number of classifier rows before the foreground classes, and number of foreground classes;
/// `rows` returns the number of rows of a parameter.
pub(crate) fn class_rows(rows: impl Fn(&str) -> Option<usize>) -> Option<(usize, usize)> {
    let mut classifiers = families().map(|of| of.classifier);
    classifiers.find_map(|(bias, before)| Some((before, rows(bias)?.checked_sub(before)?)))
}

/// Number of foreground classes of a model, from the shape of its classifier.
pub fn classes_of(params: &[Param]) -> usize {
    let rows = |bias: &str| Some(params.iter().find(|p| p.name == bias)?.shape[0]);
    class_rows(rows).map_or(0, |(_, classes)| classes)
}
