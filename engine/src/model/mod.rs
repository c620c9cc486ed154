//! The detector, described as Programs: backbone, FPN, RPN, RoI heads, the training step and the
//! detection pass. Nothing is executed here.

pub(crate) mod backbones;
mod capacities;
mod detect;
pub mod detectors;
mod division;
mod found;
pub(crate) mod fpn;
mod fusion;
mod group_sum;
mod inputs;
pub(crate) mod keys;
mod level_gradients;
mod logged;
mod loss_weights;
mod net;
mod norms;
mod optimizer;
mod params;
mod patterns;
mod preprocess;
mod ring;
mod schedule;
mod schema;
mod state_names;
mod sums;
mod train_step;

pub use backbones::backbone;
pub use capacities::SlotShape;
pub use detect::detection_program;
pub use detectors::classes_of;
pub use detectors::rcnn::heads as roi_heads;
pub(crate) use detectors::{
    DETECTIONS, Detector, class_rows, depends_on_classes, detector, is_of_detector, part_of,
};
pub use division::Division;
pub(crate) use inputs::loss_layout;
pub use inputs::{detection_layout, step_layout, training_layout};
pub(crate) use logged::{LOGGED_ACTIVATION, LOGGED_GRADIENT};
pub(crate) use loss_weights::class_weights;
pub(crate) use optimizer::PARAMETER_STATS;
pub use optimizer::group_of;
pub use params::{Init, Layout, Param, ParamKind};
pub(crate) use patterns::idle_groups;
pub use ring::RingLayout;
pub use state_names::is_transient;
pub(crate) use state_names::{AVERAGE, MASTER, RING, RING_STEP};
pub(crate) use sums::{STEP_LOSS, STOP_REQUESTS};
pub(crate) use train_step::ACCURACIES;
pub use train_step::{further_arrays, loss_program, training_program, weighted_training_program};

use crate::config::Config;
use dali::order::PaddedShape;
use device::{Precision, Target};
use graph::Program;

/// Height and width in pixels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ImageSize {
    /// Pixels from top to bottom.
    pub height: usize,
    /// Pixels from left to right.
    pub width: usize,
}

impl From<PaddedShape> for ImageSize {
    fn from(PaddedShape { height, width }: PaddedShape) -> Self {
        Self { height, width }
    }
}

/// The kind of a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MicroStep {
    /// The whole step.
    #[default]
    Whole,
    /// A pass whose gradients accumulate for later.
    Early,
    /// The last pass: the update uses the accumulated gradients.
    Last,
}

/// The part of a step that a training program runs, and how the step is divided.
#[derive(Debug, Clone)]
pub struct Part {
    /// The kind of pass.
    pub micro: MicroStep,
    /// The ranks, and their passes.
    pub division: Division,
}

impl Part {
    /// A step of one pass.
    pub fn whole() -> Self {
        Self { micro: MicroStep::Whole, division: Division::whole() }
    }

    /// The pass of a division that updates.
    pub fn updating(division: &Division) -> Self {
        Self { micro: division.updating(), division: division.clone() }
    }

    /// The passes before it.
    pub fn early(division: &Division) -> Self {
        Self { micro: MicroStep::Early, division: division.clone() }
    }
}

/// The specification of a program.
#[derive(Debug, Clone)]
pub struct ModelSpec<'a> {
    /// The resolved config.
    pub config: &'a Config,
    /// Foreground classes.
    pub num_classes: usize,
    /// Images per run, N, i.e. per pass.
    pub images: usize,
    /// Padded size of the images.
    pub padded: ImageSize,
    /// Capacities of the loader's slot.
    pub slot: SlotShape,
    /// The target: on a GPU weights have fp32 masters, and the step publishes its losses.
    pub target: Target,
    /// The part of a step, if it has several passes or ranks.
    pub part: Part,
    /// Intermediate tensors stay readable, by name.
    pub observe: bool,
}

impl<'a> ModelSpec<'a> {
    /// Detection on one image of the smallest size, for the parameters, which do not depend on it.
    pub fn smallest(config: &'a Config, num_classes: usize, target: Target) -> Self {
        let side = config.input.size_divisor;
        Self {
            config,
            num_classes,
            images: 1,
            padded: ImageSize { height: side, width: side },
            slot: SlotShape { pixels: 3 * side * side, objects: 1, parts: 1, coords: 1, runs: 1 },
            target,
            part: Part::whole(),
            observe: false,
        }
    }

    /// True if the target is a GPU in fp16, which fp16-only ops require.
    pub(super) fn is_in_fp16(&self) -> bool {
        self.target.gpu().is_some_and(|gpu| gpu.precision == Precision::Fp16)
    }

    /// True if a loss scale is useful: not with f32 gradients on a GPU. The CPU, which does not
    /// need it either, takes the same steps as a GPU in fp16.
    pub(super) fn scales_losses(&self) -> bool {
        self.target.is_cpu() || self.is_in_fp16()
    }
}

/// A program, and the parameters that it declares as state.
#[derive(Debug)]
pub struct BuiltProgram {
    /// The step.
    pub program: Program,
    /// Its parameters and frozen statistics, in torchvision's module order.
    pub params: Vec<Param>,
    /// Names of a training step's losses, in the order of logs and reports.
    pub losses: Vec<&'static str>,
    /// The weight of each in the sum that training minimizes.
    pub loss_weights: Vec<f32>,
    /// Layout of the published results, if the step is for a device.
    pub ring: Option<RingLayout>,
}
