//! The detection pass: computes boxes, classes, scores and mask probabilities from images.

use graph::prune::prune;

use super::backbones::backbone;
use super::detectors::detector;
use super::fusion;
use super::inputs::ImageInputs;
use super::net::Net;
use super::preprocess::preprocess;
use super::{BuiltProgram, ModelSpec};
use crate::error::EngineError;

/// Builds the detection pass. Its output tensors hold up to D detections per image, compacted over
/// the batch in image order: `det_boxes` (`[N*D, 4]`) in network pixels, `det_scores`,
/// `det_labels`, `det_image_idx` (`[N*D]`), `det_counts` (`[N]`), `num_detections` (`[1]`), and for
/// a Mask R-CNN `mask_probs` (`[N*D, S, S]`).
///
/// # Errors
/// A config that an op rejects; names the part of the model.
pub fn detection_program(spec: &ModelSpec<'_>) -> Result<BuiltProgram, EngineError> {
    let mut net = Net::new(spec);
    let images = ImageInputs::declare(&mut net.program, spec);
    net.part("preprocess");
    let x = preprocess(&mut net, images, None)?;
    let maps = backbone(&mut net, x)?;
    detector(&spec.config.model).detect(&mut net, &maps, images)?;
    prune(&mut net.program);
    fusion::apply(&mut net.program, spec);
    Ok(net.finish())
}
