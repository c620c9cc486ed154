//! The keypoint head: a heatmap per RoI and keypoint, its loss on the positives, and the peaks for
//! each detection. This folder is a complete example of a head, from data to score.

mod keys;
mod truth;

use dali::DaliError;
use dali::loader::{Clear, ImageRows};
use dali::store::{ObjectView, Stores};
use graph::{GraphError, TensorId};
use kernels::Role;
use kernels::cpu::HostTensor;
use kernels::ops::conv_transpose::ConvTranspose;
use kernels::ops::keypoint_maps::KeypointMaps;
use kernels::ops::keypoint_peaks::{KeypointPeaks, KeypointPeaksInputs};
use kernels::ops::keypoint_targets::{KeypointTargets, KeypointTargetsInputs};
use kernels::ops::softmax_cross_entropy::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use score::IouType;

use super::pool::pool;
use super::{Array, Detections, Extent, Found, HeadEntry, Place, RoiHead};
use crate::model::detectors::rcnn::rois::{LabelledRois, Rois, SampledRois};
use crate::model::net::{ConvShape, Loss, Net, Truth};
use crate::model::params::Init;

pub use self::keys::{KeypointScore, Keys};
pub use self::truth::seen_keypoints;

pub(super) const ENTRY: HeadEntry = HeadEntry {
    make: |model| Some(Box::new(KeypointHead::of(model)?)),
    check: keys::check,
    loss: "keypoint",
    tensors: keys::tensors,
    columns: &[],
    keys: &["model.keypoint_head.", "eval.oks_sigmas", "data.min_keypoints"],
};

/// Names of the batch array and of the output tensor.
const KEYPOINTS: &str = "keypoints";
const PEAKS: &str = "keypoint_peaks";

const HEAD: &str = "roi_heads.keypoint_head";
const PREDICTOR: &str = "roi_heads.keypoint_predictor.kps_score_lowres";

/// Offset of a pixel's centre in detectron2.
const HALF: f32 = 0.5;

/// A stack of 3x3 convolutions, a transposed 4x4 convolution, and upsampling by 2.
#[derive(Debug)]
pub(super) struct KeypointHead {
    config: Keys,
    /// Divisor of the loss per image: keypoints per object times the maximum number of sampled
    /// positives. With `None`, the loss is averaged over the labelled keypoints.
    rows_per_image: Option<usize>,
}

impl KeypointHead {
    /// The keypoint head, if the model has one.
    pub(super) fn of(model: &crate::config::Model) -> Option<Self> {
        let config = model.keypoint_head.clone();
        let positives = model.roi.batch_size_per_image as f32 * model.roi.positive_fraction;
        let rows = (config.keypoints as f32 * positives) as usize;
        let rows_per_image = (!config.mean_over_labelled).then_some(rows);
        model.kind.has_keypoints().then_some(Self { config, rows_per_image })
    }

    /// Heatmap logits `[M*K, S*S]`; S is four times the pooled side.
    fn maps(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        rois: Rois,
    ) -> Result<TensorId, GraphError> {
        net.part("keypoint_head.pool");
        let mut x = pool(net, maps, rois, self.config.pooled)?;
        net.part("keypoint_head.convs");
        for (i, &channels) in self.config.channels.iter().enumerate() {
            // torchvision's module list has a ReLU after each convolution, so indices advance by 2.
            let name = format!("{HEAD}.{}", 2 * i);
            let init = Init::kaiming_normal_fan_out(channels * 9);
            let shape = ConvShape::new(channels, 3, 1);
            x = net.conv_bias(x, &name, shape, init, true, Some(rois.count))?;
        }
        net.part("keypoint_head.predictor");
        let op = ConvTranspose { pad: 1, relu: false, counted: true, masked: false };
        let low = net.deconv(x, PREDICTOR, self.config.keypoints, op, rois.count)?;
        net.observe("keypoint_lowres", low);
        let logits = net.program.apply1(KeypointMaps, [low, rois.count])?;
        net.observe("keypoint_logits", logits);
        Ok(logits)
    }

    fn offset(&self) -> f32 {
        if self.config.half_pixel { HALF } else { 0.0 }
    }
}

impl RoiHead for KeypointHead {
    fn arrays(&self) -> Vec<Array> {
        let per_object = [Extent::Fixed(self.config.keypoints), Extent::Fixed(3)];
        let extents = [Extent::Images, Extent::Objects].into_iter().chain(per_object).collect();
        vec![Array { name: KEYPOINTS, role: Role::Box, extents, clear: Clear::Zeros }]
    }

    fn fill(
        &self,
        store: &Stores,
        _image: usize,
        objects: &[ObjectView<'_>],
        rows: &mut ImageRows<'_>,
    ) -> Result<(), DaliError> {
        truth::fill(&self.config, self.offset(), store, objects, rows)
    }

    fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let LabelledRois { rois, matched, .. } = sampled.positives;
        let logits = self.maps(net, maps, rois)?;
        net.part("keypoint_head.losses");
        let Some(keypoints) = net.program.find(KEYPOINTS) else { unreachable!("its array") };
        let Rois { boxes: mask_rois, image_idx, count } = rois;
        let inputs = KeypointTargetsInputs { mask_rois, image_idx, matched, count, keypoints };
        let targets = KeypointTargets { side: 4 * self.config.pooled };
        let [labels, image_idx] = net.program.apply(targets, inputs)?;
        net.observe("keypoint_targets", labels);
        let ipg = net.spec.config.train.images_per_group;
        let op = SoftmaxCrossEntropy { ipg, rows_per_image: self.rows_per_image };
        let num_images = truth.images.num_images;
        let inputs = SoftmaxCrossEntropyInputs { logits, labels, image_idx, num_images };
        let value = net.program.apply1(op, inputs)?;
        let weight = net.spec.config.loss_weights.keypoint;
        Ok(vec![Loss { name: "loss_keypoint", value, weight }])
    }

    fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        detections: Detections,
    ) -> Result<(), GraphError> {
        let Rois { boxes, count, .. } = detections.rois;
        let maps = self.maps(net, maps, detections.rois)?;
        let peaks =
            net.program.apply1(KeypointPeaks, KeypointPeaksInputs { maps, boxes, count })?;
        net.program.keep(PEAKS, peaks);
        Ok(())
    }

    fn outputs(&self) -> &'static [&'static str] {
        &[PEAKS]
    }

    fn decode(&self, outputs: &[HostTensor], row: usize, place: Place, object: &mut Found) {
        let [x1, y1, x2, y2] = place.bbox;
        let (peaks, _) = outputs[0].as_f32().as_chunks::<4>();
        let own = &peaks[row * self.config.keypoints..][..self.config.keypoints];
        let point = |&[across, down, logit, share]: &[f32; 4]| {
            let score = match self.config.score {
                KeypointScore::Logit => logit,
                KeypointScore::Share => share,
            };
            let at = |low: f32, high: f32, share: f32| low + share * (high - low) - self.offset();
            [at(x1, x2, across), at(y1, y2, down), score]
        };
        object.keypoints = Some(own.iter().map(point).collect());
    }

    fn iou_type(&self) -> Option<IouType> {
        Some(IouType::Keypoints)
    }
}
