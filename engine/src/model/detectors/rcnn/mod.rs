//! Faster, Mask, Keypoint and Cascade R-CNN: a region proposal network, and heads on RoIs.

mod accuracies;
mod anchor_fit;
mod effects;
pub mod heads;
mod keys;
mod rois;
mod rpn;

use dali::DaliError;
use dali::loader::ImageRows;
use dali::store::{ObjectView, Stores};
use graph::{GraphError, TensorId};
use kernels::cpu::HostTensor;
use kernels::ops::flatten_rois::FlattenRois;
use score::IouType;

use self::heads::RoiHeads;
use self::rois::{Rois, sample_rois};
use super::{Detector, DetectorEntry, Losses, Normed, Pair, Place};
use crate::config::Model;
use crate::model::found::Found;
use crate::model::fpn::fpn;
use crate::model::inputs::ImageInputs;
use crate::model::net::{Net, Truth};
use crate::model::schema::Array;

pub use self::keys::{
    Anchors, BoxHead, BoxLoss, Cascade, CellRule, LossDivisor, PostNmsScope, Roi, Rpn, StrideRule,
};

pub(super) static ENTRY: DetectorEntry = DetectorEntry {
    make: |model| Box::new(Rcnn { heads: RoiHeads::of(model) }),
    check: keys::check,
    tensors: keys::tensors,
    normed,
    losses: |model| LOSSES.iter().copied().chain(heads::losses(model)).collect(),
    parts: PARTS,
    shares: accuracies::shares,
    notes: anchor_fit::notes,
    idle: effects::IDLE,
    advice: effects::advice,
    to_detect: keys::to_detect,
    idle_keys,
    own: None,
    classifier: ("roi_heads.box_predictor.cls_score.bias", 1),
    depends_on_classes,
};

/// The parts of a model: prefix of the parameter names, and name.
const PARTS: &[(&str, &str)] = &[
    ("backbone.fpn.", "fpn"),
    ("rpn.", "rpn"),
    ("roi_heads.box_", "box_head"),
    ("roi_heads.mask_", "mask_head"),
    ("roi_heads.keypoint_", "keypoint_head"),
    ("roi_heads.", "other"),
];

/// The losses that every model of the family has.
const LOSSES: &[&str] = &["objectness", "rpn_box_reg", "classifier", "box_reg"];

/// The tables that every model of the family reads.
const TABLES: &[&str] =
    &["model.anchors.", "model.rpn.", "model.roi.", "model.box_head.", "model.cascade."];

fn normed(model: &Model) -> Vec<Normed> {
    let Model { box_head: head, mask_head: mask, .. } = model;
    let (channels, part) = (head.channels.clone(), "the box head");
    let of_boxes = Normed { norm: head.norm, channels, part };
    let (channels, part) = (mask.channels.clone(), "the mask head");
    let of_masks = Normed { norm: mask.norm, channels, part };
    [of_boxes].into_iter().chain(model.kind.has_masks().then_some(of_masks)).collect()
}

/// The class, box and mask predictors depend on the number of classes, except the predictor of
/// class-agnostic box deltas, which has exactly four rows; per-class deltas have four rows for the
/// background plus four per class.
fn depends_on_classes(name: &str, shape: &[usize]) -> bool {
    const PREDICTORS: [&str; 2] =
        ["roi_heads.box_predictor", "roi_heads.mask_predictor.mask_fcn_logits."];
    let is_shared = name.contains(".bbox_pred.") && shape.first() == Some(&4);
    !is_shared && PREDICTORS.iter().any(|predictor| name.starts_with(predictor))
}

fn idle_keys(model: Option<&Model>) -> Vec<&'static [&'static str]> {
    let of_all = model.is_none().then_some(TABLES);
    of_all.into_iter().chain(heads::idle_keys(model)).collect()
}

/// A two-stage model.
#[derive(Debug)]
struct Rcnn {
    heads: RoiHeads,
}

/// The maps for proposals and RoI features: a pyramid, unless the backbone outputs a single map.
fn maps_of(net: &mut Net<'_>, maps: &[TensorId]) -> Result<Vec<TensorId>, GraphError> {
    match net.spec.config.model.backbone.has_pyramid() {
        true => fpn(net, maps),
        false => Ok(maps.to_vec()),
    }
}

impl Detector for Rcnn {
    fn arrays(&self) -> Vec<Array> {
        self.heads.further.iter().flat_map(|head| head.arrays()).collect()
    }

    fn fill(
        &self,
        store: &Stores,
        image: usize,
        objects: &[ObjectView<'_>],
        rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        self.heads.further.iter().try_for_each(|head| head.fill(store, image, objects, rows))
    }

    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        truth: &Truth,
    ) -> Result<Losses, GraphError> {
        let maps = maps_of(net, maps)?;
        let rpn = rpn::Rpn::new(net, maps.clone())?;
        let proposals = rpn.proposals(net, truth.images, true)?;
        let rpn_losses = rpn.losses(net, truth)?;
        let sampled = sample_rois(net, proposals, truth)?;
        let mut losses = self.heads.losses(net, &maps, &sampled, truth)?;
        losses.extend(rpn_losses);
        Ok(Losses { losses, counts: accuracies::count(net, proposals, truth)? })
    }

    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        images: ImageInputs,
    ) -> Result<(), GraphError> {
        let maps = maps_of(net, maps)?;
        let rpn = rpn::Rpn::new(net, maps.clone())?;
        let proposals = rpn.proposals(net, images, false)?;
        net.part("box_head.rois");
        let [boxes, image_idx, count] =
            net.program.apply(FlattenRois, [proposals.boxes, proposals.counts])?;
        self.heads.detect(net, &maps, Rois { boxes, image_idx, count }, images)
    }

    fn outputs(&self) -> Vec<&'static str> {
        self.heads.further.iter().flat_map(|head| head.outputs()).copied().collect()
    }

    fn decode(&self, mut outputs: &[HostTensor], row: usize, place: Place, object: &mut Found) {
        for head in &self.heads.further {
            let (own, rest) = outputs.split_at(head.outputs().len());
            head.decode(own, row, place, object);
            outputs = rest;
        }
    }

    fn numbers<'a>(
        &self,
        stores: &'a Stores,
        pairs: &dyn Fn() -> Vec<Pair<'a>>,
    ) -> Vec<(String, f64)> {
        let of_heads = self.heads.further.iter().map(|head| head.numbers(stores, pairs));
        of_heads.flatten().collect()
    }

    fn kinds_of_scores(&self) -> Vec<IouType> {
        let kinds = self.heads.further.iter().filter_map(|head| head.iou_type());
        [IouType::Bbox].into_iter().chain(kinds).collect()
    }
}
