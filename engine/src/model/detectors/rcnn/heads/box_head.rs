//! The box head: predicts class and box of each RoI, and adds their losses and the detections. A
//! cascade has several box heads; each refines the boxes of the previous one.

use crate::config::BoxLoss;
use graph::{GraphError, TensorId};
use kernels::ops::detections::{self, DetectionsInputs};
use kernels::ops::encode_boxes::{EncodeBoxes, EncodeBoxesInputs};
use kernels::ops::giou_loss::{GiouLoss, GiouLossInputs};
use kernels::ops::match_rois::{MatchRois, MatchRoisInputs};
use kernels::ops::mean_logits::MeanLogits;
use kernels::ops::mean_positions::MeanPositions;
use kernels::ops::refine_rois::{RefineRois, RefineRoisInputs};
use kernels::ops::select_columns::SelectColumns;
use kernels::ops::smooth_l1_loss::{SmoothL1Loss, SmoothL1LossInputs};
use kernels::ops::softmax_cross_entropy::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use kernels::ops::weighted_cross_entropy::{WeightedCrossEntropy, WeightedCrossEntropyInputs};

use super::Detections;
use super::conv::conv;
use super::pool::pool_scaled;
use crate::model::backbones::on_rois;
use crate::model::detectors::rcnn::rois::{LabelledRois, Rois, SampledRois};
use crate::model::inputs::ImageInputs;
use crate::model::net::{Loss, Net, Truth};

const PREDICTOR: &str = "roi_heads.box_predictor";
/// The names of the losses of each stage.
const LOSSES: [[&str; 2]; 3] = [
    ["loss_classifier", "loss_box_reg"],
    ["loss_classifier_stage1", "loss_box_reg_stage1"],
    ["loss_classifier_stage2", "loss_box_reg_stage2"],
];

/// Optional convolutions, then fully connected layers, then two linear predictors; a cascade has
/// one such stack per stage.
#[derive(Debug)]
pub(super) struct BoxHead {
    config: crate::config::BoxHead,
    detections: crate::config::Detections,
    stages: Vec<Stage>,
    plus_one: bool,
}

/// A stage of a cascade; without a cascade there is only the first stage.
#[derive(Debug, Clone, Copy)]
struct Stage {
    /// Index of the stage.
    number: usize,
    /// Minimum IoU of a positive RoI; unused in the first stage, whose RoIs are labelled when
    /// sampled.
    fg_iou: f32,
    /// Weights of the box deltas.
    weights: [f32; 4],
}

impl Stage {
    /// The name of a module or tensor in this stage; in the first stage torchvision's name,
    /// `of_first`.
    fn name(self, of_first: &str) -> String {
        match self.number {
            0 => of_first.into(),
            number => format!("{of_first}_stage{number}"),
        }
    }

    fn part(self, net: &mut Net<'_>, what: &str) {
        net.part(&format!("{}.{what}", self.name("box_head")));
    }
}

/// The head's predictions for each RoI.
#[derive(Debug, Clone, Copy)]
struct Predictions {
    /// `[M, K+1]`.
    logits: TensorId,
    /// `[M, 4(K+1)]`, or `[M, 4]` if class-agnostic.
    deltas: TensorId,
}

impl BoxHead {
    pub(super) fn of(model: &crate::config::Model) -> Self {
        let weights = model.roi.box_weights;
        let cascade = &model.cascade;
        let of_each = cascade.box_weights(&cascade.box_weight_factors, weights);
        let further = cascade.fg_iou.iter().zip(of_each);
        let further = further.enumerate();
        let further =
            further.map(|(i, (&fg_iou, weights))| Stage { number: i + 1, fg_iou, weights });
        let first = Stage { number: 0, fg_iou: model.roi.fg_iou, weights };
        Self {
            config: model.box_head.clone(),
            detections: model.detections.clone(),
            stages: [first].into_iter().chain(further).collect(),
            plus_one: model.boxes.legacy_plus_one,
        }
    }

    /// Adds the head's class and box losses to a training step. The first stage uses the sampled
    /// RoIs, later stages of a cascade their refined boxes.
    pub(super) fn losses(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        sampled: &SampledRois,
        truth: &Truth,
    ) -> Result<Vec<Loss>, GraphError> {
        let mut labelled = sampled.all;
        let mut losses = vec![];
        for (i, &stage) in self.stages.iter().enumerate() {
            let found = self.predict(net, maps, labelled.rois, stage)?;
            losses.extend(self.losses_of(net, stage, found, labelled, truth)?);
            if let Some(&next) = self.stages.get(i + 1) {
                let rois = self.refine(net, stage, found, labelled.rois, truth.images)?;
                labelled = self.relabel(net, next, rois, truth)?;
            }
        }
        Ok(losses)
    }

    /// The losses of a stage.
    fn losses_of(
        &self,
        net: &mut Net<'_>,
        stage: Stage,
        found: Predictions,
        labelled: LabelledRois,
        truth: &Truth,
    ) -> Result<[Loss; 2], GraphError> {
        let ipg = net.spec.config.train.images_per_group;
        let LabelledRois { rois, labels, matched } = labelled;
        let Rois { boxes, image_idx, .. } = rois;
        let num_images = truth.images.num_images;
        let Predictions { logits, deltas } = found;
        if stage.number == 0 {
            net.note("classes", &[logits, labels]);
        }
        stage.part(net, "losses");
        let (weights, plus_one) = (stage.weights, self.plus_one);
        let encode = EncodeBoxes { weights, plus_one };
        let gt_boxes = truth.gt_boxes;
        let inputs = EncodeBoxesInputs { boxes, image_idx, matched, gt_boxes, labels };
        let [targets, matched_boxes] = net.program.apply(encode, inputs)?;
        let inputs = SoftmaxCrossEntropyInputs { logits, labels, image_idx, num_images };
        let classifier = self.classifier_loss(net, inputs)?;
        let select = SelectColumns { width: 4, modulo: false };
        let deltas = match self.config.class_agnostic {
            true => deltas,
            false => net.program.apply1(select, [deltas, labels])?,
        };
        let box_reg = match self.config.loss {
            BoxLoss::SmoothL1 => {
                let op = SmoothL1Loss { beta: self.config.beta, ipg, rows_per_image: None };
                let (pred, target) = (deltas, targets);
                let inputs = SmoothL1LossInputs { pred, target, labels, image_idx, num_images };
                net.program.apply1(op, inputs)?
            }
            BoxLoss::Giou => {
                let op = GiouLoss { weights, ipg };
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
        let weights = &net.spec.config.loss_weights;
        let [of_classes, of_boxes] = LOSSES[stage.number];
        Ok([
            Loss { name: of_classes, value: classifier, weight: weights.classifier },
            Loss { name: of_boxes, value: box_reg, weight: weights.box_reg },
        ])
    }

    /// Applies a stage's box deltas to its RoIs; no gradient passes through the refined boxes.
    fn refine(
        &self,
        net: &mut Net<'_>,
        stage: Stage,
        found: Predictions,
        rois: Rois,
        images: ImageInputs,
    ) -> Result<Rois, GraphError> {
        stage.part(net, "refine");
        let inputs = RefineRoisInputs {
            rois: rois.boxes,
            deltas: found.deltas,
            image_idx: rois.image_idx,
            count: rois.count,
            network_sizes: images.network_sizes,
        };
        let op = RefineRois { weights: stage.weights, plus_one: self.plus_one };
        let boxes = net.program.apply1(op, inputs)?;
        Ok(Rois { boxes, ..rois })
    }

    /// Labels RoIs by the IoU threshold of `stage`.
    fn relabel(
        &self,
        net: &mut Net<'_>,
        stage: Stage,
        rois: Rois,
        truth: &Truth,
    ) -> Result<LabelledRois, GraphError> {
        let inputs = MatchRoisInputs {
            rois: rois.boxes,
            image_idx: rois.image_idx,
            count: rois.count,
            gt_boxes: truth.gt_boxes,
            gt_classes: truth.objects.gt_classes,
            gt_counts: truth.objects.gt_counts,
        };
        let op = MatchRois { fg_iou: stage.fg_iou, plus_one: self.plus_one };
        let [labels, matched] = net.program.apply(op, inputs)?;
        net.observe(&stage.name("rois"), rois.boxes);
        net.observe(&stage.name("roi_labels"), labels);
        net.observe(&stage.name("roi_matched"), matched);
        Ok(LabelledRois { rois, labels, matched })
    }

    /// The cross-entropy over classes; uses the weighted op if classes have weights or labels are
    /// smoothed.
    fn classifier_loss(
        &self,
        net: &mut Net<'_>,
        inputs: SoftmaxCrossEntropyInputs<TensorId>,
    ) -> Result<TensorId, GraphError> {
        let ipg = net.spec.config.train.images_per_group;
        let label_smoothing = self.config.label_smoothing;
        if net.class_weights.is_empty() && label_smoothing == 0.0 {
            return net.program.apply1(SoftmaxCrossEntropy { ipg, rows_per_image: None }, inputs);
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

    /// Adds the head to the detection pass: computes detections from proposals. A cascade uses the
    /// boxes of its last stage and the mean of all stages' scores.
    pub(super) fn detect(
        &self,
        net: &mut Net<'_>,
        maps: &[TensorId],
        proposals: Rois,
        images: ImageInputs,
    ) -> Result<Detections, GraphError> {
        let (first, further) = (self.stages[0], &self.stages[1..]);
        let (mut last, mut rois) = (first, proposals);
        let mut found = self.predict(net, maps, rois, first)?;
        let mut logits = vec![found.logits];
        for &stage in further {
            rois = self.refine(net, last, found, rois, images)?;
            net.observe(&stage.name("rois"), rois.boxes);
            found = self.predict(net, maps, rois, stage)?;
            logits.push(found.logits);
            last = stage;
        }
        net.part("detections");
        let class_logits = match logits[..] {
            [logits] => logits,
            _ => net.program.apply1(MeanLogits, logits)?,
        };
        let op = detections::Detections {
            score_threshold: self.detections.score_threshold,
            nms_threshold: self.detections.nms_threshold,
            per_image: self.detections.per_image,
            weights: last.weights,
            min_size: self.detections.min_size,
            plus_one: self.plus_one,
        };
        let inputs = DetectionsInputs {
            class_logits,
            box_deltas: found.deltas,
            rois: rois.boxes,
            image_idx: rois.image_idx,
            num_rois: rois.count,
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
        stage: Stage,
    ) -> Result<Predictions, GraphError> {
        let classes = net.spec.num_classes + 1;
        stage.part(net, "pool");
        // In a cascade, each stage's gradient of the maps is scaled by 1 / number of stages.
        let share = 1.0 / self.stages.len() as f32;
        let mut x = pool_scaled(net, maps, rois, self.config.pooled, share)?;
        net.observe(&stage.name("box_features"), x);
        x = match net.spec.config.model.backbone.is_c4() {
            true => self.mean_of_stage(net, x, rois)?,
            false => self.layers(net, x, rois, stage)?,
        };
        stage.part(net, "predictor");
        let predictor = stage.name(PREDICTOR);
        let name = format!("{predictor}.cls_score");
        let logits = net.linear(x, &name, classes, false, rois.count)?;
        let name = format!("{predictor}.bbox_pred");
        let groups = if self.config.class_agnostic { 1 } else { classes };
        let deltas = net.linear(x, &name, 4 * groups, false, rois.count)?;
        net.observe(&stage.name("class_logits"), logits);
        net.observe(&stage.name("box_regression"), deltas);
        Ok(Predictions { logits, deltas })
    }
}

impl BoxHead {
    /// Convolutions and fully connected layers: `[M, hidden]`.
    fn layers(
        &self,
        net: &mut Net<'_>,
        mut x: TensorId,
        rois: Rois,
        stage: Stage,
    ) -> Result<TensorId, GraphError> {
        let head = stage.name("roi_heads.box_head");
        let convs = self.config.channels.len();
        stage.part(net, "convs");
        for (i, &channels) in self.config.channels.iter().enumerate() {
            let name = format!("{head}.{i}");
            x = conv(net, x, &name, channels, self.config.norm, rois.count)?;
        }
        stage.part(net, "fc");
        for (i, &width) in self.config.hidden.iter().enumerate() {
            // If there are convolutions, torchvision names modules by index: convolutions, flatten,
            // then each layer followed by its ReLU.
            let name = match convs {
                0 => format!("{head}.fc{}", i + 6),
                _ => format!("{head}.{}", convs + 1 + 2 * i),
            };
            x = net.linear(x, &name, width, true, rois.count)?;
        }
        Ok(x)
    }

    /// Applies the backbone's last stage, and averages over the map: `[M, C]`.
    fn mean_of_stage(
        &self,
        net: &mut Net<'_>,
        x: TensorId,
        rois: Rois,
    ) -> Result<TensorId, GraphError> {
        let x = on_rois(net, x, "box_head", rois.count)?;
        net.observe("res5", x);
        net.part("box_head.mean");
        net.program.apply1(MeanPositions, [x, rois.count])
    }
}
