//! The box head: class and box of each RoI, their losses, and the detections that follow.

use configs::BoxLoss;
use graph::{GraphError, TensorId};
use kernels::ops::detections::{self, DetectionsInputs};
use kernels::ops::encode_boxes::{EncodeBoxes, EncodeBoxesInputs};
use kernels::ops::giou_loss::{GiouLoss, GiouLossInputs};
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::smooth_l1_loss::{SmoothL1Loss, SmoothL1LossInputs};
use kernels::ops::softmax_cross_entropy::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use kernels::ops::weighted_cross_entropy::{WeightedCrossEntropy, WeightedCrossEntropyInputs};

use super::Detections;
use super::conv::conv;
use super::pool::pool;
use crate::model::inputs::ImageInputs;
use crate::model::net::{Loss, Net, Truth};
use crate::model::params::Param;
use crate::model::rois::{LabelledRois, Rois, SampledRois};

const PREDICTOR: &str = "roi_heads.box_predictor";

/// Two linear predictors behind linear layers, and convolutions before these if there are any.
#[derive(Debug)]
pub(super) struct BoxHead {
    config: configs::BoxHead,
    detections: configs::Detections,
    /// Weights of the box deltas.
    weights: [f32; 4],
    plus_one: bool,
}

/// The head's predictions per RoI.
#[derive(Debug, Clone, Copy)]
struct Predictions {
    /// [M, K+1].
    logits: TensorId,
    /// [M, 4(K+1)].
    deltas: TensorId,
}

impl BoxHead {
    pub(super) fn of(model: &configs::Model) -> Self {
        Self {
            config: model.box_head.clone(),
            detections: model.detections.clone(),
            weights: model.roi.box_weights,
            plus_one: model.boxes.legacy_plus_one,
        }
    }

    /// Adds the head to a training step: class and box losses on all sampled RoIs.
    pub(super) fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let ipg = net.spec.config.train.images_per_group;
        let LabelledRois { rois, labels, matched } = sampled.all;
        let Rois { boxes, image_idx, .. } = rois;
        let num_images = truth.images.num_images;
        let Predictions { logits, deltas } = self.predict(net, maps, rois)?;
        net.judged.classes = Some([logits, labels]);
        net.part("box_head.losses");
        let encode = EncodeBoxes { weights: self.weights, plus_one: self.plus_one };
        let gt_boxes = truth.gt_boxes;
        let inputs = EncodeBoxesInputs { boxes, image_idx, matched, gt_boxes, labels };
        let [targets, matched_boxes] = net.program.apply(encode, inputs)?;
        let inputs = SoftmaxCrossEntropyInputs { logits, labels, image_idx, num_images };
        let classifier = self.classifier_loss(net, inputs)?;
        let select = SelectColumns { width: 4, modulo: false };
        let deltas = net.program.apply1(select, [deltas, labels])?;
        let box_reg = match self.config.loss {
            BoxLoss::SmoothL1 => {
                let op = SmoothL1Loss { beta: self.config.beta, ipg, rows_per_image: None };
                let (pred, target) = (deltas, targets);
                let inputs = SmoothL1LossInputs { pred, target, labels, image_idx, num_images };
                net.program.apply1(op, inputs)?
            }
            BoxLoss::Giou => {
                let op = GiouLoss { weights: self.weights, ipg };
                let inputs = GiouLossInputs {
                    deltas,
                    rois: boxes,
                    matched_boxes,
                    labels,
                    image_idx,
                    num_images,
                };
                net.program.apply1(op, inputs)?
            }
        };
        Ok(vec![("loss_classifier", classifier), ("loss_box_reg", box_reg)])
    }

    /// The cross-entropy of the classes; weighted, if classes have weights or labels are smoothed.
    fn classifier_loss(
        &self,
        net: &mut Net<'_>,
        inputs: SoftmaxCrossEntropyInputs<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let ipg = net.spec.config.train.images_per_group;
        let label_smoothing = self.config.label_smoothing;
        if net.class_weights.is_empty() && label_smoothing == 0.0 {
            return net.program.apply1(SoftmaxCrossEntropy { ipg }, inputs);
        }
        let class_weights = match net.class_weights.is_empty() {
            true => vec![1.0; net.spec.num_classes + 1].into(),
            false => net.class_weights.clone(),
        };
        let SoftmaxCrossEntropyInputs { logits, labels, image_idx, num_images } = inputs;
        let inputs = WeightedCrossEntropyInputs { logits, labels, image_idx, num_images };
        let op = WeightedCrossEntropy { ipg, class_weights, label_smoothing };
        net.program.apply1(op, inputs)
    }

    /// Adds the head to the detection pass: proposals in, kept detections out.
    pub(super) fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        proposals: Rois,
        images: ImageInputs,
    ) -> Result<Detections, GraphError> {
        let Predictions { logits, deltas } = self.predict(net, maps, proposals)?;
        net.part("detections");
        let op = detections::Detections {
            score_threshold: self.detections.score_threshold,
            nms_threshold: self.detections.nms_threshold,
            per_image: self.detections.per_image,
            weights: self.weights,
            min_size: self.detections.min_size,
            plus_one: self.plus_one,
        };
        let inputs = DetectionsInputs {
            class_logits: logits,
            box_deltas: deltas,
            rois: proposals.boxes,
            image_idx: proposals.image_idx,
            num_rois: proposals.count,
            network_sizes: images.network_sizes,
        };
        let [boxes, scores, labels, image_idx, counts, count] = net.program.apply(op, inputs)?;
        net.program.keep("det_boxes", boxes);
        net.program.keep("det_scores", scores);
        net.program.keep("det_labels", labels);
        net.program.keep("det_image_idx", image_idx);
        net.program.keep("det_counts", counts);
        net.program.keep("num_detections", count);
        Ok(Detections { rois: Rois { boxes, image_idx, count }, labels })
    }

    fn predict(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        rois: Rois,
    ) -> Result<Predictions, GraphError> {
        let classes = net.spec.num_classes + 1;
        net.part("box_head.pool");
        let mut x = pool(net, maps, rois, self.config.pooled)?;
        net.observe("box_features", x);
        let convs = self.config.channels.len();
        net.part("box_head.convs");
        for (i, &channels) in self.config.channels.iter().enumerate() {
            let name = format!("roi_heads.box_head.{i}");
            x = conv(net, x, &name, channels, self.config.norm, rois.count)?;
        }
        net.part("box_head.fc");
        for (i, &width) in self.config.hidden.iter().enumerate() {
            // Behind convolutions torchvision counts modules: theirs, the flatten, then each layer
            // with its ReLU.
            let name = match convs {
                0 => format!("roi_heads.box_head.fc{}", i + 6),
                _ => format!("roi_heads.box_head.{}", convs + 1 + 2 * i),
            };
            x = net.linear(x, &name, width, true, rois.count)?;
        }
        net.part("box_head.predictor");
        let name = format!("{PREDICTOR}.cls_score");
        let logits = net.linear(x, &name, classes, false, rois.count)?;
        let name = format!("{PREDICTOR}.bbox_pred");
        let deltas = net.linear(x, &name, 4 * classes, false, rois.count)?;
        net.observe("class_logits", logits);
        net.observe("box_regression", deltas);
        Ok(Predictions { logits, deltas })
    }
}

/// Foreground classes of a model, from the shape of its classifier.
pub fn classes_of(params: &[Param]) -> usize {
    let name = format!("{PREDICTOR}.cls_score.bias");
    let classifier = params.iter().find(|p| p.name == name);
    classifier.map_or(0, |p| p.shape[0].saturating_sub(1))
}
