//! The detection pass: images in, boxes, classes, scores and mask probabilities out.

use graph::prune::prune;
use kernels::ops::flatten_rois::FlattenRois;

use super::backbone::backbone;
use super::fpn::fpn;
use super::fusion;
use super::inputs::ImageInputs;
use super::net::Net;
use super::preprocess::preprocess;
use super::roi_heads::RoiHeads;
use super::rois::Rois;
use super::rpn::Rpn;
use super::{BuiltProgram, ModelSpec};
use crate::error::EngineError;

/// Builds the detection pass. Kept tensors, with at most D detections per image, compacted over the
/// batch in image order: `det_boxes` (`[N*D, 4]`) in network pixels, `det_scores`, `det_labels`,
/// `det_image_idx` (`[N*D]`), `det_counts` (`[N]`), `num_detections` (`[1]`), and for a Mask R-CNN
/// `mask_probs` (`[N*D, S, S]`).
///
/// # Errors
/// A config that an op rejects, with the part of the model.
pub fn detection_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, EngineError> {
    let mut net = Net::new(spec);
    let images = ImageInputs::declare(&mut net.program, spec);
    net.part("preprocess");
    let x = preprocess(&mut net, images, None)?;
    let maps = backbone(&mut net, x)?;
    let has_pyramid = spec.config.model.backbone.has_pyramid();
    let maps = if has_pyramid { fpn(&mut net, &maps)? } else { maps };
    let rpn = Rpn::new(&mut net, maps.clone())?;
    let proposals = rpn.proposals(&mut net, images, false)?;
    net.part("box_head.rois");
    let [boxes, image_idx, count] =
        net.program.apply(FlattenRois, [proposals.boxes, proposals.counts])?;
    let rois = Rois { boxes, image_idx, count };
    RoiHeads::of(&spec.config.model).detect(&mut net, &maps, rois, images)?;
    prune(&mut net.program);
    fusion::apply(&mut net.program, spec);
    Ok(net.finish())
}
