//! Backbones. Each backbone is a file with a [`BodyEntry`]: its stages, the constraints on its
//! keys, and `build`, which returns the stages' feature maps, finest first. Parameter names are
//! torchvision's. All backbones share one table of keys, [`Backbone`]; `of` lists the backbones
//! that read a key.

mod convnext;
mod resnet;
mod small;

use configs::{Check, table};
use graph::{GraphError, TensorId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::net::{ConvShape, Net};
use super::norms::{After, NormedConv};
use super::params::Init;

pub use resnet::{Block, BodyOutput};
pub(super) use resnet::{has_frozen_stem, on_rois};

/// Lists the backbones, each with its documentation and its module.
macro_rules! backbones {
    ($($(#[doc = $doc:tt])* $kind:ident = $file:ident,)*) => {
        /// The kind of backbone.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "snake_case")]
        pub enum BackboneKind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl BackboneKind {
            fn entry(self) -> &'static BodyEntry {
                match self {
                    $(Self::$kind => &$file::ENTRY,)*
                }
            }
        }
    };
}
backbones! {
    /// ResNet; levels C2 to C5 at strides 4, 8, 16, 32.
    Resnet = resnet,
    /// ConvNeXt; levels C2 to C5 at strides 4, 8, 16, 32.
    Convnext = convnext,
    /// A stem and one basic block per level, strides 4, 8, 16, ...
    Small = small,
}

/// A kind of backbone.
struct BodyEntry {
    /// The stem, then the stages whose maps the FPN uses.
    stages: fn(&Backbone) -> Vec<Stage>,
    /// A key with an invalid number of entries, and the error message.
    wrong_length: fn(&Backbone) -> Option<(&'static str, String)>,
    /// Checks the remaining keys of the backbone.
    check: fn(&Backbone, &mut Check),
    /// A description of the backbone if no other project has it, else `None`.
    own: fn(&Backbone) -> Option<&'static str>,
    /// Adds the backbone to a program; returns the maps of its stages, finest first.
    build: fn(&mut Net<'_>, TensorId) -> Result<Vec<TensorId>, GraphError>,
}

table! {
    /// `[model.backbone]`: the network that computes feature maps of an image.
    pub struct Backbone {
        /// `"resnet"` (default), `"convnext"` or `"small"` (for CPUs; one basic block per stage).
        #[key(resume = Step, mlperf = Model)]
        pub kind: BackboneKind = BackboneKind::Resnet,
        /// ResNet and ConvNeXt: blocks in each of the four stages. Default `[3, 4, 6, 3]`, which is
        /// ResNet-50; ConvNeXt-T has `[3, 3, 9, 3]`.
        #[key(
            of = "resnet convnext",
            each = 1..=256,
            unit = "blocks",
            resume = Step,
            mlperf = Model
        )]
        pub blocks: Vec<usize> = vec![3, 4, 6, 3],
        /// ResNet: `"bottleneck"` (default; ResNet-50 and deeper) or `"basic"` (ResNet-18 and 34).
        #[key(of = "resnet", resume = Step, mlperf = Model)]
        pub block: Block = Block::Bottleneck,
        /// ResNet: channels of the 7x7 stem. Default 64.
        #[key(of = "resnet", range = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub stem_channels: usize = 64,
        /// ResNet: width of the blocks in the first stage, doubled in each stage; stage `i` outputs
        /// `width * 2^i` channels, four times as many with bottlenecks. Default 64.
        #[key(of = "resnet", range = 1..=16_384, unit = "channels", resume = Step, mlperf = Model)]
        pub width: usize = 64,
        /// ResNet with bottlenecks: groups of the 3x3 convolutions. Default 1; ResNeXt has 32.
        #[key(of = "resnet", range = 1..=16_384, unit = "groups", resume = Step, mlperf = Model)]
        pub groups: usize = 1,
        /// ResNet with bottlenecks: channels per group in the first stage, doubled in each stage; 4
        /// in ResNeXt 32x4d, 8 in 32x8d. Default none: `width` is divided among the groups.
        #[key(of = "resnet", range = 1..=16_384, unit = "channels", resume = Step, mlperf = Model)]
        pub width_per_group: Option<usize> = None,
        /// Small backbone: channels of the 3x3 stride-2 stem, then of each basic block of stride 2.
        /// ConvNeXt: channels of the four stages; the stem has as many as the first stage. Default
        /// `[24, 32, 64, 128]`; ConvNeXt-T has `[96, 192, 384, 768]`.
        #[key(
            of = "small convnext",
            each = 1..=65_536,
            unit = "channels",
            resume = Step,
            mlperf = Model
        )]
        pub stage_channels: Vec<usize> = vec![24, 32, 64, 128],
        /// ConvNeXt: stochastic depth, the drop probability of the last residual branch, increasing
        /// linearly from 0 at the first. Default 0.
        #[key(of = "convnext", range = 0.0..=0.95, resume = Step, mlperf = Model)]
        pub drop_path: f64 = 0.0,
        /// `"frozen_batch_norm"` (default; constant batch norm), `"frozen_statistics"` (constant
        /// statistics, trained scale and shift) or `"group_norm"`.
        #[key(resume = Step, mlperf = Model)]
        pub norm: NormKind = NormKind::FrozenBatchNorm,
        /// Constant added to the variance. Default 1e-5; the MLPerf reference adds 0.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Model)]
        pub norm_eps: f64 = 1e-5,
        /// Number of groups of a group norm; must divide the channel counts of all normalized
        /// layers. Default 8.
        #[key(range = 1..=65_536, unit = "groups", resume = Step, mlperf = Model)]
        pub norm_groups: usize = 8,
        /// Number of leading stages that are frozen: 0 trains everything, 1 freezes the stem, 2 the
        /// stem and res2, and so on. Default 2.
        #[key(range = 0..=12, unit = "stages", resume = Step, mlperf = Model)]
        pub frozen_stages: usize = 2,
        /// ResNet: the first block of a stage has its stride in the first 1x1 convolution (MSRA,
        /// MLPerf) instead of the 3x3 convolution (torchvision). Default false.
        #[key(of = "resnet", resume = Step, mlperf = Model)]
        pub stride_in_1x1: bool = false,
        /// ResNet: `"pyramid"` (default): C2 to C5, for the FPN; `"c4"`: only C4, for the RPN,
        /// while the last stage runs on each RoI and replaces the first layers of the box and mask
        /// heads (detectron2's C4 models); or `"dc5"`: only C5, with dilated instead of strided
        /// convolutions (detectron2's DC5 models).
        #[key(of = "resnet", resume = Step, mlperf = Model)]
        pub output: BodyOutput = BodyOutput::Pyramid,
        /// Weights file from which only the backbone is loaded; it may contain a classifier or a
        /// detector (safetensors, `.pth`, `.pkl` or `.npz`, with torchvision, detectron2,
        /// Detectron, maskrcnn-benchmark or Tensorpack names). Default: none, random weights.
        #[key(resume = Start, mlperf = Free)]
        pub weights: Option<String> = None,
    }
}

/// Normalization after a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Batch norm with constant statistics, scale and shift.
    FrozenBatchNorm,
    /// Batch norm with constant statistics, whose scale and shift are trained.
    FrozenStatistics,
    /// Trained group norm; use it to train from random weights.
    GroupNorm,
}

/// A stage of a backbone, and its output map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The config key that sets its channels.
    pub key: &'static str,
    /// Channels of its output map.
    pub channels: usize,
    /// Greatest common divisor of the channel counts that norms in the stage normalize.
    pub divisor: usize,
    /// Stride of its output map relative to the image.
    pub stride: usize,
}

/// Maximum number of levels: more would require images with sides of over 16,000 pixels.
pub(crate) const MAX_LEVELS: usize = 12;

/// `2^stage`.
fn doubled(stage: usize) -> usize {
    1 << stage.min(MAX_LEVELS)
}

impl Backbone {
    /// The stem, then the stages whose maps the FPN uses.
    pub fn stages(&self) -> Vec<Stage> {
        (self.kind.entry().stages)(self)
    }

    /// A description of the backbone with its config key, if no other project has such a backbone.
    pub(crate) fn own(&self) -> Option<&'static str> {
        (self.kind.entry().own)(self)
    }
}

/// Checks the keys of a backbone.
pub(crate) fn check(backbone: &Backbone, check: &mut Check) {
    let entry = backbone.kind.entry();
    let (key, fault) = (entry.wrong_length)(backbone).unwrap_or_default();
    check.require(key.is_empty(), key, || fault);
    (entry.check)(backbone, check);
    let stages = backbone.stages();
    stages.iter().for_each(|stage| check.at_least_one(stage.key, stage.divisor));
    let stages = stages.len();
    check.require(backbone.frozen_stages <= stages, "model.backbone.frozen_stages", || {
        let all = backbone.frozen_stages;
        format!(
            "is {all}, but the backbone has {stages} stages, including the stem; give 0 to {stages}"
        )
    });
    check.not_negative("model.backbone.norm_eps", backbone.norm_eps);
}

const BODY: &str = "backbone.body";

/// Adds the backbone to the model; `x` are normalized images `[N, H, W, C]`. Returns the maps of
/// [`Backbone::stages`] except the stem, finest first (C2..C5 of a ResNet); without a pyramid, only
/// the last map.
///
/// # Errors
/// A config that an op rejects.
pub fn backbone(net: &mut Net<'_>, x: TensorId) -> Result<Vec<TensorId>, GraphError> {
    let maps = (net.spec.config.model.backbone.kind.entry().build)(net, x)?;
    net.set_frozen(false);
    for (i, map) in maps.iter().enumerate() {
        net.observe(&format!("C{}", i + 2), *map);
    }
    let has_pyramid = net.spec.config.model.backbone.has_pyramid();
    let first = if has_pyramid { 0 } else { maps.len() - 1 };
    Ok(maps[first..].to_vec())
}

/// Adds a convolution without bias, the backbone's norm, and the ops `after` these.
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
