//! Limits of products: no tensor of a program may be larger than a machine's memory. Within them
//! the planner's arithmetic cannot overflow, and whether the memory suffices is compared later.

use configs::Check;

use crate::config::{Config, Stage};

/// Most elements of one tensor: 64 GiB in f32.
const MAX_ELEMENTS: u128 = 1 << 34;

/// A tensor: the key to lower, the factors in words, and the factors.
struct Tensor {
    key: &'static str,
    words: &'static str,
    factors: Vec<usize>,
}

pub(super) fn check(config: &Config, check: &mut Check) {
    for Tensor { key, words, factors } in tensors(config) {
        let elements = factors.iter().fold(1u128, |product, f| product.saturating_mul(*f as u128));
        check.require(elements <= MAX_ELEMENTS, key, || {
            format!(
                "is too large: {words} make a tensor of {} = {:.1e} elements; the limit is {:.1e}",
                factors.iter().map(usize::to_string).collect::<Vec<_>>().join(" x "),
                elements as f64,
                MAX_ELEMENTS as f64
            )
        });
    }
}

fn tensors(config: &Config) -> Vec<Tensor> {
    let mut tensors = maps(config);
    tensors.extend(rois(config));
    tensors
}

/// Images per program at least, in training and evaluation: how many groups of the batch a program
/// holds depends on ranks and device, and is checked when its memory is planned.
fn images(config: &Config) -> usize {
    config.train.images_per_group.max(config.eval.batch_size)
}

/// Feature maps, proposals, and the weights of the body.
fn maps(config: &Config) -> Vec<Tensor> {
    let (model, input) = (&config.model, &config.input);
    let images = images(config);
    let side = input.max_size.max(input.augment.jitter_size);
    let side = side.next_multiple_of(input.size_divisor.max(1));
    let map = |stride: usize| side.div_ceil(stride);
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let mut tensors =
        vec![tensor("input.max_size", "images x side x side x 3", vec![images, side, side, 3])];
    for Stage { key, channels, stride, .. } in model.backbone.stages() {
        let words = "images x channels x map side x map side";
        tensors.push(tensor(key, words, vec![images, channels, map(stride), map(stride)]));
        tensors.push(tensor(key, "9 x channels x channels", vec![9, channels, channels]));
        let words = "channels x model.fpn.channels";
        tensors.push(tensor(key, words, vec![channels, model.fpn.channels]));
    }
    let fpn = model.fpn.channels;
    let key = "model.fpn.channels";
    let words = "images x channels x map side x map side";
    tensors.push(tensor(key, words, vec![images, fpn, map(4), map(4)]));
    tensors.push(tensor(key, "9 x channels x channels", vec![9, fpn, fpn]));
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
        // NMS keeps a bit per pair of boxes.
        let words = "images x levels x boxes x boxes / 64";
        let boxes = top_n.div_ceil(64);
        tensors.push(tensor(key, words, vec![images, config.num_levels(), top_n, boxes]));
    }
    tensors
}

/// Features, logits and masks of RoIs, and the weights of the heads.
fn rois(config: &Config) -> Vec<Tensor> {
    let model = &config.model;
    let (fpn, head, mask) = (model.fpn.channels, &model.box_head, &model.mask_head);
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let classes = model.num_classes.max(1);
    let mut tensors = Vec::new();
    let counts = [
        ("model.roi.batch_size_per_image", model.roi.batch_size_per_image),
        ("model.rpn.post_nms_top_n_test", model.rpn.post_nms_top_n_test),
    ];
    for (key, rois) in counts {
        let words = "images x RoIs x channels x bins x bins";
        let factors = vec![images(config), rois, fpn, head.pooled, head.pooled];
        tensors.push(tensor(key, words, factors));
        let words = "images x RoIs x classes x 4";
        tensors.push(tensor(key, words, vec![images(config), rois, classes, 4]));
        for &width in &head.hidden {
            let words = "images x RoIs x channels";
            tensors.push(tensor(key, words, vec![images(config), rois, width]));
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
            vec![images(config), rois, width, head.pooled, head.pooled],
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
    if model.kind.has_masks() {
        let side = 2 * mask.pooled;
        let rois = model.roi.batch_size_per_image.max(model.detections.per_image);
        let words = "images x RoIs x channels x mask side x mask side";
        let widths = mask.channels.iter().map(|&c| ("model.mask_head.channels", c));
        let widths = widths.chain([
            ("model.mask_head.deconv_channels", mask.deconv_channels),
            ("model.mask_head.pooled", classes),
        ]);
        for (key, channels) in widths {
            let factors = vec![images(config), rois, channels, side, side];
            tensors.push(tensor(key, words, factors));
            let words = "9 x channels x channels";
            tensors.push(tensor(key, words, vec![9, channels, channels.max(fpn)]));
        }
    }
    if model.kind.has_keypoints() {
        tensors.extend(keypoints(config));
    }
    tensors
}

/// Features and maps of the keypoint head, and the weights between them.
fn keypoints(config: &Config) -> Vec<Tensor> {
    let (model, head) = (&config.model, &config.model.keypoint_head);
    let images = images(config);
    let rois = model.roi.batch_size_per_image.max(model.detections.per_image);
    let features = head.channels.iter().map(|&c| ("model.keypoint_head.channels", c, 1));
    let maps = ("model.keypoint_head.keypoints", head.keypoints, 4);
    let mut tensors = Vec::new();
    for (key, channels, times) in features.chain([maps]) {
        let side = times * head.pooled;
        let words = "images x RoIs x channels x map side x map side";
        let factors = vec![images, rois, channels, side, side];
        tensors.push(Tensor { key, words, factors });
        let words = "16 x channels x channels";
        let factors = vec![16, channels, channels.max(model.fpn.channels)];
        tensors.push(Tensor { key, words, factors });
    }
    tensors
}
