//! `[model.rpn]`, `[model.roi]`, the two heads and `[model.detections]`.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[model.rpn]`: region proposal network. `top_n` values count boxes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Rpn {
    /// Training: top-scoring anchors kept per level and image before NMS. Default 2000.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub pre_nms_top_n_train: usize,
    /// Evaluation: top-scoring anchors kept per level and image before NMS. Default 1000.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub pre_nms_top_n_test: usize,
    /// Training: proposals kept after NMS, within `post_nms_scope`. Default 2000.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub post_nms_top_n_train: usize,
    /// Evaluation: proposals kept per image after NMS. Default 1000.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub post_nms_top_n_test: usize,
    /// Training: proposals of a level of an image that the cut to `post_nms_top_n_train` takes at
    /// most. Default: none, all that NMS leaves.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub post_nms_top_n_level_train: Option<usize>,
    /// Evaluation: the same for `post_nms_top_n_test`. Default: none.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "boxes"))]
    pub post_nms_top_n_level_test: Option<usize>,
    /// NMS drops a box whose IoU with a higher-scoring one exceeds this. Default 0.7.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub nms_threshold: f32,
    /// Proposals below this objectness (after the sigmoid) are dropped. Default 0.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "probability"))]
    pub score_threshold: f32,
    /// Proposals with a side below this many pixels are dropped. Default 1e-3.
    #[schemars(range(min = 0.0, max = 65536.0), extend("unit" = "pixels"))]
    pub min_size: f32,
    /// An anchor with at least this IoU with a ground-truth box is positive. Default 0.7.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub fg_iou: f32,
    /// An anchor below this IoU with every ground-truth box is negative. Default 0.3.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub bg_iou: f32,
    /// The anchors that overlap a ground-truth box most are positive too. Default true.
    pub low_quality_matches: bool,
    /// Anchors sampled per image for the loss. Default 256.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "anchors"))]
    pub batch_size_per_image: usize,
    /// Maximum share of positives among them, 0 to 1. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "share"))]
    pub positive_fraction: f32,
    /// Smooth L1 changes from quadratic to linear at this error. Default 1/9; 0 is plain L1.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub beta: f32,
    /// What shares `post_nms_top_n_train`: `"image"` (default), `"batch"` (MLPerf) or `"level"`.
    pub post_nms_scope: PostNmsScope,
}

impl Default for Rpn {
    fn default() -> Self {
        Self {
            pre_nms_top_n_train: 2000,
            pre_nms_top_n_test: 1000,
            post_nms_top_n_train: 2000,
            post_nms_top_n_test: 1000,
            post_nms_top_n_level_train: None,
            post_nms_top_n_level_test: None,
            nms_threshold: 0.7,
            score_threshold: 0.0,
            min_size: 1e-3,
            fg_iou: 0.7,
            bg_iou: 0.3,
            low_quality_matches: true,
            batch_size_per_image: 256,
            positive_fraction: 0.5,
            beta: 1.0 / 9.0,
            post_nms_scope: PostNmsScope::Image,
        }
    }
}

/// The scope of one `post_nms_top_n_train` in training. Evaluation cuts per image, or per level of
/// each image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PostNmsScope {
    /// All levels of one image.
    #[default]
    Image,
    /// All images of one normalization group (`train.images_per_group`), all levels.
    Batch,
    /// One level of one image.
    Level,
}

/// `[model.roi]`: which proposals are trained on, and how their features are pooled.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Roi {
    /// RoIs sampled per image. Default 512.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "RoIs"))]
    pub batch_size_per_image: usize,
    /// Maximum share of positives among them, 0 to 1. Default 0.25.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "share"))]
    pub positive_fraction: f32,
    /// An RoI with at least this IoU with a ground-truth box is positive. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub fg_iou: f32,
    /// An RoI below this IoU with every ground-truth box is background. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub bg_iou: f32,
    /// A box with sides of this many pixels is pooled from `canonical_level`. Default 224.
    #[schemars(range(min = 0.0, max = 65536.0), extend("unit" = "pixels"))]
    pub canonical_size: f32,
    /// See `canonical_size`. Default 4, the level of stride 16.
    #[schemars(range(min = 0, max = 12), extend("unit" = "level"))]
    pub canonical_level: usize,
    /// Number of the finest level, log2 of its stride. Default 2, stride 4.
    #[schemars(range(min = 2, max = 2), extend("unit" = "level"))]
    pub min_level: usize,
    /// Weights of the box deltas (dx, dy, dw, dh). Default `[10, 10, 5, 5]`.
    #[schemars(inner(range(min = 0.0, max = 1e6)))]
    pub box_weights: [f32; 4],
    /// RoIAlign shifts by half a pixel. Default false, as in both reference implementations.
    pub aligned: bool,
    /// RoIAlign samples each bin this many times along each axis. Default 2; 0 is adaptive,
    /// `ceil(RoI side / pooled side)`.
    #[schemars(range(min = 0, max = 64), extend("unit" = "samples"))]
    pub sampling_ratio: usize,
}

impl Default for Roi {
    fn default() -> Self {
        Self {
            batch_size_per_image: 512,
            positive_fraction: 0.25,
            fg_iou: 0.5,
            bg_iou: 0.5,
            canonical_size: 224.0,
            canonical_level: 4,
            min_level: 2,
            box_weights: [10.0, 10.0, 5.0, 5.0],
            aligned: false,
            sampling_ratio: 2,
        }
    }
}

/// `[model.box_head]`: class and box of an RoI.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BoxHead {
    /// Side of the pooled features, in bins. Default 7.
    #[schemars(range(min = 1, max = 64), extend("unit" = "bins"))]
    pub pooled: usize,
    /// Widths of the one or two fully connected layers. Default `[1024, 1024]`.
    #[schemars(inner(range(min = 1, max = 1_048_576)), extend("unit" = "channels"))]
    pub hidden: Vec<usize>,
    /// Box loss: `"smooth_l1"` (default, on deltas) or `"giou"` (on decoded boxes).
    pub loss: BoxLoss,
    /// Smooth L1 changes from quadratic to linear at this error. Default 1 (MLPerf; torchvision
    /// 1/9).
    #[schemars(range(min = 0.0, max = 1e6))]
    pub beta: f32,
}

impl Default for BoxHead {
    fn default() -> Self {
        Self { pooled: 7, hidden: vec![1024, 1024], loss: BoxLoss::SmoothL1, beta: 1.0 }
    }
}

/// Box regression loss of the box head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxLoss {
    /// Smooth L1 of the box deltas.
    #[default]
    SmoothL1,
    /// Generalized IoU of the decoded boxes.
    Giou,
}

/// `[model.mask_head]`: mask of an RoI, with side `2 * pooled`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MaskHead {
    /// Side of the pooled features, in bins; the mask side is twice this. Default 14.
    #[schemars(range(min = 1, max = 64), extend("unit" = "bins"))]
    pub pooled: usize,
    /// Channels of the 3x3 convolutions. Default `[256, 256, 256, 256]`.
    #[schemars(inner(range(min = 1, max = 65_536)), extend("unit" = "channels"))]
    pub channels: Vec<usize>,
    /// Channels of the 2x2 stride-2 deconvolution. Default 256.
    #[schemars(range(min = 1, max = 65_536), extend("unit" = "channels"))]
    pub deconv_channels: usize,
    /// How targets are made: `"roi_align_bitmap"` (default, torchvision: RoIAlign of the full-size
    /// bitmap) or `"coco_polygon"` (MLPerf: COCO's rasterizer on the cropped polygons).
    pub target_rule: MaskTargetRule,
}

impl Default for MaskHead {
    fn default() -> Self {
        Self {
            pooled: 14,
            channels: vec![256; 4],
            deconv_channels: 256,
            target_rule: MaskTargetRule::RoiAlignBitmap,
        }
    }
}

/// How a mask target is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskTargetRule {
    /// Polygons shifted and scaled to the RoI, then COCO's polygon rasterizer.
    CocoPolygon,
    /// RoIAlign of the bitmap at network resolution.
    #[default]
    RoiAlignBitmap,
}

/// `[model.detections]`: from scored boxes to detections.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Detections {
    /// Minimum score of a detection (exclusive), 0 to 1. Default 0.05.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "probability"))]
    pub score_threshold: f32,
    /// NMS within a class drops a box whose IoU with a higher-scoring one exceeds this. Default
    /// 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "IoU"))]
    pub nms_threshold: f32,
    /// Detections kept per image. Default 100, as COCO scores.
    #[schemars(range(min = 1, max = 100_000), extend("unit" = "detections"))]
    pub per_image: usize,
    /// A pixel is inside the mask above this probability. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "probability"))]
    pub mask_threshold: f32,
}

impl Default for Detections {
    fn default() -> Self {
        Self { score_threshold: 0.05, nms_threshold: 0.5, per_image: 100, mask_threshold: 0.5 }
    }
}
