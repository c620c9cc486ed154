//! Accuracies of a training step: one node counts predictions, the host computes ratios of the
//! counts.

use graph::{GraphError, TensorId};
use kernels::ops::accuracies::{Accuracies, AccuraciesInputs, Count};

use super::rpn::Proposals;
use crate::model::net::{Net, Truth};

/// Adds the node that counts predictions, if the config requests accuracies; call it after adding
/// the losses.
pub(super) fn count(
    net: &mut Net<'_>,
    proposals: Proposals,
    truth: &Truth,
) -> Result<Option<TensorId>, GraphError> {
    if !net.spec.config.train.accuracies {
        return Ok(None);
    }
    let (Some(anchors), Some(classes)) = (net.noted("anchors"), net.noted("classes")) else {
        panic!("the losses come first")
    };
    let masks = net.noted("masks");
    net.part("accuracies");
    let (anchors, classes): ([TensorId; 2], [TensorId; 2]) = (anchors, classes);
    let inputs = AccuraciesInputs {
        class_logits: classes[0],
        labels: classes[1],
        anchor_logits: anchors[0],
        anchor_labels: anchors[1],
        proposals: proposals.boxes,
        counts: proposals.counts,
        gt_boxes: truth.gt_boxes,
        gt_counts: truth.objects.gt_counts,
        num_images: truth.images.num_images,
        mask_logits: masks.map(|[logits, _, _]| logits),
        mask_labels: masks.map(|[_, labels, _]| labels),
        mask_targets: masks.map(|[_, _, targets]| targets),
    };
    let plus_one = net.spec.config.model.boxes.legacy_plus_one;
    let op = Accuracies { plus_one, masks: masks.is_some() };
    let counts = net.program.apply1(op, inputs)?;
    Ok(Some(counts))
}

/// Accuracies by name, from the counts of a step; ratios with denominator 0 are omitted. Names and
/// definitions follow detectron2, where it has such an accuracy.
pub(super) fn shares(counts: &[f64]) -> Vec<(&'static str, f32)> {
    if counts.is_empty() {
        return vec![];
    }
    use Count::*;
    let of = |count: Count| counts[count as usize];
    let (rois, pixels) = (of(Foreground) + of(Background), of(Inside) + of(Outside));
    let right = of(ForegroundRight) + of(BackgroundRight);
    let shares = [
        ("fast_rcnn/cls_accuracy", right, rois),
        ("fast_rcnn/fg_cls_accuracy", of(ForegroundRight), of(Foreground)),
        ("fast_rcnn/false_negative", of(Missed), of(Foreground)),
        ("roi_head/num_fg_samples", of(Foreground), of(Images)),
        ("roi_head/num_bg_samples", of(Background), of(Images)),
        ("rpn/num_pos_anchors", of(Positives), of(Images)),
        ("rpn/num_neg_anchors", of(Negatives), of(Images)),
        ("rpn/recall", of(PositivesFound), of(Positives)),
        ("rpn/proposal_recall", of(ObjectsCovered), of(Objects)),
        ("mask_rcnn/accuracy", pixels - of(InsideWrong) - of(OutsideWrong), pixels),
        ("mask_rcnn/false_positive", of(OutsideWrong), of(Outside)),
        ("mask_rcnn/false_negative", of(InsideWrong), of(Inside)),
    ];
    let defined = shares.into_iter().filter(|(.., all)| *all > 0.0);
    defined.map(|(name, part, all)| (name, (part / all) as f32)).collect()
}
