//! RoI heads. A head is a self-contained value: the batch arrays that it needs, its layers, targets
//! and losses, and how its predictions are decoded and scored.
//!
//! `HEADS` lists them; a new head needs a file next to this one, a line there, and its keys in the
//! list of detectors' tables. A separate program adds its custom heads with [`register`], and
//! leaves this file unchanged (`engine/examples/custom_head.rs`).

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

/// A head that runs on the positives in training, and on the detections in inference.
pub trait RoiHead: Debug + Send + Sync {
    /// The arrays that a training step needs in addition to [`ImageInputs`] and [`ObjectInputs`];
    /// each is a Program's input of its name.
    fn arrays(&self) -> Vec<Array> {
        vec![]
    }

    /// Fills the head's arrays for image `image` of the stores, after its view. `objects` have the
    /// rows of [`ObjectInputs`], in this order: neither crowds nor, where boxes are inclusive,
    /// objects without extent.
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

    /// Adds the head to the detection pass, and outputs its predictions per detection under
    /// [`Self::outputs`].
    ///
    /// # Errors
    /// A config that an op rejects.
    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError>;

    /// Names of the output tensors that [`Self::decode`] reads, `[N*D, ..]` each.
    fn outputs(&self) -> &'static [&'static str];

    /// Adds the prediction in row `row` of the outputs to a detected object.
    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found);

    /// Additional scores, by name, from annotated objects and their detections, which `pairs`
    /// returns. `stores` has the objects.
    fn numbers<'a>(
        &self,
        _stores: &'a Stores,
        _pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        vec![]
    }

    /// The kind of score that its predictions get, if any.
    fn kind_of_score(&self) -> Option<IouType> {
        None
    }
}

/// Detections of a batch, compacted: their boxes as RoIs, and labels `[N*D]`.
#[derive(Debug, Clone, Copy)]
pub struct Detections {
    /// The boxes.
    pub rois: Rois,
    /// The class of each, from 1.
    pub labels: TensorId,
}

/// Creates a head for a model; `None` for a model that does not use it.
pub type MakeHead = fn(&Model) -> Option<Box<dyn RoiHead>>;

/// A head of this crate. Its keys are a table of [`Model`].
pub(super) struct HeadEntry {
    pub(super) make: MakeHead,
    /// Checks its keys.
    pub(super) check: fn(&Config, &mut Check),
    /// Keys, and tables of keys, that are unused in a model without it.
    pub(super) keys: &'static [&'static str],
    /// Its loss, by its key in `[loss_weights]`.
    pub(super) loss: &'static str,
    /// Its largest tensors, if the model has it.
    pub(super) tensors: fn(&Config) -> Vec<Tensor>,
    /// Numeric lists in annotations that it is trained on, by their key, with their lengths; a
    /// store keeps them ([`dali::store::column`]).
    pub(super) columns: &'static [(&'static str, usize)],
}

/// The heads after the box head, in the order of their losses; a model is evaluated by the score of
/// its last head.
pub(super) const HEADS: &[HeadEntry] = &[mask_head::ENTRY, keypoint_head::ENTRY];

static REGISTERED: RwLock<Vec<MakeHead>> = RwLock::new(Vec::new());

/// Adds a head to each model that this process creates from now on. Call it before anything else.
pub fn register(make: MakeHead) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(make);
}

/// The keys of the heads that a model does not have; without a model, of all heads.
pub(super) fn idle_keys(model: Option<&Model>) -> impl Iterator<Item = &'static [&'static str]> {
    let is_idle = move |head: &&HeadEntry| model.is_none_or(|model| (head.make)(model).is_none());
    HEADS.iter().filter(is_idle).map(|head| head.keys)
}

/// The losses of the heads that a model has.
pub(super) fn losses(model: &Model) -> impl Iterator<Item = &'static str> {
    HEADS.iter().filter(|head| (head.make)(model).is_some()).map(|head| head.loss)
}

/// The columns that heads need in a store.
pub(crate) fn columns() -> Vec<Column> {
    let all = HEADS.iter().flat_map(|head| head.columns);
    all.map(|(name, width)| Column { name: (*name).into(), width: *width }).collect()
}

/// The heads of a model.
#[derive(Debug)]
pub(super) struct RoiHeads {
    /// Turns proposals into detections.
    box_head: BoxHead,
    /// Heads that add to each detection.
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
