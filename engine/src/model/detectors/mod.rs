//! Detectors. A detector is a folder: its keys, layers, losses, detections and names of parameters.
//!
//! Their common part is here: a detector takes the backbone's maps, adds losses to a training step,
//! and the tensors of `DETECTIONS` to the detection pass.

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

/// Output tensors of a detection pass, compacted over the batch in image order, with at most D
/// detections per image: boxes `[N*D, 4]` in network pixels, scores and labels (from 1) `[N*D]`,
/// the image of each `[N*D]`, the number per image `[N]`, and the total `[1]`.
pub(crate) const DETECTIONS: [&str; 6] =
    ["det_boxes", "det_scores", "det_labels", "det_image_idx", "det_counts", "num_detections"];

table! {
    /// `[model.detections]`: from scored boxes to detections.
    pub struct Detections {
        /// Minimum score of a detection (exclusive), 0 to 1. Default 0.05.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub score_threshold: f32 = 0.05,
        /// NMS within a class drops a box whose IoU with a higher-scoring one exceeds this. Default
        /// 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub nms_threshold: f32 = 0.5,
        /// Class-agnostic NMS on the detections that `per_image` keeps: drops a box whose IoU with
        /// a higher-scoring one of any class exceeds this. Default: none.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub class_agnostic_nms_threshold: Option<f32> = None,
        /// Detections kept per image. Default 100, as in COCO.
        #[key(range = 1..=100_000, unit = "detections", resume = Step, mlperf = Model)]
        pub per_image: usize = 100,
        /// Detections with a side below this many pixels of the resized image are dropped. Default
        /// 1e-2 (torchvision); detectron2 0, which drops boxes without area in the image.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub min_size: f32 = 1e-2,
        /// How a mask is pasted into the image: `"integer_box"` (default, torchvision and MLPerf),
        /// into a box rounded to integers, or `"grid_sample"` (detectron2), sampled at pixel
        /// centres, which is more accurate.
        #[key(resume = Step, mlperf = Model)]
        pub paste_rule: PasteRule = PasteRule::IntegerBox,
        /// A pixel is inside the mask above this probability, or with `paste_rule = "grid_sample"`
        /// from it on. Default 0.5.
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
    /// [`super::inputs::ObjectInputs`]; each is a Program's input of its name.
    fn arrays(&self) -> Vec<Array> {
        vec![]
    }

    /// Fills these arrays for image `image` of the stores, after its view; `objects` are the
    /// objects with rows.
    ///
    /// # Errors
    /// An array with another name or size.
    fn fill(
        &self,
        _store: &Stores,
        _image: usize,
        _objects: &[ObjectView<'_>],
        _rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        Ok(())
    }

    /// Adds the detector to a training step, on the backbone's maps, finest first. Returns its
    /// losses, each `[1]`, and the counts of correct predictions if the config requests them.
    ///
    /// # Errors
    /// A config that an op rejects.
    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        truth: &Truth,
    ) -> Result<Losses, GraphError>;

    /// Adds the detector to the detection pass, and outputs the tensors of [`DETECTIONS`] and
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

    /// Names of further output tensors, `[N*D, ..]` each.
    fn outputs(&self) -> Vec<&'static str> {
        vec![]
    }

    /// Adds the prediction in row `row` of these outputs to a detected object.
    fn decode(&self, _outputs: &[HostTensor], _row: usize, _place: Place, _object: &mut Found) {}

    /// Additional scores, by name, from annotated objects and their detections, which `pairs`
    /// returns. `stores` has the objects.
    fn numbers<'a>(
        &self,
        _stores: &'a Stores,
        _pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        vec![]
    }

    /// The kinds of score that its detections get; the model is ranked by the last one.
    fn kinds_of_scores(&self) -> Vec<IouType> {
        vec![IouType::Bbox]
    }
}

/// The part of a training step that a detector adds.
#[derive(Debug)]
pub(crate) struct Losses {
    pub(crate) losses: Vec<Loss>,
    /// Counts of correct predictions, if the config requests accuracies.
    pub(crate) counts: Option<TensorId>,
}

/// An annotated object, and its detection.
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
    /// x1, y1, x2, y2 in image pixels, by the model's convention of boxes.
    pub bbox: [f32; 4],
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub width: usize,
}

/// An object of a data set at network size, as in an evaluation.
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

/// A detector's notes on the objects of a data set.
#[derive(Debug, Default)]
pub(crate) struct ObjectNotes {
    /// Objects that are hard to learn, and their description.
    pub(crate) hard: Option<(usize, &'static str)>,
    /// A section of the page, as HTML.
    pub(crate) section: String,
}

/// A part of a model whose convolutions may have a norm.
#[derive(Debug, Clone)]
pub(crate) struct Normed {
    pub(crate) norm: Option<NormKind>,
    /// Channels that it normalizes, per convolution.
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
    /// Its parts, each with the prefix of its parameters' names.
    parts: &'static [(&'static str, &'static str)],
    /// Accuracies by name, from the counts of a step.
    pub(crate) shares: fn(&[f64]) -> Vec<(&'static str, f32)>,
    /// Notes on objects, for the page of a data set.
    pub(crate) notes: fn(&Config, &[Object]) -> ObjectNotes,
    /// Its keys that only have an effect under some value of another.
    pub(crate) idle: &'static [Idle],
    /// A message for each value that, with the others, leaves a part untrained.
    pub(crate) advice: fn(&Config) -> Vec<String>,
    /// Sets its keys that only training reads, and checks compare with others, to consistent
    /// values.
    pub(crate) to_detect: fn(&mut Model),
    /// Its keys, and tables of keys (`model.rpn.`), that a model does not read: a model of this
    /// family, or without one any model of another family.
    idle_keys: fn(Option<&Model>) -> Vec<&'static [&'static str]>,
    /// A name for it, with the key that sets it, if no other project has such a model.
    pub(crate) own: Option<&'static str>,
    /// The bias of the classifier, which has a value per class, and the number of values before
    /// them: 1 for the background, or 0.
    classifier: (&'static str, usize),
    /// True if the shape of a parameter, by name and torchvision's shape, depends on the number of
    /// classes.
    depends_on_classes: fn(&str, &[usize]) -> bool,
}

/// Passes the detectors to a macro: the kinds of model, each with its family, the tables of keys
/// under `[model]`, and the losses, each with the objects that a model without it does not have.
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
                /// Anchors of the RPN.
                anchors: crate::config::Anchors,
                /// The meaning of a box's corners.
                boxes: crate::config::Boxes,
                /// Region proposal network.
                rpn: crate::config::Rpn,
                /// Sampling of RoIs and pooling of their features.
                roi: crate::config::Roi,
                /// Class and box of an RoI.
                box_head: crate::config::BoxHead,
                /// Further box heads of a Cascade R-CNN.
                cascade: crate::config::Cascade,
                /// Mask of an RoI.
                mask_head: crate::config::MaskHead,
                /// Keypoints of an RoI.
                keypoint_head: crate::config::KeypointHead,
                /// From scored boxes to detections, in evaluation and prediction.
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

/// Finds the family of a kind of model.
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

/// Each family once: several kinds of model may belong to one.
fn families() -> impl Iterator<Item = &'static DetectorEntry> {
    let is_new = |at: usize| !FAMILIES[..at].iter().any(|of| std::ptr::eq(*of, FAMILIES[at]));
    (0..FAMILIES.len()).filter(move |at| is_new(*at)).map(|at| FAMILIES[at])
}

/// The detector of a model.
pub(crate) fn detector(model: &Model) -> Box<dyn Detector> {
    (model.kind.family().make)(model)
}

/// Checks the keys of a model's detector.
pub(crate) fn check(config: &Config, check: &mut Check) {
    (config.model.kind.family().check)(config, check);
    check_detections(config, check);
}

/// The part of a detector that a parameter belongs to, by its name.
pub(crate) fn part_of(name: &str) -> Option<&'static str> {
    let mut parts = FAMILIES.iter().flat_map(|of| of.parts);
    parts.find(|(prefix, _)| name.starts_with(prefix)).map(|(_, part)| *part)
}

/// Keys, and tables of keys, that models of other kinds read and this one does not.
pub(crate) fn idle_keys(model: &Model) -> Vec<&'static [&'static str]> {
    let own = model.kind.family();
    let of_family = |of: &DetectorEntry| (of.idle_keys)(std::ptr::eq(of, own).then_some(model));
    families().flat_map(of_family).collect()
}

/// True if a parameter belongs to a detector, by its name, and not to a backbone.
pub(crate) fn is_of_detector(name: &str) -> bool {
    part_of(name).is_some()
}

/// True if the shape of a parameter, `shape` in torchvision's layout, depends on the number of
/// classes.
pub(crate) fn depends_on_classes(name: &str, shape: &[usize]) -> bool {
    families().any(|of| (of.depends_on_classes)(name, shape))
}

/// Rows of the classifier before those of the classes, and the foreground classes; `rows` returns
/// the number of a parameter's rows.
pub(crate) fn class_rows(rows: impl Fn(&str) -> Option<usize>) -> Option<(usize, usize)> {
    let mut classifiers = families().map(|of| of.classifier);
    classifiers.find_map(|(bias, before)| Some((before, rows(bias)?.checked_sub(before)?)))
}

/// Foreground classes of a model, from the shape of its classifier.
pub fn classes_of(params: &[Param]) -> usize {
    let rows = |bias: &str| Some(params.iter().find(|p| p.name == bias)?.shape[0]);
    class_rows(rows).map_or(0, |(_, classes)| classes)
}
