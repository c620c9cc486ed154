//! The keys of the keypoint head, and the constraints on them.

use configs::{Check, table};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{Config, Tensor};

table! {
    /// `[model.keypoint_head]`: the head that predicts a heatmap of side `4 * pooled` for each
    /// keypoint of an RoI.
    pub struct Keys {
        /// Keypoints per object; must equal the number in the data. Default 17, COCO persons.
        #[key(range = 1..=1024, unit = "keypoints", resume = Step, mlperf = Model)]
        pub keypoints: usize = 17,
        /// Side of the pooled features, in bins; heatmaps have four times this side. Default 14.
        #[key(range = 1..=16, unit = "bins", resume = Step, mlperf = Model)]
        pub pooled: usize = 14,
        /// Channels of the 3x3 convolutions. Default eight times 512.
        #[key(each = 1..=65_536, unit = "channels", resume = Step, mlperf = Model)]
        pub channels: Vec<usize> = vec![512; 8],
        /// Pairs of left and right keypoints, by name, that are swapped when an image is flipped;
        /// `[]` swaps none. Default: none, pairs are detected by left and right in names; if no
        /// pair is found, images are not flipped.
        #[key(resume = Step, mlperf = Model)]
        pub flip_pairs: Option<Vec<[String; 2]>> = None,
        /// Annotated keypoints are pixel indices, so 0.5 is added (detectron2). Default false: they
        /// are coordinates (torchvision).
        #[key(resume = Step, mlperf = Model)]
        pub half_pixel: bool = false,
        /// The loss is averaged over the labelled keypoints inside their RoI. Default true; false
        /// (an option of detectron2) divides the sum by the maximum number of keypoints in the
        /// sampled RoIs.
        #[key(resume = Step, mlperf = Model)]
        pub mean_over_labelled: bool = true,
        /// Score of a detected keypoint: `"logit"` (default, torchvision), the maximum of the
        /// heatmap's logits, or `"share"` (detectron2), the softmax over the heatmap at the
        /// maximum.
        #[key(resume = Step, mlperf = Model)]
        pub score: KeypointScore = KeypointScore::Logit,
    }
}

/// The score of a detected keypoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeypointScore {
    /// The logit at the heatmap's peak.
    Logit,
    /// The softmax over the heatmap, at the peak.
    Share,
}

pub(super) fn check(config: &Config, check: &mut Check) {
    check.counts("model.keypoint_head.channels", &config.model.keypoint_head.channels);
    let (keypoints, sigmas) = (config.model.keypoint_head.keypoints, &config.eval.oks_sigmas);
    let is_whole = sigmas.is_empty() || sigmas.len() == keypoints;
    check.require(is_whole && !sigmas.contains(&0.0), "eval.oks_sigmas", || {
        format!(
            "has {} values; give one above 0 for each of {keypoints} keypoints \
             (model.keypoint_head.keypoints), or none",
            sigmas.len()
        )
    });
}

/// The largest tensors of the keypoint head: features, heatmaps and weights.
pub(super) fn tensors(config: &Config) -> Vec<Tensor> {
    let (model, head) = (&config.model, &config.model.keypoint_head);
    let images = config.most_images();
    if !model.kind.has_keypoints() {
        return vec![];
    }
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
