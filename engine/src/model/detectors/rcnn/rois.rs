//! Samples labelled proposals as the RoIs of a training step.

use graph::{GraphError, TensorId};
use kernels::ops::roi_candidates::{RoiCandidates, RoiCandidatesInputs};
use kernels::ops::sample_rois::{SampleRois, SampleRoisInputs};

use super::rpn::Proposals;
use crate::model::net::{Net, Truth};

/// RoIs of a batch, compacted: only the first `count` rows are valid.
#[derive(Debug, Clone, Copy)]
pub struct Rois {
    /// `[M, 4]` in network pixels.
    pub boxes: TensorId,
    /// Image index of each RoI, `[M]`.
    pub image_idx: TensorId,
    /// Number of valid rows, `[1]`.
    pub count: TensorId,
}

/// RoIs with their targets.
#[derive(Debug, Clone, Copy)]
pub struct LabelledRois {
    /// The RoIs.
    pub rois: Rois,
    /// Class of each RoI from 1, `[M]`; 0 is background.
    pub labels: TensorId,
    /// Index of the matched object within the image, for each RoI, `[M]`.
    pub matched: TensorId,
}

/// The sampled RoIs of a training step, and the positives among them.
#[derive(Debug, Clone, Copy)]
pub struct SampledRois {
    /// All sampled RoIs.
    pub all: LabelledRois,
    /// Only the positives.
    pub positives: LabelledRois,
}

/// Labels proposals and ground-truth boxes, and samples RoIs from them.
pub(super) fn sample_rois(
    net: &mut Net<'_>,
    proposals: Proposals,
    truth: &Truth,
) -> Result<SampledRois, GraphError> {
    net.part("roi_sampling");
    let config = &net.spec.config.model;
    let batch = config.roi.batch_size_per_image;
    let fraction = config.roi.positive_fraction;
    let candidates = RoiCandidates {
        fg_iou: config.roi.fg_iou,
        bg_iou: config.roi.bg_iou,
        plus_one: config.boxes.legacy_plus_one,
    };
    let inputs = RoiCandidatesInputs {
        proposals: proposals.boxes,
        proposal_anchor_idx: proposals.anchor_idx,
        counts: proposals.counts,
        gt_boxes: truth.gt_boxes,
        gt_classes: truth.objects.gt_classes,
        gt_counts: truth.objects.gt_counts,
        num_images: truth.images.num_images,
    };
    let [candidates, labels, matched_idx, keys, counts] = net.program.apply(candidates, inputs)?;
    net.observe("roi_candidates", candidates);
    net.observe("roi_candidate_labels", labels);
    net.observe("roi_candidate_matched", matched_idx);
    net.observe("roi_candidate_counts", counts);
    let sampler =
        SampleRois { batch, positive_fraction: fraction, seed: net.spec.config.train.seed };
    let image_keys = truth.objects.image_keys;
    let inputs = SampleRoisInputs { candidates, labels, matched_idx, keys, counts, image_keys };
    let lists: [TensorId; 10] = net.program.apply(sampler, inputs)?;
    let [all @ .., _, _, _, _, _] = lists;
    let [_, _, _, _, _, positives @ ..] = lists;
    let (all, positives) = (labelled(all), labelled(positives));
    for (what, list) in [("roi", all), ("mask_roi", positives)] {
        net.observe(&format!("{what}s"), list.rois.boxes);
        net.observe(&format!("{what}_image_idx"), list.rois.image_idx);
        net.observe(&format!("{what}_labels"), list.labels);
        net.observe(&format!("{what}_matched"), list.matched);
        net.observe(&format!("num_{what}s"), list.rois.count);
    }
    Ok(SampledRois { all, positives })
}

/// Groups five outputs of the sampler, given in its output order.
fn labelled([boxes, image_idx, labels, matched, count]: [TensorId; 5]) -> LabelledRois {
    LabelledRois { rois: Rois { boxes, image_idx, count }, labels, matched }
}
