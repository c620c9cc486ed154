//! The keys of an R-CNN, and the constraints on them.

use choices::LevelEps;
use configs::{Check, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Model, NormKind, Tensor};
use crate::model::backbones::MAX_LEVELS;

table! {
    /// `[model.anchors]`: anchor boxes, which the RPN refines.
    pub struct Anchors {
        /// Side of a square anchor for each level, finest first; with `backbone.output = "c4"` the
        /// single map has anchors of all these sizes. Default `[32, 64, 128, 256, 512]`.
        #[key(each = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub sizes: Vec<f32> = vec![32.0, 64.0, 128.0, 256.0, 512.0],
        /// Aspect ratios (height / width) at constant area, used on all levels unless
        /// `ratios_by_level` is true. Default `[0.5, 1, 2]`.
        #[key(each = 0.0..=1000.0, resume = Step, mlperf = Model)]
        pub ratios: Vec<f32> = vec![0.5, 1.0, 2.0],
        /// `ratios` lists the ratios of the finest level, then equally many for each coarser level.
        /// Default false.
        #[key(resume = Step, mlperf = Model)]
        pub ratios_by_level: bool = false,
        /// Distance between neighbouring anchors: `"floor_padded_over_map"` (default, torchvision),
        /// `floor(padded side / map side)`, or `"nominal"` (MLPerf), the level's stride.
        #[key(resume = Step, mlperf = Model)]
        pub stride_rule: StrideRule = StrideRule::FloorPaddedOverMap,
        /// How the anchors of a cell are placed and rounded: `"centered"` (default, torchvision),
        /// `"detectron"` (MLPerf) or `"exact"` (detectron2).
        #[key(resume = Step, mlperf = Model)]
        pub cell_rule: CellRule = CellRule::Centered,
        /// Anchors that cross the border of the unpadded image are ignored. Default false; the
        /// MLPerf reference ignores them.
        #[key(resume = Step, mlperf = Model)]
        pub straddle_filter: bool = false,
    }
}

impl Config {
    /// Splits anchor sides, such as `model.anchors.sizes`, by level: one per level, or all for a
    /// single map.
    pub fn by_level(&self, sizes: &[f32]) -> Vec<Vec<f32>> {
        if !self.model.backbone.has_pyramid() {
            return vec![sizes.to_vec()];
        }
        sizes.iter().map(|size| vec![*size]).collect()
    }

    /// Splits anchor ratios, such as `model.anchors.ratios`, by level.
    pub fn ratios_of_levels(&self, ratios: &[f32]) -> Vec<Vec<f32>> {
        let levels = self.num_levels();
        match self.model.anchors.ratios_by_level {
            false => vec![ratios.to_vec(); levels],
            true => {
                let each = ratios.len() / levels;
                ratios.chunks(each.max(1)).map(<[f32]>::to_vec).collect()
            }
        }
    }
}

/// Placement and rounding of a cell's anchors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CellRule {
    /// Centred on the cell's corner; the anchor's corners are rounded after scaling to its size.
    Centered,
    /// Centred on the cell's pixels (inclusive corners); the sides of a box with the cell's area
    /// are rounded, then scaled to the anchor's size.
    Detectron,
    /// Centred on the cell's corner, not rounded.
    Exact,
}

/// Distance between anchors of neighbouring cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StrideRule {
    /// `floor(padded image side / map side)`, per axis.
    FloorPaddedOverMap,
    /// The level's stride: 4, 8, 16, ...
    Nominal,
}

table! {
    /// `[model.rpn]`: region proposal network. `top_n` keys are numbers of boxes.
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
        /// Training: maximum number of proposals per level and image, before
        /// `post_nms_top_n_train`. Default: none.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub post_nms_top_n_level_train: Option<usize> = None,
        /// Evaluation: maximum number of proposals per level and image, before
        /// `post_nms_top_n_test`. Default: none.
        #[key(range = 1..=65_536, unit = "boxes", resume = Step, mlperf = Model)]
        pub post_nms_top_n_level_test: Option<usize> = None,
        /// NMS drops a box whose IoU with a higher-scoring box exceeds this. Default 0.7.
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
        /// The anchors with the highest IoU for a ground-truth box are also positive. Default true.
        #[key(resume = Step, mlperf = Model)]
        pub low_quality_matches: bool = true,
        /// Anchors sampled per image for the loss. Default 256.
        #[key(range = 1..=65_536, unit = "anchors", resume = Step, mlperf = Model)]
        pub batch_size_per_image: usize = 256,
        /// Maximum share of positives among the sampled anchors, 0 to 1. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub positive_fraction: f32 = 0.5,
        /// Smooth L1 changes from quadratic to linear at this error. Default 1/9; 0 is plain L1.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub beta: f32 = 1.0 / 9.0,
        /// Set of boxes that `post_nms_top_n_train` limits: all of one `"image"` (default), of a
        /// `"batch"` (MLPerf; all images of a group, `train.images_per_group`) or of one `"level"`
        /// of an image.
        #[key(resume = Step, mlperf = Rule)]
        pub post_nms_scope: PostNmsScope = PostNmsScope::Image,
        /// Divisor of both losses: `"sampled"` (default), the number of sampled anchors, or
        /// `"batch_size"` (detectron2), `batch_size_per_image` times the number of images in a
        /// group.
        #[key(resume = Step, mlperf = Rule)]
        pub loss_divisor: LossDivisor = LossDivisor::Sampled,
    }
}

/// Divisor of the sums of the RPN's losses, in each group of images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LossDivisor {
    /// Number of sampled anchors.
    Sampled,
    /// Maximum number of anchors that can be sampled.
    BatchSize,
}

/// Set of boxes that `post_nms_top_n_train` limits. In evaluation the limit is per image, or for
/// `Level` per level of each image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PostNmsScope {
    /// All levels of one image.
    Image,
    /// All images of one group (`train.images_per_group`), all levels.
    Batch,
    /// One level of one image.
    Level,
}

table! {
    /// `[model.roi]`: sampling of RoIs for training, and pooling of RoI features.
    pub struct Roi {
        /// RoIs sampled per image. Default 512.
        #[key(range = 1..=65_536, unit = "RoIs", resume = Step, mlperf = Model)]
        pub batch_size_per_image: usize = 512,
        /// Maximum share of positives among the sampled RoIs, 0 to 1. Default 0.25.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub positive_fraction: f32 = 0.25,
        /// An RoI with at least this IoU with a ground-truth box is positive. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub fg_iou: f32 = 0.5,
        /// An RoI below this IoU with every ground-truth box is background. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub bg_iou: f32 = 0.5,
        /// A square RoI with sides of this many pixels is pooled from `canonical_level`. Default
        /// 224.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub canonical_size: f32 = 224.0,
        /// Level from which an RoI of `canonical_size` is pooled. Default 4, the level of stride
        /// 16.
        #[key(range = 0..=12, unit = "level", resume = Step, mlperf = Model)]
        pub canonical_level: usize = 4,
        /// Number of the finest level: log2 of its stride. Default 2, stride 4.
        #[key(range = 2..=2, unit = "level", resume = Step, mlperf = Model)]
        pub min_level: usize = 2,
        /// Weights of the box deltas (dx, dy, dw, dh). Default `[10, 10, 5, 5]`.
        #[key(each = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_weights: [f32; 4] = [10.0, 10.0, 5.0, 5.0],
        /// RoIAlign shifts RoIs by half a pixel. Default false, as in torchvision and MLPerf.
        #[key(resume = Step, mlperf = Model)]
        pub aligned: bool = false,
        /// Number of RoIAlign samples of a bin along each axis. Default 2; 0 is adaptive: `ceil(RoI
        /// side / pooled side)`.
        #[key(range = 0..=64, unit = "samples", resume = Step, mlperf = Model)]
        pub sampling_ratio: usize = 2,
        /// Constant that resolves ties between levels: `"after_log"` (default, torchvision) adds
        /// 1e-6 to the logarithm of an RoI's size, `"in_log"` (detectron2) adds 1e-8 to the size.
        #[key(resume = Step, mlperf = Model)]
        pub level_eps: LevelEps = LevelEps::AfterLog,
    }
}

table! {
    /// `[model.box_head]`: the head that predicts the class and box of an RoI.
    pub struct BoxHead {
        /// Side of the pooled features, in bins. Default 7.
        #[key(range = 1..=64, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 7,
        /// Channels of the 3x3 convolutions before the fully connected layers. Default `[]`;
        /// torchvision's v2 and detectron2's LSJ models have `[256, 256, 256, 256]`.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = Vec::new(),
        /// Norm after each 3x3 convolution, instead of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, with `norm_eps` and `norm_groups` of
        /// `[model.backbone]`. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
        /// Widths of the one or two fully connected layers. Default `[1024, 1024]`.
        #[key(each = 1..=1_048_576, unit = "channels", resume = Step, mlperf = Model)]
        pub hidden: Vec<usize> = vec![1024, 1024],
        /// All classes share the four deltas of an RoI; required for a cascade. Default false: each
        /// class has its own deltas.
        #[key(resume = Step, mlperf = Model)]
        pub class_agnostic: bool = false,
        /// Box loss: `"smooth_l1"` (default, on deltas) or `"giou"` (on decoded boxes).
        #[key(resume = Step, mlperf = Model)]
        pub loss: BoxLoss = BoxLoss::SmoothL1,
        /// Smooth L1 changes from quadratic to linear at this error. Default 1 (MLPerf; torchvision
        /// 1/9).
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub beta: f32 = 1.0,
        /// Label smoothing: share of the target distribution that is spread evenly over all
        /// classes. Default 0.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Model)]
        pub label_smoothing: f32 = 0.0,
    }
}

table! {
    /// `[model.cascade]`: additional box heads (Cascade R-CNN); each uses the boxes that the
    /// previous head predicts as RoIs. Scores are averaged over all heads; the mask head trains on
    /// the RoIs of the first head. Requires `box_head.class_agnostic = true`.
    pub struct Cascade {
        /// IoU threshold for positive RoIs of each additional head. One or two values, above 0 and
        /// below 1; the first head uses `roi.fg_iou`. Default `[]`: no additional heads;
        /// detectron2's models have `[0.6, 0.7]`.
        #[key(each = 0.0..=1.0, unit = "IoU", resume = Step, mlperf = Model)]
        pub fg_iou: Vec<f32> = Vec::new(),
        /// Factors that the additional heads apply to `roi.box_weights`, above 0: one per head, or
        /// four (dx, dy, dw, dh) per head. Default `[]`; detectron2's models have `[2, 3]`.
        #[key(each = 0.0..=1e6, resume = Step, mlperf = Model)]
        pub box_weight_factors: Vec<f32> = Vec::new(),
    }
}

impl Cascade {
    /// The weights of the box deltas in each additional head: `factors` times the first head's
    /// weights.
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
    /// Smooth L1 loss of the box deltas.
    SmoothL1,
    /// Generalized IoU loss of the decoded boxes.
    Giou,
}

/// Checks the keys of an R-CNN; its heads check their own.
pub(super) fn check(config: &Config, check: &mut Check) {
    anchors(config, check);
    rpn(config, check);
    roi(config, check);
    let head = &config.model.box_head;
    check.at_least_one("model.box_head.pooled", head.pooled);
    check.require((1..=2).contains(&head.hidden.len()), "model.box_head.hidden", || {
        format!("has {} layers; the box head has one or two", head.hidden.len())
    });
    check.counts("model.box_head.hidden", &head.hidden);
    check.require(!head.channels.contains(&0), "model.box_head.channels", || {
        format!("is {:?}; each number must be at least 1", head.channels)
    });
    check.not_negative("model.box_head.beta", head.beta);
    cascade(config, check);
    (super::heads::HEADS.iter()).for_each(|head| (head.check)(config, check));
    groups_of_proposals(config, check);
}

/// Sets keys that only training reads to values that pass the checks, for any values of other keys.
pub(super) fn to_detect(model: &mut Model) {
    let Model { rpn, roi, .. } = model;
    (rpn.pre_nms_top_n_train, rpn.post_nms_top_n_train) = (1, 1);
    (rpn.fg_iou, rpn.bg_iou) = (Rpn::default().fg_iou, 0.0);
    (roi.batch_size_per_image, roi.fg_iou, roi.bg_iou) = (1, 1.0, 0.0);
}

/// If proposals are selected per group of images, validation losses need batches that consist of
/// complete groups.
fn groups_of_proposals(config: &Config, check: &mut Check) {
    let (batch, group) = (config.eval.batch_size, config.train.images_per_group.max(1));
    let in_groups = config.eval.loss && config.model.rpn.post_nms_scope == PostNmsScope::Batch;
    check.require(!in_groups || batch.is_multiple_of(group), "eval.batch_size", || {
        format!(
            "is {batch}; with eval.loss and model.rpn.post_nms_scope = \"batch\" it must be a \
             multiple of train.images_per_group, such as {}",
            batch.next_multiple_of(group)
        )
    });
}

fn anchors(config: &Config, check: &mut Check) {
    let anchors = &config.model.anchors;
    let (key, levels) = ("model.anchors.sizes", config.num_levels());
    let is_single = !config.model.backbone.has_pyramid();
    check.require(!is_single || !anchors.sizes.is_empty(), key, || {
        "is empty; give at least one size".into()
    });
    check.require(is_single || anchors.sizes.len() == levels, key, || {
        let sizes = anchors.sizes.len();
        format!(
            "has {sizes} entries, but the model has {levels} FPN levels; give one size per level"
        )
    });
    anchors.sizes.iter().for_each(|&size| check.positive(key, size));
    let key = "model.anchors.ratios";
    check.require(!anchors.ratios.is_empty(), key, || "is empty; give at least one ratio".into());
    anchors.ratios.iter().for_each(|&ratio| check.positive(key, ratio));
    let (ratios, is_even) = (anchors.ratios.len(), anchors.ratios.len().is_multiple_of(levels));
    check.require(!anchors.ratios_by_level || is_even, key, || {
        format!(
            "has {ratios} entries for {levels} levels; give as many for each level, or set \
             model.anchors.ratios_by_level=false"
        )
    });
}

fn rpn(config: &Config, check: &mut Check) {
    let rpn = &config.model.rpn;
    check.at_least_one("model.rpn.pre_nms_top_n_train", rpn.pre_nms_top_n_train);
    check.at_least_one("model.rpn.pre_nms_top_n_test", rpn.pre_nms_top_n_test);
    check.at_least_one("model.rpn.post_nms_top_n_train", rpn.post_nms_top_n_train);
    check.at_least_one("model.rpn.post_nms_top_n_test", rpn.post_nms_top_n_test);
    for (key, most) in [
        ("model.rpn.post_nms_top_n_level_train", rpn.post_nms_top_n_level_train),
        ("model.rpn.post_nms_top_n_level_test", rpn.post_nms_top_n_level_test),
    ] {
        check.at_least_one(key, most.unwrap_or(1));
    }
    check.fraction("model.rpn.nms_threshold", rpn.nms_threshold);
    check.fraction("model.rpn.score_threshold", rpn.score_threshold);
    check.not_negative("model.rpn.min_size", rpn.min_size);
    thresholds(check, "model.rpn", rpn.fg_iou, rpn.bg_iou);
    check.at_least_one("model.rpn.batch_size_per_image", rpn.batch_size_per_image);
    check.fraction("model.rpn.positive_fraction", rpn.positive_fraction);
    check.not_negative("model.rpn.beta", rpn.beta);
}

fn roi(config: &Config, check: &mut Check) {
    let roi = &config.model.roi;
    check.at_least_one("model.roi.batch_size_per_image", roi.batch_size_per_image);
    check.fraction("model.roi.positive_fraction", roi.positive_fraction);
    thresholds(check, "model.roi", roi.fg_iou, roi.bg_iou);
    check.positive("model.roi.canonical_size", roi.canonical_size);
    check.require(roi.min_level == 2, "model.roi.min_level", || {
        format!("is {}, but the finest level has stride 4; it must be 2", roi.min_level)
    });
    check.require(roi.canonical_level <= MAX_LEVELS, "model.roi.canonical_level", || {
        format!("is {}; it must be at most {MAX_LEVELS}", roi.canonical_level)
    });
    for weight in roi.box_weights {
        check.positive("model.roi.box_weights", weight);
    }
}

fn thresholds(check: &mut Check, table: &str, fg_iou: f32, bg_iou: f32) {
    check.fraction(&format!("{table}.fg_iou"), fg_iou);
    let key = format!("{table}.bg_iou");
    check.fraction(&key, bg_iou);
    check.require(bg_iou <= fg_iou, &key, || {
        format!("is {bg_iou}, above {table}.fg_iou = {fg_iou}; it must be at most that")
    });
}

/// Maximum number of additional box heads.
const MAX_FURTHER_HEADS: usize = 2;

fn cascade(config: &Config, check: &mut Check) {
    let (cascade, heads) = (&config.model.cascade, config.model.cascade.fg_iou.len());
    let is_c4 = config.model.backbone.is_c4();
    check.require(!is_c4 || heads == 0, "model.cascade.fg_iou", || {
        "conflicts with model.backbone.output = \"c4\", which supports only one box head; remove it"
            .into()
    });
    check.require(heads <= MAX_FURTHER_HEADS, "model.cascade.fg_iou", || {
        format!("has {heads} values; a cascade has at most {MAX_FURTHER_HEADS} additional heads")
    });
    let is_between = cascade.fg_iou.iter().all(|&iou| iou > 0.0 && iou < 1.0);
    check.require(is_between, "model.cascade.fg_iou", || {
        format!("is {:?}; each IoU must be above 0 and below 1", cascade.fg_iou)
    });
    let factors = cascade.box_weight_factors.len();
    let fits = factors == heads || factors == 4 * heads;
    check.require(fits, "model.cascade.box_weight_factors", || {
        format!(
            "has {factors} values, model.cascade.fg_iou {heads}; give one or four for each head"
        )
    });
    for &factor in &cascade.box_weight_factors {
        check.positive("model.cascade.box_weight_factors", factor);
    }
    let shares = heads == 0 || config.model.box_head.class_agnostic;
    check.require(shares, "model.box_head.class_agnostic", || {
        "is false, but in a cascade all classes share one box per RoI; it must be true".into()
    });
}

/// The largest tensors of an R-CNN.
pub(super) fn tensors(config: &Config) -> Vec<Tensor> {
    [proposals(config), rois(config)].concat()
}

/// Tensors of anchors and proposals.
fn proposals(config: &Config) -> Vec<Tensor> {
    let (model, images) = (&config.model, config.most_images());
    let map = |stride: usize| config.most_side().div_ceil(stride);
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let mut tensors = Vec::new();
    let words = "images x ratios x map side x map side x 4";
    let factors = vec![images, model.anchors.ratios.len(), map(4), map(4), 4];
    tensors.push(tensor("model.anchors.ratios", words, factors));
    let rpn = &model.rpn;
    for (key, top_n) in [
        ("model.rpn.pre_nms_top_n_train", rpn.pre_nms_top_n_train),
        ("model.rpn.pre_nms_top_n_test", rpn.pre_nms_top_n_test),
        ("model.rpn.post_nms_top_n_train", rpn.post_nms_top_n_train),
        ("model.rpn.post_nms_top_n_test", rpn.post_nms_top_n_test),
    ] {
        // NMS uses one bit per pair of boxes.
        let words = "images x levels x boxes x boxes / 64";
        let boxes = top_n.div_ceil(64);
        tensors.push(tensor(key, words, vec![images, config.num_levels(), top_n, boxes]));
    }
    tensors
}

/// Tensors of RoI features, logits and masks, and weights of the heads.
fn rois(config: &Config) -> Vec<Tensor> {
    let model = &config.model;
    let (fpn, head) = (model.fpn.channels, &model.box_head);
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let classes = model.num_classes.max(1);
    let mut tensors = Vec::new();
    let counts = [
        ("model.roi.batch_size_per_image", model.roi.batch_size_per_image),
        ("model.rpn.post_nms_top_n_test", model.rpn.post_nms_top_n_test),
    ];
    for (key, rois) in counts {
        let words = "images x RoIs x channels x bins x bins";
        let factors = vec![config.most_images(), rois, fpn, head.pooled, head.pooled];
        tensors.push(tensor(key, words, factors));
        let words = "images x RoIs x classes x 4";
        tensors.push(tensor(key, words, vec![config.most_images(), rois, classes, 4]));
        for &width in &head.hidden {
            let words = "images x RoIs x channels";
            tensors.push(tensor(key, words, vec![config.most_images(), rois, width]));
        }
    }
    let mut channels = fpn;
    for &width in &head.channels {
        let key = "model.box_head.channels";
        let words = "images x RoIs x channels x bins x bins";
        let rois = model.roi.batch_size_per_image.max(model.rpn.post_nms_top_n_test);
        tensors.push(tensor(
            key,
            words,
            vec![config.most_images(), rois, width, head.pooled, head.pooled],
        ));
        tensors.push(tensor(key, "9 x channels x channels", vec![9, channels, width]));
        channels = width;
    }
    let mut inputs = vec![channels, head.pooled, head.pooled];
    for &width in &head.hidden {
        let words = "inputs x outputs";
        let factors = inputs.iter().copied().chain([width]).collect();
        tensors.push(tensor("model.box_head.hidden", words, factors));
        inputs = vec![width];
    }
    inputs.extend([classes, 4]);
    tensors.push(tensor("model.num_classes", "inputs x classes x 4", inputs));
    for head in super::heads::HEADS {
        tensors.extend((head.tensors)(config));
    }
    tensors
}
