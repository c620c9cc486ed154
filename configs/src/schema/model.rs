//! `[model]`: the detector's body, FPN, anchors and box convention.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::heads::{BoxHead, Detections, MaskHead, Roi, Rpn};

/// `[model]`: the detector.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Model {
    /// `"mask_rcnn"` (default), or `"faster_rcnn"` for a model without the mask head.
    pub kind: ModelKind,
    /// Foreground classes. Default 0: the number of categories in the data.
    #[schemars(range(min = 0, max = 65_535), extend("unit" = "classes"))]
    pub num_classes: usize,
    /// File of a whole detector to start from (safetensors, `.pth` or `.pkl`, with torchvision's or
    /// detectron2's names). Only what depends on the number of classes may differ; it is trained
    /// anew. `train --init` sets it. Default: none.
    pub weights: Option<String>,
    /// Predictors take the rows of the classes that `weights` has by the same name, and only the
    /// rest starts anew; `--finetune` sets it. Default false.
    pub finetune: bool,
    /// Parameters that a weights file lacks, or holds in another shape, keep their initial values
    /// instead of ending the run; `--allow-partial` sets it. Default false.
    pub allow_partial: bool,
    /// Weights under detectron2's names are taken although its models compute something else, and
    /// what differs is listed; `--names-only` sets it. Default false.
    pub names_only: bool,
    /// The body.
    pub backbone: Backbone,
    /// The feature pyramid.
    pub fpn: Fpn,
    /// Anchors of the RPN.
    pub anchors: Anchors,
    /// The meaning of a box's corners.
    pub boxes: Boxes,
    /// Region proposal network.
    pub rpn: Rpn,
    /// Sampling of RoIs and pooling of their features.
    pub roi: Roi,
    /// Class and box of an RoI.
    pub box_head: BoxHead,
    /// Mask of an RoI.
    pub mask_head: MaskHead,
    /// From scored boxes to detections, in evaluation and prediction.
    pub detections: Detections,
}

impl Model {
    /// Foreground classes: `num_classes`, or `found` if that is 0.
    pub fn classes_or(&self, found: usize) -> usize {
        if self.num_classes > 0 { self.num_classes } else { found }
    }
}

/// Which detector.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Boxes and masks.
    #[default]
    MaskRcnn,
    /// Boxes only.
    FasterRcnn,
}

impl ModelKind {
    /// Whether the detector has a mask head.
    pub fn has_masks(self) -> bool {
        self == ModelKind::MaskRcnn
    }
}

/// `[model.backbone]`: the body that turns an image into feature maps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Backbone {
    /// `"resnet"` (default; bottleneck blocks) or `"small"` (for CPUs; basic blocks).
    pub kind: BackboneKind,
    /// ResNet: blocks in each of the four stages. Default `[3, 4, 6, 3]`, which is ResNet-50.
    #[schemars(inner(range(min = 1, max = 256)), extend("unit" = "blocks"))]
    pub blocks: Vec<usize>,
    /// ResNet: channels of the 7x7 stem. Default 64.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "channels"))]
    pub stem_channels: usize,
    /// ResNet: bottleneck width of the first stage, doubled each stage; stage `i` outputs `4 *
    /// width * 2^i` channels. Default 64.
    #[schemars(range(min = 1, max = 16_384), extend("unit" = "channels"))]
    pub width: usize,
    /// Small body: channels of the 3x3 stride-2 stem, then one entry per basic block of stride 2.
    /// Default `[24, 32, 64, 128]`.
    #[schemars(inner(range(min = 1, max = 65_536)), extend("unit" = "channels"))]
    pub stage_channels: Vec<usize>,
    /// `"frozen_batch_norm"` (default; statistics and scale are constants) or `"group_norm"`.
    pub norm: NormKind,
    /// Added to the variance. Default 1e-5; the MLPerf reference adds 0.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub norm_eps: f64,
    /// Groups of a group norm; must divide every channel count that it normalizes. Default 8.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "groups"))]
    pub norm_groups: usize,
    /// Number of leading stages that are frozen: 0 trains everything, 1 freezes the stem, 2 the
    /// stem and res2, and so on. Default 2.
    #[schemars(range(min = 0, max = 12), extend("unit" = "stages"))]
    pub frozen_stages: usize,
    /// ResNet: a stage strides in its first 1x1 convolution (MSRA, MLPerf) instead of the 3x3
    /// (torchvision). Default false.
    pub stride_in_1x1: bool,
    /// File to take the backbone from, and nothing else: a classifier's or a detector's
    /// (safetensors, `.pth` or `.pkl`, with the names of torchvision, detectron2 or Detectron).
    /// Default: none, random weights.
    pub weights: Option<String>,
}

impl Default for Backbone {
    fn default() -> Self {
        Self {
            kind: BackboneKind::Resnet,
            blocks: vec![3, 4, 6, 3],
            stem_channels: 64,
            width: 64,
            stage_channels: vec![24, 32, 64, 128],
            norm: NormKind::FrozenBatchNorm,
            norm_eps: 1e-5,
            norm_groups: 8,
            frozen_stages: 2,
            stride_in_1x1: false,
            weights: None,
        }
    }
}

/// Which body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BackboneKind {
    /// ResNet with bottleneck blocks; levels C2 to C5 at strides 4, 8, 16, 32.
    #[default]
    Resnet,
    /// A stem and one basic block per level, strides 4, 8, 16, ...
    Small,
}

/// Normalization in the body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum NormKind {
    /// Batch norm with constant statistics, scale and shift.
    #[default]
    FrozenBatchNorm,
    /// Trained group norm; use it to train from random weights.
    GroupNorm,
}

/// `[model.fpn]`: the feature pyramid.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Fpn {
    /// Channels of every level. Default 256.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "channels"))]
    pub channels: usize,
    /// `"max_pool"` (default) adds a level of twice the coarsest stride for the RPN; `"none"`.
    pub extra_level: ExtraLevel,
}

impl Default for Fpn {
    fn default() -> Self {
        Self { channels: 256, extra_level: ExtraLevel::MaxPool }
    }
}

/// The level above the backbone's coarsest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExtraLevel {
    /// A 1x1 max pool of stride 2 on the coarsest output (P6 of a ResNet).
    #[default]
    MaxPool,
    /// No extra level.
    None,
}

/// `[model.anchors]`: the boxes that the RPN refines.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Anchors {
    /// Side in pixels of a square anchor, one per level, finest first. Default `[32, 64, 128, 256,
    /// 512]`.
    #[schemars(inner(range(min = 0.0, max = 65536.0)), extend("unit" = "pixels"))]
    pub sizes: Vec<f32>,
    /// Height over width, at constant area. Default `[0.5, 1, 2]`.
    #[schemars(inner(range(min = 0.0, max = 1000.0)))]
    pub ratios: Vec<f32>,
    /// `"floor_padded_over_map"` (default, torchvision) or `"nominal"` (MLPerf).
    pub stride_rule: StrideRule,
    /// Anchors of a cell: `"centered"` (default, torchvision) or `"detectron"` (MLPerf).
    pub cell_rule: CellRule,
    /// Anchors that cross the border of the unpadded image get no label. Default false; the MLPerf
    /// reference filters them.
    pub straddle_filter: bool,
}

impl Default for Anchors {
    fn default() -> Self {
        Self {
            sizes: vec![32.0, 64.0, 128.0, 256.0, 512.0],
            ratios: vec![0.5, 1.0, 2.0],
            stride_rule: StrideRule::FloorPaddedOverMap,
            cell_rule: CellRule::Centered,
            straddle_filter: false,
        }
    }
}

/// Anchors of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellRule {
    /// Around the cell's corner, rounded at their own size.
    #[default]
    Centered,
    /// Around the middle of the cell's pixels, inclusive, rounded at the size of the stride and
    /// then scaled.
    Detectron,
}

/// Distance between the anchors of neighbouring cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrideRule {
    /// `floor(padded image side / map side)`, per axis.
    #[default]
    FloorPaddedOverMap,
    /// The level's stride: 4, 8, 16, ...
    Nominal,
}

/// `[model.boxes]`: the meaning of a box's corners.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Boxes {
    /// Corners are inclusive pixel indices: width is `x2 - x1 + 1` (Detectron, MLPerf). Default
    /// false: width is `x2 - x1`.
    pub legacy_plus_one: bool,
}
