//! The recorded models: narrow torchvision, detectron2 and MLPerf reference models.
//! Their configs are presets with narrow layers, small images and few steps.

use engine::config::{BodyOutput, Config};
use engine::weights::Dialect;
use serde_json::Value;

use crate::support::Family;

/// Heights and widths of images.
pub(crate) type Sizes = Vec<(usize, usize)>;

/// A recorded model.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) name: &'static str,
    narrow: Narrow,
    /// The project whose tensor names and rules the model uses.
    pub(crate) dialect: Dialect,
    /// The case with the training steps: `sgd5`, or `adamw3` for a model whose recording is split
    /// into two files.
    pub(crate) steps: &'static str,
    /// Number of recorded maps of the levels C and P.
    pub(crate) maps: usize,
    pub(crate) tolerances: &'static Tolerances,
}

/// Tolerances from the README of the golden data, relative to the largest value of a tensor.
#[derive(Debug)]
pub(crate) struct Tolerances {
    pub(crate) roi: f64,
    pub(crate) losses: f64,
    /// Tolerance of single gradient values: if a ReLU's input is 0 up to rounding, single values
    /// may differ by more than the norm does.
    pub(crate) grad_values: f64,
    pub(crate) eval: f64,
    /// A mask pixel whose probability differs from the threshold by at most this may be inside or
    /// outside.
    pub(crate) mask_slack: f32,
}

const TOLERANCES_OF_TORCHVISION: Tolerances =
    Tolerances { roi: 2e-5, losses: 1e-4, grad_values: 3e-3, eval: 1e-4, mask_slack: 1e-4 };
const TOLERANCES_OF_DETECTRON2: Tolerances =
    Tolerances { roi: 5e-5, losses: 2e-5, grad_values: 5e-3, eval: 1e-4, mask_slack: 0.0 };
const TOLERANCES_OF_MLPERF: Tolerances =
    Tolerances { roi: 5e-5, losses: 2e-5, grad_values: 5e-3, eval: 5e-5, mask_slack: 1e-4 };

const fn torchvision(name: &'static str, steps: &'static str, narrow: Narrow) -> Recorded {
    let (dialect, tolerances) = (Dialect::Torchvision, &TOLERANCES_OF_TORCHVISION);
    Recorded { name, narrow, dialect, steps, maps: 8, tolerances }
}

/// A narrow detectron2 model with a feature pyramid.
const fn detectron2(
    name: &'static str,
    preset: &'static str,
    set: &'static [&'static [&'static str]],
) -> Recorded {
    let narrow = Narrow { preset, width: 4, fpn: 24, head: 12, sides: [112, 160], set };
    let (dialect, tolerances) = (Dialect::Detectron2, &TOLERANCES_OF_DETECTRON2);
    Recorded { name, narrow, dialect, steps: "sgd5", maps: 9, tolerances }
}

/// A narrow detectron2 model without a feature pyramid.
const fn bare(name: &'static str, preset: &'static str, width: usize, head: usize) -> Recorded {
    let of = detectron2(name, preset, &[OF_DETECTRON2, BARE]);
    let narrow = Narrow { width, head, fpn: 256, ..of.narrow };
    Recorded { narrow, maps: 1, ..of }
}

/// `maskrcnn_resnet50_fpn`.
pub(crate) const PLAIN: Recorded = torchvision(
    "model",
    "sgd5",
    Narrow {
        preset: "torchvision_r50",
        width: 8,
        fpn: 32,
        head: 16,
        sides: [128, 160],
        set: &[
            OF_TORCHVISION,
            &[
                "model.detections.per_image=8",
                "model.detections.score_threshold=0.2",
                "model.roi.batch_size_per_image=32",
                "model.rpn.post_nms_top_n_train=80",
                "model.rpn.post_nms_top_n_test=40",
                "solver.learning_rate=0.0008",
            ],
        ],
    },
);
/// `maskrcnn_resnet50_fpn_v2`.
pub(crate) const V2: Recorded = torchvision(
    "tv_maskrcnn_v2",
    "adamw3",
    Narrow {
        preset: "torchvision_r50_v2",
        width: 6,
        fpn: 16,
        head: 16,
        sides: [96, 128],
        set: &[
            OF_TORCHVISION,
            WITH_ADAMW,
            TRAINED_NORMS,
            &[
                "model.detections.per_image=8",
                "model.detections.score_threshold=0.2",
                "model.roi.batch_size_per_image=32",
            ],
        ],
    },
);
/// `keypointrcnn_resnet50_fpn`.
const KEYPOINT_OF_TORCHVISION: Recorded = torchvision(
    "tv_keypointrcnn",
    "adamw3",
    Narrow {
        preset: "torchvision_keypoint_r50",
        width: 6,
        fpn: 16,
        head: 16,
        sides: [64, 96],
        set: &[
            OF_TORCHVISION,
            WITH_ADAMW,
            &[
                "model.anchors.sizes=[16, 32, 64, 128, 256]",
                "model.detections.per_image=3",
                "model.detections.score_threshold=0.3",
                "model.roi.batch_size_per_image=24",
                "model.roi.positive_fraction=0.2",
            ],
        ],
    },
);
/// `mask_rcnn_R_50_FPN`.
pub(crate) const FPN: Recorded = {
    let of = detectron2("d2_fpn", "detectron2_r50_3x", &[OF_DETECTRON2]);
    let narrow = Narrow { width: 6, fpn: 32, head: 16, sides: [192, 256], ..of.narrow };
    Recorded { narrow, ..of }
};
/// `cascade_mask_rcnn_R_50_FPN`.
pub(crate) const CASCADE: Recorded =
    detectron2("d2_cascade", "detectron2_cascade_r50_3x", &[OF_DETECTRON2]);
/// `keypoint_rcnn_R_50_FPN`.
const KEYPOINT: Recorded =
    detectron2("d2_keypoint", "detectron2_keypoint_r50_3x", &[OF_DETECTRON2]);
/// `mask_rcnn_R_50_C4`.
pub(crate) const C4: Recorded = bare("d2_c4", "detectron2_r50_c4_3x", 5, 16);
/// `mask_rcnn_R_50_DC5`.
pub(crate) const DC5: Recorded = bare("d2_dc5", "detectron2_r50_dc5_3x", 3, 12);
/// The heads of detectron2's new baselines, with group norms in backbone, pyramid and heads.
pub(crate) const GN: Recorded =
    detectron2("d2_gn", "detectron2_r50_lsj", &[OF_DETECTRON2, FROM_SCRATCH, GROUP_NORMS]);
/// The heads of detectron2's new baselines, with batch norms, whose running statistics are used in
/// evaluation.
pub(crate) const LSJ: Recorded =
    detectron2("d2_lsj", "detectron2_r50_lsj", &[OF_DETECTRON2, FROM_SCRATCH, LOW_SCORES]);
/// The model of the MLPerf reference.
pub(crate) const MLPERF: Recorded = Recorded {
    name: "mlperf_model",
    narrow: Narrow {
        preset: "mlperf_r50",
        width: 8,
        fpn: 24,
        head: 16,
        sides: [184, 300],
        set: &[OF_MLPERF],
    },
    dialect: Dialect::Benchmark,
    steps: "sgd5",
    maps: 8,
    tolerances: &TOLERANCES_OF_MLPERF,
};

/// The torchvision models.
pub(crate) const TORCHVISION: [&Recorded; 3] = [&PLAIN, &V2, &KEYPOINT_OF_TORCHVISION];

/// The models whose training is compared.
pub(crate) fn trained() -> impl Iterator<Item = &'static Recorded> {
    TORCHVISION.into_iter().chain([&FPN, &CASCADE, &KEYPOINT, &C4, &DC5, &GN, &MLPERF])
}

impl Recorded {
    pub(crate) fn config(&self) -> Config {
        self.narrow.config()
    }

    /// The name of the family (golden file) that contains a part of the recording, such as
    /// `features`.
    pub(crate) fn family(&self, part: &str) -> String {
        let file = match (self.steps, part) {
            ("sgd5", "steps") => "inputs_losses",
            ("sgd5", _) | (_, "weights") => part,
            (_, "inputs_losses" | "features" | "rpn") => return self.name.into(),
            _ => "heads",
        };
        format!("{}_{file}", self.name)
    }

    pub(crate) fn open(&self, part: &str) -> Option<Family> {
        Family::open(&self.family(part))
    }

    pub(crate) fn is_detectron2(&self) -> bool {
        self.dialect == Dialect::Detectron2
    }

    pub(crate) fn is_torchvision(&self) -> bool {
        self.dialect == Dialect::Torchvision
    }
}

/// A preset, and the narrower sizes of the recorded model.
#[derive(Debug)]
struct Narrow {
    preset: &'static str,
    /// Channels of the stem, and of the 3x3 convolutions in the first stage.
    width: usize,
    /// Channels of the pyramid.
    fpn: usize,
    /// Channels of the mask or keypoint head.
    head: usize,
    /// Shorter side of images, and maximum of the longer side.
    sides: [usize; 2],
    set: &'static [&'static [&'static str]],
}

impl Narrow {
    fn config(&self) -> Config {
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
            // Images are padded only to the largest image, which may have any size.
            config.input.size_divisor = 1;
        }
        [config.input.min_size, config.input.max_size] = self.sides;
        config.solver.dynamic_loss_scale = false;
        config.train.batch_size = 2;
        config.train.images_per_group = 2;
        config
    }
}

const OF_TORCHVISION: &[&str] = &[
    "input.flip_probability=0",
    "model.backbone.frozen_stages=0",
    "model.rpn.batch_size_per_image=64",
    "model.rpn.pre_nms_top_n_train=200",
    "model.rpn.pre_nms_top_n_test=120",
    "solver.milestones=[]",
    "solver.warmup_steps=0",
];

/// Overrides for the models that were recorded later, with AdamW.
const WITH_ADAMW: &[&str] = &[
    "model.backbone.blocks=[2, 2, 2, 1]",
    "model.rpn.post_nms_top_n_train=48",
    "model.rpn.post_nms_top_n_test=32",
    "solver.optimizer=adamw",
    "solver.learning_rate=0.0005",
    "solver.weight_decay=0.05",
];

const OF_DETECTRON2: &[&str] = &[
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
const BARE: &[&str] = &["model.anchors.sizes=[16, 32, 64, 96, 128]"];

/// Trained from scratch.
const FROM_SCRATCH: &[&str] = &["model.backbone.frozen_stages=0", "solver.weight_decay=0.0001"];

const LOW_SCORES: &[&str] = &["model.detections.score_threshold=0.05"];

const GROUP_NORMS: &[&str] = &[
    "model.backbone.norm=group_norm",
    "model.backbone.norm_groups=4",
    "model.fpn.norm=group_norm",
    "model.box_head.norm=group_norm",
    "model.mask_head.norm=group_norm",
];

/// Scales and shifts of norms are trained.
const TRAINED_NORMS: &[&str] = &[
    "model.backbone.norm=frozen_statistics",
    "model.fpn.norm=frozen_statistics",
    "model.box_head.norm=frozen_statistics",
    "model.mask_head.norm=frozen_statistics",
];

const OF_MLPERF: &[&str] = &[
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
