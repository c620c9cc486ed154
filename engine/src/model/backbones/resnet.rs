//! ResNet (He et al. 2015), with bottlenecks or basic blocks, and ResNeXt (Xie et al. 2016), which
//! has grouped 3x3 convolutions.

use configs::Check;
use graph::{GraphError, TensorId};
use kernels::ops::max_pool::MaxPool;
use kernels::ops::stem::STORED_CHANNELS;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    BODY, Backbone, BackboneKind, BodyEntry, MAX_LEVELS, NormKind, Stage, conv_norm, doubled,
};
use crate::model::net::{ConvShape, Net};
use crate::model::norms::After;

pub(super) const ENTRY: BodyEntry = BodyEntry { stages, wrong_length, check, own: |_| None, build };

/// The maps that a backbone outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyOutput {
    /// All maps, for the feature pyramid.
    Pyramid,
    /// Only C4; the last stage runs on RoI features.
    C4,
    /// Only C5, whose stage has dilation instead of stride.
    Dc5,
}

/// The block of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3 and 1x1 convolutions; the last has four times the width.
    Bottleneck,
}

/// Greatest common divisor.
fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

fn stages(of: &Backbone) -> Vec<Stage> {
    let expansion = match of.block {
        Block::Basic => 1,
        Block::Bottleneck => 4,
    };
    let (key, channels) = ("model.backbone.stem_channels", of.stem_channels);
    let stem = Stage { key, channels, divisor: channels, stride: 2 };
    let stages = (0..of.blocks.len()).map(|i| {
        let channels = of.width.saturating_mul(doubled(i)).saturating_mul(expansion);
        let divisor = common_divisor(of.inner_width(i), channels);
        let is_dilated = of.output == BodyOutput::Dc5 && i + 1 == of.blocks.len();
        let stride = 4 * doubled(if is_dilated { i.saturating_sub(1) } else { i });
        Stage { key: "model.backbone.width", channels, divisor, stride }
    });
    std::iter::once(stem).chain(stages).collect()
}

fn wrong_length(of: &Backbone) -> Option<(&'static str, String)> {
    let stages = of.blocks.len();
    let fault = format!("has {stages} stages; a ResNet has 4 (C2 to C5)");
    (stages != 4).then_some(("model.backbone.blocks", fault))
}

fn check(backbone: &Backbone, check: &mut Check) {
    check.counts("model.backbone.blocks", &backbone.blocks);
    let key = "model.backbone.groups";
    let in_groups = backbone.groups > 1 || backbone.width_per_group.is_some();
    check.require(backbone.block == Block::Bottleneck || !in_groups, key, || {
        "or width_per_group conflicts with model.backbone.block = \"basic\", which has neither; \
         remove it"
            .into()
    });
    let (groups, channels) = (backbone.groups, backbone.inner_width(0));
    check.require(groups > 0 && channels.is_multiple_of(groups), key, || {
        format!("is {groups}, which does not divide {channels} channels; set width_per_group")
    });
}

impl Backbone {
    /// Channels of the 3x3 convolutions in a ResNet's stage `stage`; stages are counted from 0.
    pub fn inner_width(&self, stage: usize) -> usize {
        let first =
            self.width_per_group.map_or(self.width, |width| width.saturating_mul(self.groups));
        first.saturating_mul(1 << stage.min(MAX_LEVELS))
    }

    /// True if a feature pyramid is built on its maps.
    pub fn has_pyramid(&self) -> bool {
        self.kind != BackboneKind::Resnet || self.output == BodyOutput::Pyramid
    }

    /// True if the last stage runs on RoI features.
    pub fn is_c4(&self) -> bool {
        self.kind == BackboneKind::Resnet && self.output == BodyOutput::C4
    }

    /// True if stages have their stride in a 1x1 instead of a 3x3 convolution; `None` if the
    /// backbone has no such choice.
    pub fn strides_in_1x1(&self) -> Option<bool> {
        let has_both = self.kind == BackboneKind::Resnet && self.block == Block::Bottleneck;
        has_both.then_some(self.stride_in_1x1)
    }
}

/// True if the backbone has a frozen 7x7 stem whose norm is a constant scale and shift.
pub(in crate::model) fn has_frozen_stem(backbone: &Backbone) -> bool {
    backbone.kind == BackboneKind::Resnet
        && backbone.norm != NormKind::GroupNorm
        && backbone.frozen_stages >= 1
}

fn build(net: &mut Net<'_>, x: TensorId) -> Result<Vec<TensorId>, GraphError> {
    let config = &net.spec.config.model.backbone;
    net.set_frozen(config.frozen_stages >= 1);
    net.part("backbone.stem");
    let stem = ConvShape::new(config.stem_channels, 7, 2);
    let (conv, norm) = (format!("{BODY}.conv1"), format!("{BODY}.bn1"));
    let x = match net.channels(x) {
        STORED_CHANNELS => net.stem(x, &conv, &norm, stem)?,
        _ => conv_norm(net, x, &conv, &norm, stem, After::RELU)?,
    };
    let pool = MaxPool { kernel: 3, stride: 2, pad: 1, argmax: true };
    let [mut x, _positions] = net.program.apply(pool, [x])?;
    let stages = config.blocks.len() - usize::from(config.is_c4());
    let mut maps = Vec::new();
    for stage in 0..stages {
        x = self::stage(net, x, stage, "backbone", None)?;
        maps.push(x);
    }
    Ok(maps)
}

/// Applies the last stage to RoI features `[M, P, P, C]`, of which the first `count` rows are
/// valid. The output maps have half the size. The ops are assigned to the part of the model with
/// the name `part`.
///
/// # Errors
/// A config that an op rejects.
pub(in crate::model) fn on_rois(
    net: &mut Net<'_>,
    x: TensorId,
    part: &str,
    count: TensorId,
) -> Result<TensorId, GraphError> {
    let last = net.spec.config.model.backbone.blocks.len() - 1;
    let x = stage(net, x, last, part, Some(count))?;
    net.set_frozen(false);
    Ok(x)
}

/// The blocks of stage `stage`, counted from 0.
fn stage(
    net: &mut Net<'_>,
    mut x: TensorId,
    stage: usize,
    part: &str,
    count: Option<TensorId>,
) -> Result<TensorId, GraphError> {
    let config = &net.spec.config.model.backbone;
    net.set_frozen(config.frozen_stages >= stage + 2);
    let is_dilated = config.output == BodyOutput::Dc5 && stage + 1 == config.blocks.len();
    for block in 0..config.blocks[stage] {
        let name = format!("layer{}.{block}", stage + 1);
        net.part(&format!("{part}.{name}"));
        let stride = if block == 0 && stage > 0 && !is_dilated { 2 } else { 1 };
        let (name, width) = (format!("{BODY}.{name}"), config.width << stage);
        let inner = ConvShape {
            dilation: if is_dilated { 2 } else { 1 },
            groups: config.groups,
            ..ConvShape::new(config.inner_width(stage), 3, stride)
        };
        x = match config.block {
            Block::Bottleneck => bottleneck(net, x, &name, (inner, 4 * width), count)?,
            Block::Basic => basic(net, x, &name, (inner, width), count)?,
        };
    }
    Ok(x)
}

/// A bottleneck: 1x1, the 3x3 convolution `inner`, and 1x1 to `channels`, added to the shortcut.
fn bottleneck(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    (inner, channels): (ConvShape, usize),
    count: Option<TensorId>,
) -> Result<TensorId, GraphError> {
    let stride = inner.stride;
    let (first, second) =
        if net.spec.config.model.backbone.stride_in_1x1 { (stride, 1) } else { (1, stride) };
    let layer = |i: usize| (format!("{name}.conv{i}"), format!("{name}.bn{i}"));
    let first = ConvShape::new(inner.channels, 1, first);
    let convs = [first, ConvShape { stride: second, ..inner }];
    let mut y = x;
    for (i, shape) in convs.into_iter().enumerate() {
        let (conv, bn) = layer(i + 1);
        y = conv_norm(net, y, &conv, &bn, shape, After { count, ..After::RELU })?;
    }
    let identity = identity(net, x, name, ConvShape::new(channels, 1, stride), count)?;
    let (conv, bn) = layer(3);
    let after = After { count, ..After::add_relu(identity) };
    conv_norm(net, y, &conv, &bn, ConvShape::new(channels, 1, 1), after)
}

/// A basic block: two 3x3 convolutions, the first with shape `inner`, added to the shortcut.
fn basic(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    (inner, channels): (ConvShape, usize),
    count: Option<TensorId>,
) -> Result<TensorId, GraphError> {
    let [conv1, bn1, conv2, bn2] =
        ["conv1", "bn1", "conv2", "bn2"].map(|of| format!("{name}.{of}"));
    let after = After { count, ..After::RELU };
    let y = conv_norm(net, x, &conv1, &bn1, inner, after)?;
    let projection = ConvShape::new(channels, 1, inner.stride);
    let identity = identity(net, x, name, projection, count)?;
    let after = After { count, ..After::add_relu(identity) };
    conv_norm(net, y, &conv2, &bn2, ConvShape { stride: 1, ..inner }, after)
}

/// The shortcut of a block: its input, projected if the shapes differ.
fn identity(
    net: &mut Net<'_>,
    x: TensorId,
    name: &str,
    shape: ConvShape,
    count: Option<TensorId>,
) -> Result<TensorId, GraphError> {
    if shape.stride == 1 && net.channels(x) == shape.channels {
        return Ok(x);
    }
    let (conv, bn) = (format!("{name}.downsample.0"), format!("{name}.downsample.1"));
    conv_norm(net, x, &conv, &bn, shape, After { count, ..After::NOTHING })
}
