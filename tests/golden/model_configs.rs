//! The configs of the recorded models: presets with narrow layers, small images and few steps.

use engine::config::{BodyOutput, Config};
use serde_json::Value;

/// Heights and widths of images.
pub(crate) type Sizes = Vec<(usize, usize)>;

/// A preset, and what is narrower in the recorded model.
#[derive(Debug)]
pub(crate) struct Narrow {
    pub(crate) preset: &'static str,
    /// Channels of the stem, and of the first stage's 3x3.
    pub(crate) width: usize,
    /// Channels of the pyramid.
    pub(crate) fpn: usize,
    /// Channels of the head of masks or keypoints.
    pub(crate) head: usize,
    /// Sides of images: the shorter, and the most of the longer.
    pub(crate) sides: [usize; 2],
    pub(crate) set: &'static [&'static [&'static str]],
}

impl Narrow {
    pub(crate) fn config(&self) -> Config {
        let set: Vec<String> = self.set.concat().into_iter().map(str::to_string).collect();
        let mut config = Config::load(self.preset, &set).expect("the preset loads");
        let model = &mut config.model;
        model.backbone.stem_channels = self.width;
        model.backbone.width = self.width;
        model.fpn.channels = self.fpn;
        model.box_head.channels.fill(16);
        model.box_head.hidden.fill(32);
        model.mask_head.channels.fill(self.head);
        model.mask_head.deconv_channels = self.head;
        model.keypoint_head.channels.fill(self.head);
        if model.backbone.output != BodyOutput::Pyramid {
            // Padded to the largest image, whatever its sides.
            config.input.size_divisor = 1;
        }
        [config.input.min_size, config.input.max_size] = self.sides;
        config.solver.dynamic_loss_scale = false;
        config.train.batch_size = 2;
        config.train.images_per_group = 2;
        config
    }
}

pub(crate) const OF_TORCHVISION: &[&str] = &[
    "input.flip_probability=0",
    "model.backbone.frozen_stages=0",
    "model.rpn.batch_size_per_image=64",
    "model.rpn.pre_nms_top_n_train=200",
    "model.rpn.pre_nms_top_n_test=120",
    "solver.milestones=[]",
    "solver.warmup_steps=0",
];

/// The later ones, which AdamW trained.
pub(crate) const WITH_ADAMW: &[&str] = &[
    "model.backbone.blocks=[2, 2, 2, 1]",
    "model.rpn.post_nms_top_n_train=48",
    "model.rpn.post_nms_top_n_test=32",
    "solver.optimizer=adamw",
    "solver.learning_rate=0.0005",
    "solver.weight_decay=0.05",
];

pub(crate) const OF_DETECTRON2: &[&str] = &[
    "model.anchors.sizes=[16, 32, 64, 128, 256]",
    "model.detections.per_image=8",
    "model.detections.score_threshold=0.15",
    "model.roi.batch_size_per_image=32",
    "model.roi.positive_fraction=0.5",
    "model.rpn.batch_size_per_image=64",
    "model.rpn.pre_nms_top_n_train=150",
    "model.rpn.pre_nms_top_n_test=100",
    "model.rpn.post_nms_top_n_train=80",
    "model.rpn.post_nms_top_n_test=40",
    "solver.learning_rate=0.002",
    "solver.milestones=[4]",
    "solver.warmup_factor=0.1",
    "solver.warmup_steps=2",
];

/// Without a pyramid.
pub(crate) const BARE: &[&str] = &["model.anchors.sizes=[16, 32, 64, 96, 128]"];

/// From scratch, with a convolutional box head.
pub(crate) const FROM_SCRATCH: &[&str] =
    &["model.backbone.frozen_stages=0", "solver.weight_decay=0.0001"];

pub(crate) const LOW_SCORES: &[&str] = &["model.detections.score_threshold=0.05"];

pub(crate) const GROUP_NORMS: &[&str] = &[
    "model.backbone.norm=group_norm",
    "model.backbone.norm_groups=4",
    "model.fpn.norm=group_norm",
    "model.box_head.norm=group_norm",
    "model.mask_head.norm=group_norm",
];

/// Scales and shifts of norms are trained.
pub(crate) const TRAINED_NORMS: &[&str] = &[
    "model.backbone.norm=frozen_statistics",
    "model.fpn.norm=frozen_statistics",
    "model.box_head.norm=frozen_statistics",
    "model.mask_head.norm=frozen_statistics",
];

pub(crate) const OF_MLPERF: &[&str] = &[
    "model.anchors.sizes=[24, 48, 96, 128, 400]",
    "model.detections.per_image=9",
    "model.detections.score_threshold=0.08",
    "model.roi.batch_size_per_image=48",
    "model.rpn.batch_size_per_image=64",
    "model.rpn.pre_nms_top_n_train=100",
    "model.rpn.pre_nms_top_n_test=80",
    "model.rpn.post_nms_top_n_level_train=45",
    "model.rpn.post_nms_top_n_level_test=40",
    "model.rpn.post_nms_top_n_train=190",
    "model.rpn.post_nms_top_n_test=50",
    "solver.learning_rate=0.002",
    "solver.milestones=[4]",
    "solver.warmup_factor=0.25",
    "solver.warmup_steps=3",
];

pub(crate) fn pairs(value: &Value) -> Vec<(usize, usize)> {
    let number = |v: &Value| v.as_u64().expect("a size") as usize;
    let list = value.as_array().expect("a list of sizes");
    list.iter().map(|p| (number(&p[0]), number(&p[1]))).collect()
}

pub(crate) fn number(value: &Value, key: &str) -> f64 {
    value[key].as_f64().unwrap_or_else(|| panic!("{key} in {value}"))
}

pub(crate) fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|v| v.as_f64().expect("a number")).collect()
}

pub(crate) fn usizes(value: &Value) -> Vec<usize> {
    numbers(value).iter().map(|x| *x as usize).collect()
}
