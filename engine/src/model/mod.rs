//! The detector, described as Programs: backbone, FPN, RPN, RoI heads, the training step and the
//! detection pass. Nothing here runs anything.

mod backbone;
mod capacities;
mod detect;
mod fpn;
mod inputs;
mod net;
mod optimizer;
mod params;
mod preprocess;
mod ring;
mod roi_heads;
mod rois;
mod rpn;
mod schedule;
mod schema;
mod state_names;
mod train_step;

pub use capacities::SlotShape;
pub use detect::detection_program;
pub use inputs::{Inject, detection_layout, training_layout};
pub use params::{Init, Layout, Param, ParamKind};
pub use ring::RingLayout;
pub use roi_heads::classes_of;
pub(crate) use state_names::{MASTER, RING, RING_STEP};
pub use train_step::training_program;

use configs::Config;
use dali::order::PaddedShape;
use device::Target;
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

/// Part of a step that a training program makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MicroStep {
    /// The whole step.
    #[default]
    Whole,
    /// Images whose gradients are added up for later.
    Early,
    /// The last images: the update takes all gradients.
    Last,
}

impl MicroStep {
    /// The part that updates, of a step with so many micro-steps; it holds all that others do.
    pub fn updating(micro_steps: usize) -> Self {
        if micro_steps == 1 { MicroStep::Whole } else { MicroStep::Last }
    }
}

/// What a program is built for.
#[derive(Debug, Clone)]
pub struct ModelSpec<'a> {
    /// The resolved config.
    pub config: &'a Config,
    /// Foreground classes, K.
    pub num_classes: usize,
    /// Images a run, N; of one micro-step.
    pub images: usize,
    /// Padded size of the images.
    pub padded: ImageSize,
    /// Capacities of the loader's slot.
    pub slot: SlotShape,
    /// What it will run on: fp16 weights have fp32 masters, and the step publishes its losses.
    pub target: Target,
    /// Which part of a step with several micro-steps it is.
    pub micro: MicroStep,
    /// What tests put in place of computed tensors.
    pub inject: Inject,
}

/// A program with the parameters that it declares as state.
#[derive(Debug)]
pub struct BuiltProgram {
    /// The step.
    pub program: Program,
    /// Its parameters and frozen statistics, in torchvision's order of modules.
    pub params: Vec<Param>,
    /// Names of a training step's losses, in the order of logs and reports.
    pub losses: Vec<&'static str>,
    /// What a training step publishes, if it is for a device.
    pub ring: Option<RingLayout>,
}
