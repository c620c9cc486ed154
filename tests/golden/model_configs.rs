//! The configs of the recorded models of torchvision and of the MLPerf reference, from the golden
//! data's metadata; those of detectron2 are in `d2_config.rs`.

use engine::config::{Config, NormKind, Optimizer};
use engine::dataset::network_size;
use kernels::ops::rules::adamw::Adamw;
use serde_json::Value;

use crate::recorded::Settings;
use crate::support::Case;

/// Heights and widths of images.
pub(crate) type Sizes = Vec<(usize, usize)>;

/// A model's config, its foreground classes, the sizes of its images in the file and in the
/// network, and 1 for each that is mirrored.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) classes: usize,
    pub(crate) images: Sizes,
    pub(crate) network: Sizes,
    pub(crate) flips: Vec<i32>,
}

pub(crate) fn torchvision(name: &str, meta: Case<'_>, steps: Case<'_>) -> Setup {
    let images = pairs(meta.attribute("imgs"));
    let (s, steps) = (Settings(meta.attributes(), ""), Settings(steps.attributes(), ""));
    let preset = match name {
        "model" => "torchvision_r50",
        "tv_maskrcnn_v2" => "torchvision_r50_v2",
        _ => "torchvision_keypoint_r50",
    };
    let mut config = torchvision_config(preset, s, images.len());
    if name == "model" {
        s.is("mode", "hash");
        config.model.backbone.norm_eps = s.float("eps_frozen_bn");
        optimizer_of(&mut config, steps);
    } else {
        config.model.backbone.norm_eps = s.float("bn_eps");
        later(&mut config, s);
        adamw_of(&mut config, steps);
    }
    s.is("lr", steps.float("lr"));
    config.solver.learning_rate = steps.float("lr");
    let network = pairs(meta.attribute("image_sizes_hw"));
    let flips = vec![0; images.len()];
    Setup { config, classes: s.usize("classes") - 1, images, network, flips }
}

pub(crate) fn mlperf(meta: Case<'_>, sgd: Case<'_>) -> Setup {
    let swap = |(width, height)| (height, width);
    let images: Vec<_> = pairs(meta.attribute("raw_wh")).into_iter().map(swap).collect();
    let s = Settings(meta.attributes(), "");
    let config = mlperf_config(s, Settings(sgd.attributes(), ""), images.len());
    mirrored(config, s.usize("classes") - 1, images, meta)
}

/// A setup whose sizes in the network follow from those in the files, and whose images may be
/// mirrored.
pub(crate) fn mirrored(config: Config, classes: usize, images: Sizes, meta: Case<'_>) -> Setup {
    let network = pairs(meta.attribute("image_sizes_hw"));
    check_sizes(&config, Settings(meta.attributes(), ""), &images, &network);
    let flips = usizes(meta.attribute("flip")).iter().map(|v| *v as i32).collect();
    Setup { config, classes, images, network, flips }
}

/// The preset's conventions with every value of the metadata.
fn mlperf_config(s: Settings<'_>, sgd: Settings<'_>, images: usize) -> Config {
    let mut c = Config::load("mlperf_r50", &[]).expect("the preset loads");
    stated(&mut c, s, images);
    optimizer_of(&mut c, sgd);
    s.is("frozen_bn_eps", Value::Null);
    c.model.backbone.stride_in_1x1 = s.flag("stride_in_1x1");
    c.input.size_divisor = s.usize("size_divisible");
    c.input.mean = s.array("pixel_mean_bgr");
    c.input.std = s.array("pixel_std");
    s.agree(&["sizes", "anchor.sizes"]);
    c.model.anchors.ratios = s.f32s("anchor.ratios");
    s.is("anchor.strides", c.level_strides());
    s.is("anchor.straddle_thresh", 0);
    let rpn = &mut c.model.rpn;
    let counts = |name: &str| s.array::<2>(name).map(|n| n as usize);
    [rpn.pre_nms_top_n_train, rpn.pre_nms_top_n_test] = counts("rpn.pre_nms_per_level");
    let of_level = counts("rpn.post_nms_per_level").map(Some);
    [rpn.post_nms_top_n_level_train, rpn.post_nms_top_n_level_test] = of_level;
    rpn.post_nms_top_n_train = s.usize("rpn.fpn_post_nms_train_per_batch");
    rpn.post_nms_top_n_test = s.usize("rpn.fpn_post_nms_test_per_image");
    rpn.min_size = s.f32("rpn.min_size");
    rpn.beta = s.f32("rpn.beta");
    c.model.box_head.beta = s.f32("roi.beta");
    c.model.box_head.pooled = s.usize("roi.box_pool.0");
    c.model.mask_head.pooled = s.usize("roi.mask_pool.0");
    c.model.roi.sampling_ratio = s.usize("roi.box_pool.1");
    s.agree(&["roi.box_pool.1", "roi.mask_pool.1"]);
    let side = 2 * c.model.mask_head.pooled;
    assert_eq!(s.usize("roi.mask_resolution"), side, "roi.mask_resolution of roi.mask_pool");
    // The reference's deconvolution has as many outputs as the last of the convolutions.
    c.model.mask_head.deconv_channels = *c.model.mask_head.channels.last().expect("a convolution");
    let (base, steps) = (sgd.float("base_lr"), sgd.usize("warmup.1"));
    sgd.is("warmup.0", "mlperf_linear");
    c.solver.learning_rate = base;
    c.solver.bias_lr_factor = sgd.float("bias_lr_factor");
    c.solver.bias_weight_decay = Some(sgd.float("bias_weight_decay"));
    c.solver.gamma = sgd.float("gamma");
    c.solver.warmup_steps = steps as u64;
    c.solver.warmup_factor = 1.0 - steps as f64 * sgd.float("warmup.2") / base;
    c.solver.milestones = sgd.usizes("steps").iter().map(|m| *m as u64).collect();
    c
}

/// Fails unless the recorded sizes in the network follow from those in the files by the config.
fn check_sizes(
    config: &Config,
    s: Settings<'_>,
    images: &[(usize, usize)],
    network: &[(usize, usize)],
) {
    let in_network = |&(height, width): &(usize, usize)| {
        let (height, width) = network_size(config, height as u32, width as u32);
        (height as usize, width as usize)
    };
    let sizes: Vec<_> = images.iter().map(in_network).collect();
    assert_eq!(sizes, network, "image_sizes_hw by raw_hw, raw_wh, min_size, max_size");
    let largest = |side: fn(&(usize, usize)) -> usize| {
        let largest = network.iter().map(side).max().unwrap_or_default();
        largest.next_multiple_of(config.input.size_divisor)
    };
    let padded = [largest(|hw| hw.0), largest(|hw| hw.1)];
    assert_eq!(s.usizes("padded_hw"), padded, "padded_hw by size_divisible");
}

/// Settings that the second set of golden data records too, some of them twice.
fn later(c: &mut Config, s: Settings<'_>) {
    for [name, again] in [
        ["rpn_convs", "rpn.conv_depth"],
        ["rpn_batch", "rpn.batch"],
        ["rpn_frac", "rpn.pos_fraction"],
        ["roi_batch", "roi.batch"],
        ["roi_frac", "roi.pos_fraction"],
        ["pre", "rpn.pre_nms"],
        ["post", "rpn.post_nms"],
        ["score_thresh", "roi.score_thresh"],
        ["det", "roi.detections"],
        ["sizes", "rpn.sizes"],
        ["roi.box_pool.1", "roi.mask_or_keypoint_pool.1"],
    ] {
        s.agree(&[name, again]);
    }
    let model = &mut c.model;
    let pooled = s.usize("roi.mask_or_keypoint_pool.0");
    if model.kind.has_keypoints() {
        s.is("architecture", "keypointrcnn_resnet50_fpn");
        model.keypoint_head.keypoints = s.usize("keypoints");
        model.keypoint_head.channels = s.usizes("kp");
        model.keypoint_head.pooled = pooled;
    } else {
        s.is("architecture", "maskrcnn_resnet50_fpn_v2");
        model.box_head.channels = s.usizes("box_convs");
        model.box_head.hidden.truncate(1);
        model.mask_head.pooled = pooled;
        // Scales and shifts of its norms are trained.
        let norm = NormKind::FrozenStatistics;
        model.backbone.norm = norm;
        [model.fpn.norm, model.box_head.norm, model.mask_head.norm] = [Some(norm); 3];
    }
    model.rpn.convs = s.usize("rpn.conv_depth");
    model.rpn.low_quality_matches = s.flag("rpn.allow_low_quality");
    model.rpn.min_size = s.f32("rpn.min_size");
    model.rpn.beta = s.f32("rpn.smooth_l1_beta");
    model.anchors.ratios = s.f32s("rpn.ratios");
    model.box_head.beta = s.f32("roi.smooth_l1_beta");
    model.box_head.pooled = s.usize("roi.box_pool.0");
    model.roi.sampling_ratio = s.usize("roi.box_pool.1");
    model.detections.min_size = s.f32("roi.min_size");
    c.input.mean = s.array("image_mean");
    c.input.std = s.array("image_std");
    c.input.size_divisor = s.usize("size_divisible");
    c.input.augment.min_sizes = vec![];
}

fn adamw_of(c: &mut Config, steps: Settings<'_>) {
    c.solver.optimizer = Optimizer::Adamw;
    c.solver.weight_decay = steps.float("weight_decay");
    let [beta1, beta2, eps] = ["beta1", "beta2", "eps"].map(|name| steps.float(name));
    c.solver.adamw = Adamw { beta1, beta2, eps };
}

fn torchvision_config(preset: &str, s: Settings<'_>, images: usize) -> Config {
    let mut c = Config::load(preset, &[]).expect("the preset loads");
    stated(&mut c, s, images);
    c.model.backbone.frozen_stages = 0;
    let rpn = &mut c.model.rpn;
    [rpn.pre_nms_top_n_train, rpn.pre_nms_top_n_test] = s.array("rpn.pre_nms").map(|n| n as usize);
    [rpn.post_nms_top_n_train, rpn.post_nms_top_n_test] =
        s.array("rpn.post_nms").map(|n| n as usize);
    if c.model.kind.has_masks() {
        c.model.mask_head.deconv_channels = s.usize("mdim");
    }
    c.input.flip_probability = 0.0;
    c.solver.warmup_steps = 0;
    c.solver.milestones.clear();
    c.solver.clip_norm = 0.0;
    c
}

/// Copies the settings that the metadata of all golden models state by the same names.
fn stated(c: &mut Config, s: Settings<'_>, images: usize) {
    let model = &mut c.model;
    model.backbone.blocks = s.usizes("layers");
    model.backbone.stem_channels = s.usize("w");
    model.backbone.width = s.usize("w");
    model.fpn.channels = s.usize("fpn");
    model.anchors.sizes = s.f32s("sizes");
    model.rpn.nms_threshold = s.f32("rpn.nms");
    model.rpn.batch_size_per_image = s.usize("rpn.batch");
    model.rpn.positive_fraction = s.f32("rpn.pos_fraction");
    model.rpn.fg_iou = s.f32("rpn.fg");
    model.rpn.bg_iou = s.f32("rpn.bg");
    model.roi.batch_size_per_image = s.usize("roi.batch");
    model.roi.positive_fraction = s.f32("roi.pos_fraction");
    model.roi.fg_iou = s.f32("roi.fg");
    model.roi.bg_iou = s.f32("roi.bg");
    model.roi.box_weights = s.array("roi.weights");
    model.detections.score_threshold = s.f32("roi.score_thresh");
    model.detections.nms_threshold = s.f32("roi.nms");
    model.detections.per_image = s.usize("roi.detections");
    model.box_head.hidden = vec![s.usize("rep"); 2];
    if model.kind.has_masks() {
        model.mask_head.channels = s.usizes("mask");
    }
    c.input.min_size = s.usize("min_size");
    c.input.max_size = s.usize("max_size");
    c.solver.dynamic_loss_scale = false;
    c.train.batch_size = images;
    c.train.images_per_group = images;
}

/// Copies the settings of plain SGD.
fn optimizer_of(c: &mut Config, sgd: Settings<'_>) {
    c.solver.momentum = sgd.float("momentum");
    c.solver.weight_decay = sgd.float("weight_decay");
}

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
