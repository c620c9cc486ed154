//! Tensorpack's names, `group0/block0/conv1/W`, and TensorFlow's layouts: a convolution is [height,
//! width, in, out], a transposed one [height, width, out, in], a fully connected layer [in, out];
//! the first fully connected layer is over channel, row, column, as features are NCHW there too.
//! The background is the first class, and has no rows for masks.

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
        // Without a pyramid they are not in `outputs`.
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
                // After convolutions.
                ("roi_heads.box_head.{fc}", "fastrcnn/fc"),
                ("roi_heads.mask_head.{0}.0", "maskrcnn/fcn{0}"),
                ("roi_heads.mask_predictor.conv5_mask", "maskrcnn/deconv"),
                ("roi_heads.mask_predictor.mask_fcn_logits", "maskrcnn/conv"),
                // The classifier that a backbone was trained with.
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
        "of Tensorpack's models, cascades and norms in pyramid and heads are not read",
    ),
    layout: turned,
    background: Background {
        lacking: &[(MASKS, 1)],
        note: "the background has no masks in Tensorpack: its rows are 0, and unread",
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

/// A tensor whose last two indices are swapped and moved to the front: converts TensorFlow's
/// layouts of convolutions and fully connected layers to torchvision's. Vectors are unchanged.
fn turned((shape, values): Values) -> Values {
    let [rest @ .., from, to] = &shape[..] else { return (shape, values) };
    // Without elements, sides may have any length.
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
