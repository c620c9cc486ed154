//! Backbones. A body is a file with a `build`, which returns the feature maps of its stages, finest
//! first; parameter names are torchvision's.

mod convnext;
mod resnet;
mod small;

use crate::config::{BackboneKind, NormKind};
use graph::{GraphError, TensorId};

use super::net::{ConvShape, Net};
use super::norms::{After, NormedConv};
use super::params::Init;

pub(super) use resnet::{has_frozen_stem, on_rois};

const BODY: &str = "backbone.body";

/// Adds the body of the model for images `x`, `[N, H, W, C]`, normalised. Returns the feature maps
/// of its stages, finest first (C2..C5 of a ResNet): those of [`crate::config::Backbone::stages`] after
/// the stem; without a pyramid the last alone.
///
/// # Errors
/// A config that an op rejects.
pub fn backbone(net: &mut Net<'_>, x: TensorId) -> Result<Vec<TensorId>, GraphError> {
    let maps = match net.spec.config.model.backbone.kind {
        BackboneKind::Resnet => resnet::build(net, x)?,
        BackboneKind::Convnext => convnext::build(net, x)?,
        BackboneKind::Small => small::build(net, x)?,
    };
    net.set_frozen(false);
    for (i, map) in maps.iter().enumerate() {
        net.observe(&format!("C{}", i + 2), *map);
    }
    let has_pyramid = net.spec.config.model.backbone.has_pyramid();
    let first = if has_pyramid { 0 } else { maps.len() - 1 };
    Ok(maps[first..].to_vec())
}

/// A convolution without bias, the body's norm, and what follows.
fn conv_norm(
    net: &mut Net<'_>,
    x: TensorId,
    conv: &str,
    norm: &str,
    shape: ConvShape,
    after: After,
) -> Result<TensorId, GraphError> {
    let kind = net.spec.config.model.backbone.norm;
    let init = match kind {
        NormKind::FrozenBatchNorm | NormKind::FrozenStatistics => {
            Init::kaiming_normal_fan_out(shape.fan_out())
        }
        NormKind::GroupNorm => net.default_init(x, shape),
    };
    net.normed_conv(x, NormedConv { conv, norm, shape, init }, kind, after)
}
