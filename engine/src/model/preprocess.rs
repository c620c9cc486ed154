//! Transforms source pixels to the network's input, and annotated boxes to network pixels.

use crate::config::{ChannelOrder, Fused};
use graph::{GraphError, TensorId};
use kernels::ops::preprocess::{Preprocess, PreprocessInputs};
use kernels::ops::stem;
use kernels::ops::transform_boxes::{TransformBoxes, TransformBoxesInputs};

use super::ModelSpec;
use super::backbones::has_frozen_stem;
use super::inputs::{ImageInputs, ObjectInputs};
use super::net::{Net, Truth};

/// Number of stored channels of an image: 4 for a GPU's frozen stem that reads pixels padded to 4
/// channels, else 3.
fn image_channels(spec: &ModelSpec<'_>) -> usize {
    let reads_four = has_frozen_stem(&spec.config.model.backbone)
        && spec.padded.width.is_multiple_of(2)
        && spec.config.fusion.has(Fused::FourChannelStem);
    if reads_four && spec.is_in_fp16() { stem::STORED_CHANNELS } else { stem::CHANNELS }
}

/// Transforms images by their views, changes colours by `colours` if present, normalizes and pads.
/// Returns [N, H, W, C], with C from [`image_channels`].
pub(super) fn preprocess(
    net: &mut Net<'_>,
    images: ImageInputs,
    colours: Option<TensorId>,
) -> Result<TensorId, GraphError> {
    let input = &net.spec.config.input;
    let op = Preprocess {
        height: net.spec.padded.height,
        width: net.spec.padded.width,
        channels: image_channels(net.spec),
        mean: input.mean,
        std: input.std,
        pixel_scale: input.pixel_scale,
        bgr: input.channel_order == ChannelOrder::Bgr,
        filter: input.resize_filter,
        colours: colours.is_some(),
    };
    let inputs = PreprocessInputs {
        pixels: images.pixels,
        views: images.views,
        num_images: images.num_images,
        colours,
    };
    let x = net.program.apply1(op, inputs)?;
    net.observe("batch", x);
    Ok(x)
}

/// The ground truth, with boxes in network pixels.
pub(super) fn truth(
    net: &mut Net<'_>,
    images: ImageInputs,
    objects: ObjectInputs,
) -> Result<Truth, GraphError> {
    let op = TransformBoxes { plus_one: net.spec.config.model.boxes.legacy_plus_one };
    let inputs = TransformBoxesInputs {
        boxes: objects.gt_boxes,
        counts: objects.gt_counts,
        views: images.views,
    };
    let gt_boxes = net.program.apply1(op, inputs)?;
    Ok(Truth { images, objects, gt_boxes })
}
