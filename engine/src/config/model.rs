//! `[model]`: the detector's kind, FPN, anchors and box convention.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backbone::{Backbone, NormKind};
use super::heads::{BoxHead, Cascade, Detections, KeypointHead, MaskHead, Roi, Rpn};

table! {
    /// `[model]`: the detector.
    pub struct Model {
        /// `"mask_rcnn"` (default), `"keypoint_rcnn"` for keypoints in place of masks, or
        /// `"faster_rcnn"` for boxes alone.
        #[key(resume = Step, mlperf = Model)]
        pub kind: ModelKind = ModelKind::MaskRcnn,
        /// Foreground classes. Default 0: the number of categories in the data.
        #[key(range = 0..=65_535, unit = "classes", resume = Classes, mlperf = Free)]
        pub num_classes: usize = 0,
        /// File of a whole detector to start from (safetensors, `.pth`, `.pkl` or `.npz`, with the
        /// names of torchvision, detectron2, maskrcnn-benchmark or Tensorpack). Only what depends
        /// on the number of classes may differ; it is trained from scratch. `train --init` sets it.
        /// Default: none.
        #[key(resume = Start, mlperf = Model)]
        pub weights: Option<String> = None,
        /// Predictors take the rows of the classes that `weights` has by the same name, and only
        /// the rest is reinitialised; `--finetune` sets it. Default false.
        #[key(resume = Start, mlperf = Model)]
        pub finetune: bool = false,
        /// Parameters that a weights file lacks, or holds in another shape, keep their initial
        /// values instead of ending the run; `--allow-partial` sets it. Default false.
        #[key(resume = Free, mlperf = Model)]
        pub allow_partial: bool = false,
        /// Weights under another project's names are taken although its models compute something
        /// else, and what differs is listed; `--names-only` sets it. Default false.
        #[key(resume = Free, mlperf = Model)]
        pub names_only: bool = false,
        /// Parameters that are not trained, by torchvision's names, where `*` stands for any text
        /// (`["backbone.*", "rpn.head.*"]`); those of `backbone.frozen_stages` come on top. Default
        /// `[]`.
        #[key(resume = State, mlperf = Model)]
        pub freeze: Vec<String> = Vec::new(),
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
        /// Further box heads of a Cascade R-CNN.
        pub cascade: Cascade,
        /// Mask of an RoI.
        pub mask_head: MaskHead,
        /// Keypoints of an RoI.
        pub keypoint_head: KeypointHead,
        /// From scored boxes to detections, in evaluation and prediction.
        pub detections: Detections,
    }
}

impl Model {
    /// Foreground classes: `num_classes`, or `found` if that is 0.
    pub fn classes_or(&self, found: usize) -> usize {
        if self.num_classes > 0 { self.num_classes } else { found }
    }

    /// True if any part has this norm.
    pub fn has_norm(&self, norm: NormKind) -> bool {
        let Self { backbone, fpn, box_head, mask_head, .. } = self;
        let is_of_box_head = box_head.norm == Some(norm) && !box_head.channels.is_empty();
        let is_of_mask_head = mask_head.norm == Some(norm) && self.kind.has_masks();
        backbone.norm == norm || fpn.norm == Some(norm) || is_of_box_head || is_of_mask_head
    }
}

/// The kind of detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ModelKind {
    /// Boxes and masks.
    MaskRcnn,
    /// Boxes only.
    FasterRcnn,
    /// Boxes and keypoints.
    KeypointRcnn,
}

impl ModelKind {
    /// True if the detector has a mask head.
    pub fn has_masks(self) -> bool {
        self == ModelKind::MaskRcnn
    }

    /// True if the detector has a keypoint head.
    pub fn has_keypoints(self) -> bool {
        self == ModelKind::KeypointRcnn
    }

    /// Its name in a config.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::MaskRcnn => "mask_rcnn",
            ModelKind::FasterRcnn => "faster_rcnn",
            ModelKind::KeypointRcnn => "keypoint_rcnn",
        }
    }
}

table! {
    /// `[model.fpn]`: the feature pyramid.
    pub struct Fpn {
        /// Channels of every level. Default 256.
        #[key(range = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: usize = 256,
        /// `"max_pool"` (default) adds a level of twice the coarsest stride for the RPN; `"none"`.
        #[key(resume = Step, mlperf = Model)]
        pub extra_level: ExtraLevel = ExtraLevel::MaxPool,
        /// Norm behind each convolution, in place of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, as in `[model.backbone]`, whose `norm_eps` and
        /// `norm_groups` hold here too. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
    }
}

/// The level above the backbone's coarsest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExtraLevel {
    /// A 1x1 max pool of stride 2 on the coarsest output (P6 of a ResNet).
    MaxPool,
    /// No extra level.
    None,
}

table! {
    /// `[model.anchors]`: the boxes that the RPN refines.
    pub struct Anchors {
        /// Side in pixels of a square anchor, one per level, finest first; all of them on the one
        /// map of `backbone.output = "c4"`. Default `[32, 64, 128, 256, 512]`.
        #[key(each = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub sizes: Vec<f32> = vec![32.0, 64.0, 128.0, 256.0, 512.0],
        /// Height over width, at constant area; the same for every level, unless
        /// `ratios_by_level` is true. Default `[0.5, 1, 2]`.
        #[key(each = 0.0..=1000.0, resume = Step, mlperf = Model)]
        pub ratios: Vec<f32> = vec![0.5, 1.0, 2.0],
        /// `ratios` lists those of the finest level, then as many for each further level. Default
        /// false.
        #[key(resume = Step, mlperf = Model)]
        pub ratios_by_level: bool = false,
        /// `"floor_padded_over_map"` (default, torchvision) or `"nominal"` (MLPerf).
        #[key(resume = Step, mlperf = Model)]
        pub stride_rule: StrideRule = StrideRule::FloorPaddedOverMap,
        /// Anchors of a cell: `"centered"` (default, torchvision), `"detectron"` (MLPerf) or
        /// `"exact"` (detectron2).
        #[key(resume = Step, mlperf = Model)]
        pub cell_rule: CellRule = CellRule::Centered,
        /// Anchors that cross the border of the unpadded image get no label. Default false; the
        /// MLPerf reference filters them.
        #[key(resume = Step, mlperf = Model)]
        pub straddle_filter: bool = false,
    }
}

/// Anchors of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellRule {
    /// Around the cell's corner, rounded at their own size.
    Centered,
    /// Around the middle of the cell's pixels, inclusive, rounded at the size of the stride and
    /// then scaled.
    Detectron,
    /// Around the cell's corner, not rounded.
    Exact,
}

/// Distance between the anchors of neighbouring cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrideRule {
    /// `floor(padded image side / map side)`, per axis.
    FloorPaddedOverMap,
    /// The level's stride: 4, 8, 16, ...
    Nominal,
}

table! {
    /// `[model.boxes]`: the meaning of a box's corners.
    pub struct Boxes {
        /// Corners are inclusive pixel indices: width is `x2 - x1 + 1` (Detectron, MLPerf). Default
        /// false: width is `x2 - x1`.
        #[key(resume = Step, mlperf = Model)]
        pub legacy_plus_one: bool = false,
    }
}
