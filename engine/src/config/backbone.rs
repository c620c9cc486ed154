//! `[model.backbone]`: the bodies, their keys, and the feature maps that they give.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

table! {
    /// `[model.backbone]`: the body that turns an image into feature maps.
    pub struct Backbone {
        /// `"resnet"` (default), `"convnext"` or `"small"` (for CPUs; a basic block a stage).
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
        /// ResNet: width of a block of the first stage, doubled each stage; stage `i` outputs
        /// `width * 2^i` channels, four times as many with bottlenecks. Default 64.
        #[key(of = "resnet", range = 1..=16_384, unit = "channels", resume = Step, mlperf = Model)]
        pub width: usize = 64,
        /// ResNet of bottlenecks: equal shares of the channels of a 3x3 convolution, each with
        /// filters of its own. Default 1; ResNeXt has 32.
        #[key(of = "resnet", range = 1..=16_384, unit = "groups", resume = Step, mlperf = Model)]
        pub groups: usize = 1,
        /// ResNet of bottlenecks: channels of a group in the first stage, doubled each stage; 4 in
        /// a ResNeXt 32x4d, 8 in a 32x8d. Default none: all groups together have `width`.
        #[key(of = "resnet", range = 1..=16_384, unit = "channels", resume = Step, mlperf = Model)]
        pub width_per_group: Option<usize> = None,
        /// Small body: channels of the 3x3 stride-2 stem, then one entry per basic block of stride
        /// 2. ConvNeXt: channels of the four stages, the first's also of the stem. Default `[24,
        /// 32, 64, 128]`; ConvNeXt-T has `[96, 192, 384, 768]`.
        #[key(
            of = "small convnext",
            each = 1..=65_536,
            unit = "channels",
            resume = Step,
            mlperf = Model
        )]
        pub stage_channels: Vec<usize> = vec![24, 32, 64, 128],
        /// ConvNeXt: probability that an image leaves out the last residual branch in training;
        /// those before it less often in proportion, and the first never (stochastic depth).
        /// Default 0.
        #[key(of = "convnext", range = 0.0..=0.95, resume = Step, mlperf = Model)]
        pub drop_path: f64 = 0.0,
        /// `"frozen_batch_norm"` (default; a batch norm of constants), `"frozen_statistics"` (a
        /// batch norm whose scale and shift are trained) or `"group_norm"`.
        #[key(resume = Step, mlperf = Model)]
        pub norm: NormKind = NormKind::FrozenBatchNorm,
        /// Added to the variance. Default 1e-5; the MLPerf reference adds 0.
        #[key(range = 0.0..=1.0, resume = Step, mlperf = Model)]
        pub norm_eps: f64 = 1e-5,
        /// Groups of a group norm; must divide every channel count that it normalizes. Default 8.
        #[key(range = 1..=65_536, unit = "groups", resume = Step, mlperf = Model)]
        pub norm_groups: usize = 8,
        /// Number of leading stages that are frozen: 0 trains everything, 1 freezes the stem, 2 the
        /// stem and res2, and so on. Default 2.
        #[key(range = 0..=12, unit = "stages", resume = Step, mlperf = Model)]
        pub frozen_stages: usize = 2,
        /// ResNet: a stage strides in its first 1x1 convolution (MSRA, MLPerf) instead of the 3x3
        /// (torchvision). Default false.
        #[key(of = "resnet", resume = Step, mlperf = Model)]
        pub stride_in_1x1: bool = false,
        /// ResNet: `"pyramid"` (default), C2 to C5 for the feature pyramid; `"c4"`, C4 alone, on
        /// which the RPN runs, while the last stage runs on each RoI, in place of the first layers
        /// of the box head and the mask head (detectron2's C4 models); or `"dc5"`, C5 alone, as
        /// large as C4: its stage has gaps between taps in place of the stride (detectron2's DC5).
        #[key(of = "resnet", resume = Step, mlperf = Model)]
        pub output: BodyOutput = BodyOutput::Pyramid,
        /// File to take the backbone from, and nothing else: a classifier's or a detector's
        /// (safetensors, `.pth`, `.pkl` or `.npz`, with the names of torchvision, detectron2,
        /// Detectron, maskrcnn-benchmark or Tensorpack). Default: none, random weights.
        #[key(resume = Start, mlperf = Free)]
        pub weights: Option<String> = None,
    }
}

/// The kind of body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackboneKind {
    /// ResNet; levels C2 to C5 at strides 4, 8, 16, 32.
    Resnet,
    /// ConvNeXt; levels C2 to C5 at strides 4, 8, 16, 32.
    Convnext,
    /// A stem and one basic block per level, strides 4, 8, 16, ...
    Small,
}

/// The maps that a body gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BodyOutput {
    /// All, for the feature pyramid.
    Pyramid,
    /// C4 alone; the last stage is a head of RoIs.
    C4,
    /// C5 alone, with dilation in place of its stride.
    Dc5,
}

/// The block of a ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Two 3x3 convolutions.
    Basic,
    /// 1x1, 3x3 and 1x1, the last with four times the width.
    Bottleneck,
}

/// Normalization behind a convolution.
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

/// A stage of a body, with the map that it outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stage {
    /// The key that sets its channels.
    pub key: &'static str,
    /// Channels of its map.
    pub channels: usize,
    /// Greatest divisor of all numbers of channels that norms of the stage see.
    pub divisor: usize,
    /// Pixels of the image from one value of its map to the next.
    pub stride: usize,
}

/// More levels than this would need images with sides of over 16,000 pixels to mean anything.
pub(crate) const MAX_LEVELS: usize = 12;

/// Greatest common divisor.
fn common_divisor(a: usize, b: usize) -> usize {
    if b == 0 { a } else { common_divisor(b, a % b) }
}

impl Backbone {
    /// The stem, then the stages whose maps the FPN takes.
    pub fn stages(&self) -> Vec<Stage> {
        let doubled = |i: usize| 1usize << i.min(MAX_LEVELS);
        match self.kind {
            BackboneKind::Resnet => {
                let expansion = match self.block {
                    Block::Basic => 1,
                    Block::Bottleneck => 4,
                };
                let (key, channels) = ("model.backbone.stem_channels", self.stem_channels);
                let stem = Stage { key, channels, divisor: channels, stride: 2 };
                let stages = (0..self.blocks.len()).map(|i| {
                    let channels = self.width.saturating_mul(doubled(i)).saturating_mul(expansion);
                    let divisor = common_divisor(self.inner_width(i), channels);
                    let key = "model.backbone.width";
                    let is_dilated = self.output == BodyOutput::Dc5 && i + 1 == self.blocks.len();
                    let stride = 4 * doubled(if is_dilated { i.saturating_sub(1) } else { i });
                    Stage { key, channels, divisor, stride }
                });
                std::iter::once(stem).chain(stages).collect()
            }
            BackboneKind::Convnext => {
                let key = "model.backbone.stage_channels";
                let stage = |(i, &channels): (usize, &usize)| Stage {
                    key,
                    channels,
                    divisor: channels,
                    stride: 4 * doubled(i),
                };
                let channels = &self.stage_channels;
                let stem = channels.iter().enumerate().take(1).map(stage);
                stem.chain(channels.iter().enumerate().map(stage)).collect()
            }
            BackboneKind::Small => {
                let key = "model.backbone.stage_channels";
                let stage = |(i, &channels)| Stage {
                    key,
                    channels,
                    divisor: channels,
                    stride: 2 * doubled(i),
                };
                self.stage_channels.iter().enumerate().map(stage).collect()
            }
        }
    }

    /// Channels of the 3x3 convolutions in a stage of a ResNet, counted from 0.
    pub fn inner_width(&self, stage: usize) -> usize {
        let first =
            self.width_per_group.map_or(self.width, |width| width.saturating_mul(self.groups));
        first.saturating_mul(1 << stage.min(MAX_LEVELS))
    }

    /// True if a pyramid is built on several maps of it.
    pub fn has_pyramid(&self) -> bool {
        self.kind != BackboneKind::Resnet || self.output == BodyOutput::Pyramid
    }

    /// True if the last stage runs on RoIs.
    pub fn is_c4(&self) -> bool {
        self.kind == BackboneKind::Resnet && self.output == BodyOutput::C4
    }

    /// The key whose number of entries no such body has, and the fault.
    pub(crate) fn wrong_length(&self) -> Option<(&'static str, String)> {
        match self.kind {
            BackboneKind::Resnet => {
                let stages = self.blocks.len();
                let fault = format!("has {stages} stages; a ResNet has 4 (C2 to C5)");
                (stages != 4).then_some(("model.backbone.blocks", fault))
            }
            BackboneKind::Convnext => {
                let lists = [
                    ("model.backbone.blocks", self.blocks.len()),
                    ("model.backbone.stage_channels", self.stage_channels.len()),
                ];
                let (key, entries) = lists.into_iter().find(|(_, entries)| *entries != 4)?;
                let fault = format!("has {entries} entries; a ConvNeXt has 4 stages (C2 to C5)");
                Some((key, fault))
            }
            BackboneKind::Small => {
                let entries = self.stage_channels.len();
                let most = MAX_LEVELS - 1;
                let fault =
                    format!("has {entries} entries; give one for the stem and 1 to {most} more");
                let fits = (2..=MAX_LEVELS).contains(&entries);
                (!fits).then_some(("model.backbone.stage_channels", fault))
            }
        }
    }

    /// True if a stage strides in its 1x1 instead of its 3x3; `None` for a body without the choice.
    pub fn strides_in_1x1(&self) -> Option<bool> {
        let has_both = self.kind == BackboneKind::Resnet && self.block == Block::Bottleneck;
        has_both.then_some(self.stride_in_1x1)
    }
}
