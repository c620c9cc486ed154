//! The detection pass: images in, boxes, classes, scores and mask probabilities out.

use configs::ModelKind;
use graph::GraphError;
use graph::prune::prune;
use kernels::ops::detections::Detections;
use kernels::ops::flatten_rois::FlattenRois;
use kernels::ops::mask_probabilities::MaskProbabilities;

use super::backbone::backbone;
use super::fpn::fpn;
use super::heads::{Rois, box_head, mask_head};
use super::inputs::{FlipInputs, ImageInputs};
use super::net::Net;
use super::rpn::Rpn;
use super::train_step::preprocess;
use super::{BuiltProgram, ModelSpec};

/// Boxes smaller than this (network pixels) are no detections, as in torchvision.
const MIN_BOX_SIZE: f32 = 1e-2;

/// Builds the detection pass. Kept tensors, D detections an image at most, compacted over the
/// batch in image order: `det_boxes` (`[N*D, 4]`) in network pixels, `det_scores`,
/// `det_labels`, `det_image_idx` (`[N*D]`), `det_counts` (`[N]`), `num_detections` (`[1]`), and
/// for a Mask R-CNN `mask_probs` (`[N*D, S, S]`).
///
/// # Errors
/// A config that the ops refuse, with the part of the model.
pub fn detection_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, GraphError> {
    let mut net = Net::new(spec);
    let images = ImageInputs::declare(&mut net.program, spec);
    let FlipInputs { flips } = FlipInputs::declare(&mut net.program, spec);
    net.part("preprocess");
    let x = preprocess(&mut net, images, flips)?;
    let maps = backbone(&mut net, x)?;
    let maps = fpn(&mut net, &maps)?;
    let rpn = Rpn::new(&mut net, maps.clone())?;
    let proposals = rpn.proposals(&mut net, images, false)?;
    net.part("box_head.rois");
    let flat = net.program.apply(FlattenRois, &[proposals.boxes, proposals.counts])?;
    let rois = Rois { boxes: flat[0], image_idx: flat[1], count: flat[2] };
    let (logits, deltas) = box_head(&mut net, &maps, rois)?;
    net.part("detections");
    let config = &spec.config.model;
    let op = Detections {
        score_threshold: config.detections.score_threshold,
        nms_threshold: config.detections.nms_threshold,
        per_image: config.detections.per_image,
        weights: config.roi.box_weights,
        min_size: MIN_BOX_SIZE,
        plus_one: config.boxes.legacy_plus_one,
    };
    let inputs = [logits, deltas, rois.boxes, rois.image_idx, rois.count, images.network_sizes];
    let found = net.program.apply(op, &inputs)?;
    let names =
        ["det_boxes", "det_scores", "det_labels", "det_image_idx", "det_counts", "num_detections"];
    for (name, tensor) in names.iter().zip(&found) {
        net.program.keep(name, *tensor);
    }
    if config.kind == ModelKind::MaskRcnn {
        let rois = Rois { boxes: found[0], image_idx: found[3], count: found[5] };
        let logits = mask_head(&mut net, &maps, rois)?;
        let inputs = [logits, found[2], rois.count];
        let probs = net.program.apply1(MaskProbabilities, &inputs)?;
        net.program.keep("mask_probs", probs);
    }
    prune(&mut net.program);
    Ok(net.finish())
}
