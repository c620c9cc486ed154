//! The mask head: predicts a mask per RoI and class, and adds the loss on the positives and the
//! mask probabilities for the class of each detection.

use crate::config::{Config, NormKind, Tensor};
use choices::{MaskTargetRule, PasteRule};
use configs::{Check, table};
use graph::{GraphError, TensorId};
use kernels::cpu::HostTensor;
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::mask_bce_loss::{MaskBceLoss, MaskBceLossInputs};
use kernels::ops::mask_probabilities::MaskProbabilities;
use kernels::ops::mask_targets::{MaskTargets, MaskTargetsInputs};

use kernels::paste::paste_mask;
use score::{IouType, Rle};

use super::conv::conv;
use super::pool::pool;
use super::{Detections, Found, HeadEntry, Place, RoiHead};
use crate::model::backbones::on_rois;
use crate::model::detectors::rcnn::rois::{LabelledRois, Rois, SampledRois};
use crate::model::net::{ConvShape, Loss, Net, Truth};
use crate::model::params::Init;

table! {
    /// `[model.mask_head]`: the head that predicts masks of side `2 * pooled` for an RoI.
    pub struct Keys {
        /// Side of the pooled features, in bins; masks have twice this side. Default 14.
        #[key(range = 1..=64, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 14,
        /// Channels of the 3x3 convolutions. Default `[256, 256, 256, 256]`.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = vec![256; 4],
        /// Norm after each 3x3 convolution, instead of a bias: `"frozen_batch_norm"`,
        /// `"frozen_statistics"` or `"group_norm"`, with `norm_eps` and `norm_groups` of
        /// `[model.backbone]`. Default: none.
        #[key(resume = Step, mlperf = Model)]
        pub norm: Option<NormKind> = None,
        /// Channels of the 2x2 stride-2 deconvolution. Default 256.
        #[key(range = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub deconv_channels: usize = 256,
        /// How targets are computed: `"roi_align_bitmap"` (default, torchvision) applies RoIAlign
        /// to the full-size bitmap; `"coco_polygon"` (MLPerf) applies COCO's rasterizer to the
        /// cropped polygons.
        #[key(resume = Step, mlperf = Model)]
        pub target_rule: MaskTargetRule = MaskTargetRule::RoiAlignBitmap,
        /// `coco_polygon`: RoIs are treated as at least this many pixels wide and high. Default 1
        /// (MLPerf); 0.1 in detectron2.
        #[key(range = 0.0..=65536.0, unit = "pixels", resume = Step, mlperf = Model)]
        pub target_min_side: f32 = 1.0,
    }
}

pub(super) const ENTRY: HeadEntry = HeadEntry {
    make: |model| Some(Box::new(MaskHead::of(model)?)),
    check,
    loss: "mask",
    tensors,
    columns: &[],
    keys: &["model.mask_head.", "model.detections.mask_threshold", "model.detections.paste_rule"],
};

fn check(config: &Config, check: &mut Check) {
    let mask = &config.model.mask_head;
    check.at_least_one("model.mask_head.pooled", mask.pooled);
    check.counts("model.mask_head.channels", &mask.channels);
    check.at_least_one("model.mask_head.deconv_channels", mask.deconv_channels);
    check.positive("model.mask_head.target_min_side", mask.target_min_side);
}

fn tensors(config: &Config) -> Vec<Tensor> {
    let (model, mask) = (&config.model, &config.model.mask_head);
    let mut tensors = Vec::new();
    if !model.kind.has_masks() {
        return tensors;
    }
    let (fpn, classes) = (model.fpn.channels, model.num_classes.max(1));
    let tensor = |key, words, factors| Tensor { key, words, factors };
    let side = 2 * mask.pooled;
    let rois = model.roi.batch_size_per_image.max(model.detections.per_image);
    let words = "images x RoIs x channels x mask side x mask side";
    let widths = mask.channels.iter().map(|&c| ("model.mask_head.channels", c));
    let widths = widths.chain([
        ("model.mask_head.deconv_channels", mask.deconv_channels),
        ("model.mask_head.pooled", classes),
    ]);
    for (key, channels) in widths {
        let factors = vec![config.most_images(), rois, channels, side, side];
        tensors.push(tensor(key, words, factors));
        let words = "9 x channels x channels";
        tensors.push(tensor(key, words, vec![9, channels, channels.max(fpn)]));
    }
    tensors
}

const PREDICTOR: &str = "roi_heads.mask_predictor";

/// The predictor's 1x1 convolution: its name, geometry and initialization.
fn logits_layer(net: &Net<'_>) -> (String, ConvShape, Init) {
    let classes = net.spec.num_classes + 1;
    let init = Init::kaiming_normal_fan_out(classes);
    (format!("{PREDICTOR}.mask_fcn_logits"), ConvShape::new(classes, 1, 1), init)
}

/// A stack of 3x3 convolutions, a transposed convolution, and a 1x1 predictor.
#[derive(Debug)]
pub(super) struct MaskHead {
    config: Keys,
    plus_one: bool,
    paste_rule: PasteRule,
    /// Probability threshold of mask pixels.
    threshold: f32,
    /// True if the backbone's last stage replaces the convolutions; it halves the map.
    is_c4: bool,
}

impl MaskHead {
    /// The mask head, if the model has one.
    pub(super) fn of(model: &crate::config::Model) -> Option<Self> {
        let (config, plus_one) = (model.mask_head.clone(), model.boxes.legacy_plus_one);
        let threshold = model.detections.mask_threshold;
        let paste_rule = model.detections.paste_rule;
        let is_c4 = model.backbone.is_c4();
        model.kind.has_masks().then_some(Self { config, plus_one, paste_rule, threshold, is_c4 })
    }

    /// Side of a mask.
    fn side(&self) -> usize {
        if self.is_c4 { self.config.pooled } else { 2 * self.config.pooled }
    }

    /// The predictor's input, [M, S, S, C]; S is the side of the masks. `masked` is true if the
    /// predictor already applies the ReLU mask to the input's gradient.
    fn features(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        rois: Rois,
        masked: bool,
    ) -> Result<TensorId, GraphError> {
        net.part("mask_head.pool");
        let mut x = pool(net, maps, rois, self.config.pooled)?;
        if self.is_c4 {
            x = on_rois(net, x, "mask_head", rois.count)?;
        } else {
            net.part("mask_head.convs");
            for (i, &channels) in self.config.channels.iter().enumerate() {
                let name = format!("roi_heads.mask_head.{i}");
                x = conv(net, x, &name, channels, self.config.norm, rois.count)?;
            }
        }
        net.part("mask_head.predictor");
        let deconv = format!("{PREDICTOR}.conv5_mask");
        let op = ConvTranspose { pad: 0, relu: true, counted: true, masked };
        net.deconv(x, &deconv, self.config.deconv_channels, op, rois.count)
    }
}

impl RoiHead for MaskHead {
    fn outputs(&self) -> &'static [&'static str] {
        &["mask_probs"]
    }

    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found) {
        let Place { bbox, height, width } = place;
        let side = outputs[0].desc.dim(1);
        let probs = &outputs[0].as_f32()[row * side * side..(row + 1) * side * side];
        let pasted = paste_mask(probs, side, bbox, height, width, self.paste_rule);
        let counts = pasted.runs(self.threshold);
        object.mask = Some(Rle { height: height as u32, width: width as u32, counts });
    }

    fn iou_type(&self) -> Option<IouType> {
        Some(IouType::Segm)
    }

    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let ipg = net.spec.config.train.images_per_group;
        let LabelledRois { rois, labels, matched } = sampled.positives;
        let (images, objects) = (truth.images, truth.objects);
        let x = self.features(net, maps, rois, true)?;
        let (name, shape, init) = logits_layer(net);
        let mask_logits = net.class_masks(x, &name, shape, init, [labels, rois.count])?;
        net.observe("mask_logits", mask_logits);
        net.part("mask_head.losses");
        let targets = MaskTargets {
            side: self.side(),
            rule: self.config.target_rule,
            plus_one: self.plus_one,
            min_side: self.config.target_min_side,
        };
        let Rois { boxes, image_idx, count } = rois;
        let inputs = MaskTargetsInputs {
            mask_rois: boxes,
            image_idx,
            matched,
            count,
            segm_index: objects.segm_index,
            segm_parts: objects.segm_parts,
            coords: objects.coords,
            runs: objects.runs,
            views: images.views,
        };
        let targets = net.program.apply1(targets, inputs)?;
        net.observe("mask_targets", targets);
        net.note("masks", &[mask_logits, labels, targets]);
        let num_images = images.num_images;
        let inputs =
            MaskBceLossInputs { mask_logits, labels, targets, image_idx, count, num_images };
        let value = net.program.apply1(MaskBceLoss { ipg }, inputs)?;
        let weight = net.spec.config.loss_weights.mask;
        Ok(vec![Loss { name: "loss_mask", value, weight }])
    }

    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError> {
        let Detections { rois, labels } = detections;
        let x = self.features(net, maps, rois, false)?;
        let (name, shape, init) = logits_layer(net);
        let logits = net.class_masks(x, &name, shape, init, [labels, rois.count])?;
        net.observe("mask_logits", logits);
        let probs = net.program.apply1(MaskProbabilities, [logits, labels, rois.count])?;
        net.program.keep("mask_probs", probs);
        Ok(())
    }
}
