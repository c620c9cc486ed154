//! Tensorpack's names, such as `group0/block0/conv1/W`, and TensorFlow's layouts: [height, width,
//! in, out] for a convolution, [height, width, out, in] for a transposed convolution, [in, out] for
//! a fully connected layer. The inputs of the first fully connected layer are ordered by channel,
//! row, column, as in torchvision. The background is the first class, and has no rows in the mask
//! predictor.

use super::pattern::HERE;
use super::{Background, MASKS, PLAIN, Rules};
use crate::weights::container::Values;

pub(super) static RULES: Rules = Rules {
    name: "Tensorpack",
    marks: &["conv0/W", "group0/block0/"],
    names: &[
        (
            &[("backbone.body.", "", "")],
            &[
                ("conv1", "conv0"),
                ("bn1", "conv0/bn"),
                ("bn1", "conv0/gn"),
                ("layer{1}.{0}.conv{1}", "group{0}/block{0}/conv{1}"),
                ("layer{1}.{0}.bn{1}", "group{0}/block{0}/conv{1}/bn"),
                ("layer{1}.{0}.bn{1}", "group{0}/block{0}/conv{1}/gn"),
                ("layer{1}.{0}.downsample.0", "group{0}/block{0}/convshortcut"),
                ("layer{1}.{0}.downsample.1", "group{0}/block{0}/convshortcut/bn"),
                ("layer{1}.{0}.downsample.1", "group{0}/block{0}/convshortcut/gn"),
            ],
        ),
        // In models without FPN, these names lack the component `outputs`.
        (
            &[
                ("roi_heads.box_predictor.", "fastrcnn/outputs/", ""),
                ("roi_heads.box_predictor.", "fastrcnn/", ""),
            ],
            &[("cls_score", "class"), ("bbox_pred", "box")],
        ),
        (
            HERE,
            &[
                ("backbone.fpn.inner_blocks.{0}.0", "fpn/lateral_1x1_c{2}"),
                ("backbone.fpn.layer_blocks.{0}.0", "fpn/posthoc_3x3_p{2}"),
                ("rpn.head.conv.{0}.0", "rpn/conv{0}"),
                ("rpn.head.cls_logits", "rpn/class"),
                ("rpn.head.bbox_pred", "rpn/box"),
                ("roi_heads.box_head.fc{0}", "fastrcnn/fc{0}"),
                ("roi_heads.box_head.{0}.0", "fastrcnn/conv{0}"),
                // The fully connected layer that follows convolutions.
                ("roi_heads.box_head.{fc}", "fastrcnn/fc"),
                ("roi_heads.mask_head.{0}.0", "maskrcnn/fcn{0}"),
                ("roi_heads.mask_predictor.conv5_mask", "maskrcnn/deconv"),
                ("roi_heads.mask_predictor.mask_fcn_logits", "maskrcnn/conv"),
                // The ImageNet classifier of a backbone file.
                ("fc", "linear"),
            ],
        ),
    ],
    ends: &[
        (".weight", "/W"),
        (".bias", "/b"),
        (".weight", "/gamma"),
        (".bias", "/beta"),
        (".running_mean", "/mean/EMA"),
        (".running_var", "/variance/EMA"),
    ],
    // Optimizer state.
    is_left_out: |name| name.trim_end_matches(":0").ends_with("/Momentum"),
    refused: (
        &["fpn/", "rpn/", "fastrcnn/", "maskrcnn/", "cascade_rcnn"],
        "Tensorpack's cascades, and models with norms in pyramid or heads, cannot be read",
    ),
    layout: turned,
    background: Background {
        lacking: &[(MASKS, 1)],
        note: "Tensorpack has no mask rows for the background: they are 0, and not used",
        ..PLAIN.background
    },
    pixels: [[103.53, 116.28, 123.675], [57.375, 57.12, 58.395]],
    like: Some((
        "detectron2_r50_3x",
        &[
            "input.std=[57.375,57.12,58.395]",
            "input.resize_filter=bilinear",
            "model.backbone.stride_in_1x1=false",
            "model.roi.sampling_ratio=2",
        ],
    )),
    ..PLAIN
};

/// Converts TensorFlow's layouts of convolutions and fully connected layers to torchvision's: swaps
/// the last two indices, and moves them to the front. Vectors are unchanged.
fn turned((shape, values): Values) -> Values {
    let [rest @ .., from, to] = &shape[..] else { return (shape, values) };
    // A tensor without elements, whose other dimensions may be huge.
    if values.is_empty() {
        return ([&[*to, *from], rest].concat(), values);
    }
    let places: usize = rest.iter().product();
    let mut turned = Vec::with_capacity(values.len());
    for b in 0..*to {
        for a in 0..*from {
            turned.extend((0..places).map(|place| values[(place * from + a) * to + b]));
        }
    }
    let shape = [&[*to, *from], rest].concat();
    (shape, turned)
}
