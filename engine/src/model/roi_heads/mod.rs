//! RoI heads. A head is a value that owns all that is its own: the arrays that it needs of a batch,
//! its layers, targets and losses, and how its predictions are decoded and scored.
//!
//! `RoiHeads::of` lists the heads of a model; one more takes a file next to this one and a line
//! there. A program of one's own adds its heads with [`register`], and leaves this one as it is
//! (`engine/examples/own_head.rs`).

mod box_head;
mod conv;
mod found;
mod keypoint_head;
mod mask_head;
mod pool;

use std::fmt::Debug;
use std::sync::{PoisonError, RwLock};

use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{ObjectView, Stores};
use graph::{GraphError, TensorId};
use kernels::cpu::HostTensor;
use score::IouType;

use self::box_head::BoxHead;
use self::keypoint_head::KeypointHead;
use self::mask_head::MaskHead;

pub use self::box_head::classes_of;
pub use self::found::Found;
pub use self::keypoint_head::seen_keypoints;
pub use self::pool::pool;
pub use super::inputs::{ImageInputs, ObjectInputs};
pub use super::net::{ConvShape, Loss, Net, Truth};
pub use super::rois::{LabelledRois, Rois, SampledRois};
pub use super::schema::{Array, Extent};

/// A head that runs on the positives in training, and on the detections in inference.
pub trait RoiHead: Debug + Send + Sync {
    /// The arrays that a training step needs beside [`ImageInputs`] and [`ObjectInputs`]; each is a
    /// Program's input of its name.
    fn arrays(&self) -> Vec<Array> {
        vec![]
    }

    /// Fills the head's arrays for image `image` of the stores, after its view. `objects` have the
    /// rows of [`ObjectInputs`], in this order: neither crowds nor, where boxes are inclusive,
    /// objects without extent.
    ///
    /// # Errors
    /// An array of another name or size.
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

    /// Adds the head to the detection pass, and keeps its predictions per detection under
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

    /// Names of the kept tensors that [`Self::decode`] reads, `[N*D, ..]` each.
    fn outputs(&self) -> &'static [&'static str];

    /// Adds the prediction in row `row` of the outputs to a detected object.
    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found);

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

/// The place of a detection in its image.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// x1, y1, x2, y2 in image pixels, by the model's convention of boxes.
    pub bbox: [f32; 4],
    /// Rows of the image.
    pub height: usize,
    /// Columns of the image.
    pub width: usize,
}

/// Makes a head for a model; `None` for one that has no use for it.
pub type MakeHead = fn(&crate::config::Model) -> Option<Box<dyn RoiHead>>;

static REGISTERED: RwLock<Vec<MakeHead>> = RwLock::new(Vec::new());

/// Adds a head to each model that this process builds from here on. Call it before anything else.
pub fn register(make: MakeHead) {
    REGISTERED.write().unwrap_or_else(PoisonError::into_inner).push(make);
}

/// The heads of a model.
#[derive(Debug)]
pub(super) struct RoiHeads {
    /// Turns proposals into detections.
    box_head: BoxHead,
    /// Heads that add to each detection.
    further: Vec<Box<dyn RoiHead>>,
}

/// The heads that add to each detection of a model.
pub(crate) fn further_heads(model: &crate::config::Model) -> Vec<Box<dyn RoiHead>> {
    RoiHeads::of(model).further
}

/// The kinds of score that a model's detections get, from the box head on.
pub(crate) fn kinds_of_scores(model: &crate::config::Model) -> Vec<IouType> {
    let further = further_heads(model);
    let kinds = further.iter().filter_map(|head| head.kind_of_score());
    [IouType::Bbox].into_iter().chain(kinds).collect()
}

impl RoiHeads {
    pub(super) fn of(model: &crate::config::Model) -> Self {
        let mask_head = MaskHead::of(model).map(|head| Box::new(head) as Box<dyn RoiHead>);
        let keypoint_head = KeypointHead::of(model).map(|head| Box::new(head) as Box<dyn RoiHead>);
        let registered = REGISTERED.read().unwrap_or_else(PoisonError::into_inner);
        let registered = registered.iter().filter_map(|make| make(model));
        let further = mask_head.into_iter().chain(keypoint_head).chain(registered).collect();
        Self { box_head: BoxHead::of(model), further }
    }

    pub(super) fn arrays(&self) -> Vec<Array> {
        self.further.iter().flat_map(|head| head.arrays()).collect()
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

    /// Adds all heads to the detection pass, and keeps their predictions.
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
