//! RoI heads. A head is self-contained: it defines its batch arrays, layers, targets and losses,
//! and how its predictions are decoded and scored.
//!
//! A new head needs a file in this folder, a line in `HEADS`, and its table of keys in
//! `detectors!`. A separate program adds custom heads with [`register`], without changing this file
//! (`engine/examples/custom_head.rs`).

mod box_head;
mod conv;
pub(crate) mod keypoint_head;
pub(crate) mod mask_head;
mod pool;

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

use configs::Check;
use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{Column, ObjectView, Stores};
use graph::{GraphError, TensorId};
use kernels::cpu::HostTensor;
use score::IouType;

use self::box_head::BoxHead;
use crate::config::{Config, Model, Tensor};

pub use self::keypoint_head::seen_keypoints;
pub use self::pool::pool;
pub use super::rois::{LabelledRois, Rois, SampledRois};
pub use crate::model::detectors::{Pair, Place};
pub use crate::model::found::Found;
pub use crate::model::inputs::{ImageInputs, ObjectInputs};
pub use crate::model::net::{ConvShape, Loss, Net, Truth};
pub use crate::model::schema::{Array, Extent};

/// A head that runs on positive RoIs in training, and on detections in inference.
pub trait RoiHead: Debug + Send + Sync {
    /// The arrays that a training step needs in addition to [`ImageInputs`] and [`ObjectInputs`].
    /// Each is a program input with the array's name.
    fn arrays(&self) -> Vec<Array> {
        vec![]
    }

    /// Fills the head's arrays for image `image` of the stores; called after the image's view is
    /// filled. `objects` are in the order of the rows of [`ObjectInputs`], without crowds and, if
    /// box corners are inclusive, without objects of zero area.
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

    /// Adds the head to a training step; `maps` is the pyramid, finest first. Returns its losses,
    /// each `[1]`.
    ///
    /// # Errors
    /// A config that an op rejects.
    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError>;

    /// Adds the head to the detection pass, with its predictions for each detection as output
    /// tensors [`Self::outputs`].
    ///
    /// # Errors
    /// A config that an op rejects.
    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError>;

    /// Names of the output tensors that [`Self::decode`] reads, each `[N*D, ..]`.
    fn outputs(&self) -> &'static [&'static str];

    /// Adds the prediction in row `row` of the outputs to a detected object.
    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found);

    /// Additional scores, by name. `pairs` returns matched annotated objects and detections;
    /// `stores` contains the objects.
    fn numbers<'a>(
        &self,
        _stores: &'a Stores,
        _pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        vec![]
    }

    /// The IoU type computed for its predictions, if any.
    fn iou_type(&self) -> Option<IouType> {
        None
    }
}

/// Detections of a batch, compacted: boxes as RoIs, and labels `[N*D]`.
#[derive(Debug, Clone, Copy)]
pub struct Detections {
    /// The boxes.
    pub rois: Rois,
    /// Class of each detection, from 1.
    pub labels: TensorId,
}

/// Creates a head for a model; `None` if the model does not use it.
pub type MakeHead = fn(&Model) -> Option<Box<dyn RoiHead>>;

/// A head of this crate; its table of keys is a field of [`Model`].
pub(super) struct HeadEntry {
    pub(super) make: MakeHead,
    /// Checks its keys.
    pub(super) check: fn(&Config, &mut Check),
    /// Keys and tables that a model without this head does not read.
    pub(super) keys: &'static [&'static str],
    /// The key of its loss in `[loss_weights]`.
    pub(super) loss: &'static str,
    /// Its largest tensors, if the model has this head.
    pub(super) tensors: fn(&Config) -> Vec<Tensor>,
    /// Key and length of each numeric list in annotations that the head is trained on; stores
    /// contain them as columns ([`dali::store::column`]).
    pub(super) columns: &'static [(&'static str, usize)],
}

/// All heads except the box head, in the order of their losses; `train.best_metric = "auto"`
/// selects the IoU type of a model's last head.
pub(super) const HEADS: &[HeadEntry] = &[mask_head::ENTRY, keypoint_head::ENTRY];

static REGISTERED: RwLock<Vec<MakeHead>> = RwLock::new(Vec::new());

/// Adds a head to every model that this process creates from now on. Call it before any other
/// function of this crate.
pub fn register(make: MakeHead) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(make);
}

/// The keys of the heads that the model lacks; for `None`, of all heads.
pub(super) fn idle_keys(model: Option<&Model>) -> impl Iterator<Item = &'static [&'static str]> {
    let is_idle = move |head: &&HeadEntry| model.is_none_or(|model| (head.make)(model).is_none());
    HEADS.iter().filter(is_idle).map(|head| head.keys)
}

/// The losses of the model's heads.
pub(super) fn losses(model: &Model) -> impl Iterator<Item = &'static str> {
    HEADS.iter().filter(|head| (head.make)(model).is_some()).map(|head| head.loss)
}

/// The store columns that the heads need.
pub(crate) fn columns() -> Vec<Column> {
    let all = HEADS.iter().flat_map(|head| head.columns);
    all.map(|(name, width)| Column { name: (*name).into(), width: *width }).collect()
}

/// The heads of a model.
#[derive(Debug)]
pub(super) struct RoiHeads {
    /// Turns proposals into detections.
    box_head: BoxHead,
    /// Heads that add predictions to each detection.
    pub(super) further: Vec<Box<dyn RoiHead>>,
}

impl RoiHeads {
    pub(super) fn of(model: &Model) -> Self {
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        let own = HEADS.iter().map(|head| head.make);
        let further =
            own.chain(registered.iter().copied()).filter_map(|make| make(model)).collect();
        Self { box_head: BoxHead::of(model), further }
    }

    /// Adds all heads to a training step. Returns their losses, in the order of the heads.
    pub(super) fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let mut losses = self.box_head.losses(net, maps, sampled, truth)?;
        for head in &self.further {
            losses.extend(head.losses(net, maps, sampled, truth)?);
        }
        Ok(losses)
    }

    /// Adds all heads to the detection pass, and outputs their predictions.
    pub(super) fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        proposals: Rois,
        images: ImageInputs,
    ) -> Result<(), GraphError> {
        let detections = self.box_head.detect(net, maps, proposals, images)?;
        self.further.iter().try_for_each(|head| head.detect(net, maps, detections))
    }
}
