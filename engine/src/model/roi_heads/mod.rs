//! RoI heads. A head is a value: it adds its layers to a program, and returns its losses by name or
//! keeps its predictions. [`RoiHeads::of`] lists the heads of a model; adding one takes a file next
//! to this one and a line there.

mod box_head;
mod mask_head;
mod pool;

use std::fmt::Debug;

use graph::{GraphError, TensorId};
use score::IouType;

use self::box_head::BoxHead;
use self::mask_head::MaskHead;
use super::inputs::ImageInputs;
use super::net::{Loss, Net, Truth};
use super::rois::{Rois, SampledRois};

pub use self::box_head::classes_of;

/// A head that runs on the positives in training, and on the detections in inference.
trait RoiHead: Debug {
    /// The kind of score that its predictions get.
    fn kind_of_score(&self) -> IouType;

    /// Adds the head to a training step; `maps` is the pyramid. Returns its losses.
    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError>;

    /// Adds the head to the detection pass, and keeps its predictions per detection.
    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError>;
}

/// Detections of a batch, compacted: their boxes as RoIs, and labels `[N*D]`.
#[derive(Debug, Clone, Copy)]
struct Detections {
    rois: Rois,
    labels: TensorId,
}

/// The heads of a model.
#[derive(Debug)]
pub(super) struct RoiHeads {
    /// Turns proposals into detections.
    box_head: BoxHead,
    /// Heads that add to each detection.
    further: Vec<Box<dyn RoiHead>>,
}

/// The kinds of score that a model's detections get, from the box head on.
pub(crate) fn kinds_of_scores(model: &configs::Model) -> Vec<IouType> {
    let heads = RoiHeads::of(model);
    let further = heads.further.iter().map(|head| head.kind_of_score());
    [IouType::Bbox].into_iter().chain(further).collect()
}

impl RoiHeads {
    pub(super) fn of(model: &configs::Model) -> Self {
        let further = [MaskHead::of(model).map(|head| Box::new(head) as Box<dyn RoiHead>)];
        Self { box_head: BoxHead::of(model), further: further.into_iter().flatten().collect() }
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
