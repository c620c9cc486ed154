//! `[fusion]`: fusions of several ops in the training step on a GPU.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

table! {
    /// `[fusion]`: fusions in the training step on a GPU, each of which saves a separate pass over
    /// memory. They change results only by rounding.
    pub struct Fusion {
        /// Fusions to disable, for comparison. Default: none. On the CPU there are no fusions.
        #[key(resume = Step, mlperf = Hyperparameter)]
        pub off: Vec<Fused> = Vec::new(),
    }
}

/// One fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fused {
    /// GEMMs that compute a tensor's gradient add the gradients from its other consumers and apply
    /// the ReLU mask to the sum.
    GradMaskAdd,
    /// GEMMs that apply the ReLU mask to gradients read one sign bit per activation instead of the
    /// activation.
    ReluSigns,
    /// One launch scales the weights of all convolutions that have a frozen scale, for the
    /// computation of gradients.
    ScaledWeights,
    /// The FPN's lateral convolution adds the upsampled coarser map to its output. In the backward
    /// pass, the kernel for the upsampling's gradient adds the map's gradients from other
    /// consumers.
    UpsampleAdd,
    /// One kernel sums the gradients of a pyramid level from the RoIs of all heads and from the
    /// sampled anchors of the RPN.
    LevelGradients,
    /// The kernel that computes the mask predictor's gradients also computes the bias gradient of
    /// the layer before it.
    BiasGradients,
    /// One kernel computes the RPN head on all levels; the hidden maps are never written to memory.
    RpnHead,
    /// Images get a fourth channel of zeros, so that a frozen stem reads aligned chunks.
    FourChannelStem,
    /// The last convolution of a bottleneck also computes the projection of the shortcut.
    Projections,
}

impl Fused {
    /// All fusions.
    pub fn all() -> [Self; 9] {
        [
            Self::GradMaskAdd,
            Self::ReluSigns,
            Self::ScaledWeights,
            Self::UpsampleAdd,
            Self::LevelGradients,
            Self::BiasGradients,
            Self::RpnHead,
            Self::FourChannelStem,
            Self::Projections,
        ]
    }
}

impl Fusion {
    /// True if this fusion is enabled.
    pub fn has(&self, fused: Fused) -> bool {
        !self.off.contains(&fused)
    }
}
