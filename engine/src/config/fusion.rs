//! `[fusion]`: which forms of a GPU's step do the work of several ops in one.

use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

table! {
    /// `[fusion]`: work that a GPU's step does along with other work, in place of a separate pass
    /// over memory. A fusion changes results only by rounding.
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
    /// GemmSettings that make gradients add the other gradients of their tensor and mask the sum.
    GradMaskAdd,
    /// GemmSettings that mask gradients read the signs of activations, a bit for each value, not the
    /// activations.
    ReluSigns,
    /// One launch scales the weights of all convolutions with a frozen scale, for their gradients.
    ScaledWeights,
    /// A convolution adds the upsampled coarser map to its output, and the gradient of a map that
    /// was upsampled adds the other gradients of the map.
    UpsampleAdd,
    /// One kernel adds up the gradients of a pyramid's map: RoIs of both heads, and anchors.
    LevelGradients,
    /// The gradient of a bias is summed where the gradient of its weights reads the same tensor.
    BiasGradients,
    /// One kernel makes the RPN's dense head on all levels; the hidden maps stay on the chip.
    RpnHead,
    /// Images have a fourth channel of zeros where a frozen stem reads them, in whole chunks.
    FourChannelStem,
    /// The last convolution of a bottleneck makes the projection of its shortcut too.
    Projections,
}

impl Fused {
    /// All of them.
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
    /// True if the step has this fusion.
    pub fn has(&self, fused: Fused) -> bool {
        !self.off.contains(&fused)
    }
}
