//! `[model.rpn]`, `[model.roi]`, the two heads and `[model.detections]`.

use choices::{LevelEps, MaskTargetRule, PasteRule};
use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::backbone::NormKind;

table! {
    /// `[model.rpn]`: region proposal network. `top_n` values count boxes.
    pub struct Rpn {
        /// 3x3 convolutions with ReLU before the predictors. Default 1; torchvision's v2 and
        /// detectron2's LSJ models have 2.
        #[key(range = 1..=16, unit = "convolutions", resume = Step, mlperf = Model)]
        pub convs: usize = 1,
        /// Training: top-scoring anchors kept per level and image before NMS. Default 2000.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub pre_nms_top_n_train: usize = 2000,
        /// Evaluation: top-scoring anchors kept per level and image before NMS. Default 1000.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub pre_nms_top_n_test: usize = 1000,
        /// Training: proposals kept after NMS, within `post_nms_scope`. Default 2000.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Rule)]
        pub post_nms_top_n_train: usize = 2000,
        /// Evaluation: proposals kept per image after NMS. Default 1000.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub post_nms_top_n_test: usize = 1000,
        /// Training: proposals of a level of an image that the cut to `post_nms_top_n_train` takes
        /// at most. Default: none, all that NMS leaves.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub post_nms_top_n_level_train: Option<usize> = None,
        /// Evaluation: the same for `post_nms_top_n_test`. Default: none.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub post_nms_top_n_level_test: Option<usize> = None,
        /// NMS drops a box whose IoU with a higher-scoring one exceeds this. Default 0.7.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub nms_threshold: f32 = 0.7,
        /// Proposals below this objectness (after the sigmoid) are dropped. Default 0.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub score_threshold: f32 = 0.0,
        /// Proposals with a side below this many pixels are dropped. Default 1e-3.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub min_size: f32 = 1e-3,
        /// An anchor with at least this IoU with a ground-truth box is positive. Default 0.7.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub fg_iou: f32 = 0.7,
        /// An anchor below this IoU with every ground-truth box is negative. Default 0.3.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub bg_iou: f32 = 0.3,
        /// The anchors that overlap a ground-truth box most are positive too. Default true.
        #[key(resume = Step, mlperf = Model)]
        pub low_quality_matches: bool = true,
        /// Anchors sampled per image for the loss. Default 256.
        #[key(range = 1..=65_536, unit = "anchors", resume = Step, mlperf = Model)]
        pub batch_size_per_image: usize = 256,
        /// Maximum share of positives among them, 0 to 1. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub positive_fraction: f32 = 0.5,
        /// Smooth L1 changes from quadratic to linear at this error. Default 1/9; 0 is plain L1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub beta: f32 = 1.0 / 9.0,
        /// The scope that shares `post_nms_top_n_train`: `"image"` (default), `"batch"` (MLPerf) or
        /// `"level"`.
        #[key(resume = Step, mlperf = Rule)]
        pub post_nms_scope: PostNmsScope = PostNmsScope::Image,
        /// Divisor of the sums of both losses: `"sampled"` (default), the number of anchors that
        /// were sampled, or `"batch_size"` (detectron2), `batch_size_per_image` for each image of a
        /// group.
        #[key(resume = Step, mlperf = Rule)]
        pub loss_divisor: LossDivisor = LossDivisor::Sampled,
    }
}

/// Divisor of the sums of the RPN's losses, in each normalization group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossDivisor {
    /// The sampled anchors.
    Sampled,
    /// As many anchors as could have been sampled.
    BatchSize,
}

/// The scope of one `post_nms_top_n_train` in training. Evaluation cuts per image, or per level of
/// each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PostNmsScope {
    /// All levels of one image.
    Image,
    /// All images of one normalization group (`train.images_per_group`), all levels.
    Batch,
    /// One level of one image.
    Level,
}

table! {
    /// `[model.roi]`: which proposals are trained on, and how their features are pooled.
    pub struct Roi {
        /// RoIs sampled per image. Default 512.
        #[key(range = 1..=65_536, unit = "RoIs", resume = Step, mlperf = Model)]
        pub batch_size_per_image: usize = 512,
        /// Maximum share of positives among them, 0 to 1. Default 0.25.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub positive_fraction: f32 = 0.25,
        /// An RoI with at least this IoU with a ground-truth box is positive. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub fg_iou: f32 = 0.5,
        /// An RoI below this IoU with every ground-truth box is background. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub bg_iou: f32 = 0.5,
        /// A box with sides of this many pixels is pooled from `canonical_level`. Default 224.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub canonical_size: f32 = 224.0,
        /// See `canonical_size`. Default 4, the level of stride 16.
        #[key(range = 0..=12, unit = "level", resume = Step, mlperf = Model)]
        pub canonical_level: usize = 4,
        /// Number of the finest level, log2 of its stride. Default 2, stride 4.
        #[key(range = 2..=2, unit = "level", resume = Step, mlperf = Model)]
        pub min_level: usize = 2,
        /// Weights of the box deltas (dx, dy, dw, dh). Default `[10, 10, 5, 5]`.
        #[key(each = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_weights: [f32; 4] = [10.0, 10.0, 5.0, 5.0],
        /// RoIAlign shifts by half a pixel. Default false, as in both reference implementations.
        #[key(resume = Step, mlperf = Model)]
        pub aligned: bool = false,
        /// RoIAlign samples each bin this many times along each axis. Default 2; 0 is adaptive,
        /// `ceil(RoI side / pooled side)`.
        #[key(range = 0..=64, unit = "samples", resume = Step, mlperf = Model)]
        pub sampling_ratio: usize = 2,
        /// Where the constant stands that decides at boundaries between levels: `"after_log"`
        /// (default, torchvision) adds 1e-6 to the logarithm of the size, `"in_log"`
        /// (detectron2) 1e-8 to the size.
        #[key(resume = Step, mlperf = Model)]
        pub level_eps: LevelEps = LevelEps::AfterLog,
    }
}

table! {
    /// `[model.box_head]`: class and box of an RoI.
    pub struct BoxHead {
        /// Side of the pooled features, in bins. Default 7.
        #[key(range = 1..=64, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 7,
        /// Channels of the 3x3 convolutions before the fully connected layers. Default `[]`;
        /// torchvision's v2 and detectron2's LSJ models have `[256, 256, 256, 256]`.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = Vec::new(),
        /// Norm behind each of these convolutions, in place of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, as in `[model.backbone]`, whose `norm_eps` and
        /// `norm_groups` hold here too. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
        /// Widths of the one or two fully connected layers. Default `[1024, 1024]`.
        #[key(each = 1..=1_048_576, unit = "channels", resume = Step, mlperf = Model)]
        pub hidden: Vec<usize> = vec![1024, 1024],
        /// All classes share the four deltas of an RoI, as a cascade needs it. Default false: each
        /// class has its own.
        #[key(resume = Step, mlperf = Model)]
        pub class_agnostic: bool = false,
        /// Box loss: `"smooth_l1"` (default, on deltas) or `"giou"` (on decoded boxes).
        #[key(resume = Step, mlperf = Model)]
        pub loss: BoxLoss = BoxLoss::SmoothL1,
        /// Smooth L1 changes from quadratic to linear at this error. Default 1 (MLPerf; torchvision
        /// 1/9).
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub beta: f32 = 1.0,
        /// Share of an RoI's class that its loss spreads evenly over all classes. Default 0.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub label_smoothing: f32 = 0.0,
    }
}

table! {
    /// `[model.cascade]`: further box heads, each on the boxes that the one before it predicts
    /// (Cascade R-CNN). Scores are averaged over all; the mask head trains on the RoIs of the
    /// first. They need `box_head.class_agnostic = true`.
    pub struct Cascade {
        /// IoU from which an RoI of each further head is positive; below it, it is background. One
        /// or two, above 0 and below 1; the first head has `roi.fg_iou`. Default `[]`, a single
        /// head; detectron2's models have `[0.6, 0.7]`.
        #[key(each = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub fg_iou: Vec<f32> = Vec::new(),
        /// Factors of `roi.box_weights` in these heads, above 0: one for each head, or four (dx,
        /// dy, dw, dh) for each. Default `[]`; detectron2's models have `[2, 3]`.
        #[key(each = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_weight_factors: Vec<f32> = Vec::new(),
    }
}

impl Cascade {
    /// The weights of the box deltas in each of these heads, by such factors of the first head's.
    pub fn box_weights(&self, factors: &[f32], first: [f32; 4]) -> Vec<[f32; 4]> {
        let heads = self.fg_iou.len();
        let factors = factors.chunks(if factors.len() == heads { 1 } else { 4 });
        factors.map(|own| [0, 1, 2, 3].map(|i| first[i] * own[i % own.len()])).collect()
    }
}

/// Box regression loss of the box head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BoxLoss {
    /// Smooth L1 of the box deltas.
    SmoothL1,
    /// Generalized IoU of the decoded boxes.
    Giou,
}

table! {
    /// `[model.mask_head]`: mask of an RoI, with side `2 * pooled`.
    pub struct MaskHead {
        /// Side of the pooled features, in bins; the mask side is twice this. Default 14.
        #[key(range = 1..=64, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 14,
        /// Channels of the 3x3 convolutions. Default `[256, 256, 256, 256]`.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = vec![256; 4],
        /// Norm behind each of these convolutions, in place of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, as in `[model.backbone]`, whose `norm_eps` and
        /// `norm_groups` hold here too. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
        /// Channels of the 2x2 stride-2 deconvolution. Default 256.
        #[key(range = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub deconv_channels: usize = 256,
        /// How targets are made: `"roi_align_bitmap"` (default, torchvision: RoIAlign of the
        /// full-size bitmap) or `"coco_polygon"` (MLPerf: COCO's rasterizer on the cropped
        /// polygons).
        #[key(resume = Step, mlperf = Model)]
        pub target_rule: MaskTargetRule = MaskTargetRule::RoiAlignBitmap,
        /// `coco_polygon`: RoIs count as at least this many pixels wide and high. Default 1
        /// (MLPerf); detectron2 0.1.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub target_min_side: f32 = 1.0,
    }
}

table! {
    /// `[model.keypoint_head]`: keypoints of an RoI, each as a map of side `4 * pooled`.
    pub struct KeypointHead {
        /// Keypoints of an object, of any class: as many as the data has. Default 17, a person's in
        /// COCO.
        #[key(range = 1..=1024, unit = "keypoints", resume = Step, mlperf = Model)]
        pub keypoints: usize = 17,
        /// Side of the pooled features, in bins; the maps' side is four times this. Default 14.
        #[key(range = 1..=16, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 14,
        /// Channels of the 3x3 convolutions. Default eight times 512.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = vec![512; 8],
        /// Pairs of keypoints, by name, that change places in a flipped image (left and right): at
        /// `[]` none does, as where all are on the axis of symmetry. Default: none, the pairs are
        /// those whose names differ in left and right alone; where no names do, images are not
        /// flipped.
        #[key(resume = Step, mlperf = Model)]
        pub flip_pairs: Option<Vec<[String; 2]>> = None,
        /// Annotated keypoints are indices of pixels, whose middle is half a pixel further
        /// (detectron2). Default false: points of the image (torchvision).
        #[key(resume = Step, mlperf = Model)]
        pub half_pixel: bool = false,
        /// The loss is a mean over the keypoints that are labelled and lie in their RoI. Default
        /// true; false (a choice of detectron2) divides their sum by what a full sample of RoIs
        /// could have.
        #[key(resume = Step, mlperf = Model)]
        pub mean_over_labelled: bool = true,
        /// The number beside each detected keypoint: `"logit"` (default, torchvision), the map's
        /// at its peak, or `"share"` (detectron2), the peak's share of the map's exponentials.
        #[key(resume = Step, mlperf = Model)]
        pub score: KeypointScore = KeypointScore::Logit,
    }
}

/// The number beside a detected keypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeypointScore {
    /// The logit at the peak.
    Logit,
    /// The exponential of the logit over the sum of the map's.
    Share,
}

table! {
    /// `[model.detections]`: from scored boxes to detections.
    pub struct Detections {
        /// Minimum score of a detection (exclusive), 0 to 1. Default 0.05.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub score_threshold: f32 = 0.05,
        /// NMS within a class drops a box whose IoU with a higher-scoring one exceeds this. Default
        /// 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub nms_threshold: f32 = 0.5,
        /// Class-agnostic NMS, among the detections that `per_image` keeps: drop one whose IoU with
        /// a higher-scoring one of any class exceeds this. Default: none.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub class_agnostic_nms_threshold: Option<f32> = None,
        /// Detections kept per image. Default 100, as COCO scores.
        #[key(range = 1..=100_000, unit = "detections", resume = Step, mlperf = Model)]
        pub per_image: usize = 100,
        /// Detections with a side below this many pixels of the network's image are dropped.
        /// Default 1e-2 (torchvision); detectron2 0, which drops those without area in the image.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub min_size: f32 = 1e-2,
        /// How a mask is drawn into the image: `"integer_box"` (default, torchvision and MLPerf),
        /// in a box cut to whole pixels, or `"grid_sample"` (detectron2), at the centres of pixels
        /// in the box as it is, which fits better.
        #[key(resume = Step, mlperf = Model)]
        pub paste_rule: PasteRule = PasteRule::IntegerBox,
        /// A pixel is inside the mask above this probability, or with
        /// `paste_rule = "grid_sample"` from it on. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Model)]
        pub mask_threshold: f32 = 0.5,
    }
}
