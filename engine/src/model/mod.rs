//! Builds the model's Programs: backbone, FPN, RPN and RoI heads, in a training step or a detection
//! pass. Nothing is executed here.

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
pub(crate) use logged::{LOGGED_ACTIVATION, LOGGED_COUNT, LOGGED_GRADIENT};
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
    /// Height in pixels.
    pub height: usize,
    /// Width in pixels.
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
    /// A pass before the last; its gradients are accumulated.
    Early,
    /// The last pass, which updates parameters with the accumulated gradients.
    Last,
}

/// The kind of pass that a training program runs, and the division of the step.
#[derive(Debug, Clone)]
pub struct Part {
    /// The kind of pass.
    pub micro: MicroStep,
    /// Ranks, and the passes of each.
    pub division: Division,
}

impl Part {
    /// A step of one pass.
    pub fn whole() -> Self {
        Self { micro: MicroStep::Whole, division: Division::whole() }
    }

    /// The pass of a division that updates parameters.
    pub fn updating(division: &Division) -> Self {
        Self { micro: division.updating(), division: division.clone() }
    }

    /// A pass before the updating one.
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
    /// N, the number of images per run of the program.
    pub images: usize,
    /// Padded size of the images.
    pub padded: ImageSize,
    /// Capacities of the loader's slot.
    pub slot: SlotShape,
    /// The target. On a GPU the program keeps fp32 master weights, and each step writes its losses
    /// to host memory.
    pub target: Target,
    /// The part of the step that the program runs.
    pub part: Part,
    /// True if intermediate tensors are outputs, readable by name.
    pub observe: bool,
}

impl<'a> ModelSpec<'a> {
    /// Detection on one image of the smallest size. The parameters of the program do not depend on
    /// the size.
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

    /// True if the target is a GPU with fp16, so that fp16-only ops can be used.
    pub(super) fn is_in_fp16(&self) -> bool {
        self.target.gpu().is_some_and(|gpu| gpu.precision == Precision::Fp16)
    }

    /// True if steps use a loss scale. GPUs with f32 gradients do not need one; neither does the
    /// CPU, but it uses one so that its steps equal those of a GPU with fp16.
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
    /// Names of a training step's losses, in their order in logs and reports.
    pub losses: Vec<&'static str>,
    /// Weight of each loss in the sum that training minimizes.
    pub loss_weights: Vec<f32>,
    /// Layout of the results in host memory, if the step is for a device.
    pub ring: Option<RingLayout>,
}
