//! The programs of a training run: for each padded shape one for the updating pass and, if a step
//! has several passes, one for the earlier passes.

use crate::config::Config;
use device::Target;

use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::model::{
    BuiltProgram, Division, ModelSpec, Part, class_weights, weighted_training_program,
};

/// The programs of one padded shape, as indices into [`TrainingPrograms::built`].
#[derive(Debug, Clone, Copy)]
pub(super) struct StepPrograms {
    last: usize,
    early: Option<usize>,
}

impl StepPrograms {
    /// The program of a step's last pass or, if not `is_last`, of its earlier passes.
    pub(super) fn of(&self, is_last: bool) -> usize {
        match (is_last, self.early) {
            (true, _) => self.last,
            (false, Some(early)) => early,
            (false, None) => panic!("a step of one pass has no early ones"),
        }
    }
}

/// All programs of a run.
#[derive(Debug)]
pub(super) struct TrainingPrograms {
    /// The programs; the updating ones come first, by padded shape.
    pub(super) built: Vec<BuiltProgram>,
    /// The programs of each padded shape.
    pub(super) shapes: Vec<StepPrograms>,
}

impl TrainingPrograms {
    /// Builds the programs of one rank's passes.
    pub(super) fn build(
        config: &Config,
        data: &DataSet,
        target: &Target,
        division: &Division,
    ) -> Result<Self, EngineError> {
        let num_classes = data.classes_of_model(config)?;
        let class_weights = class_weights(&config.loss_weights, &data.categories(), num_classes)?;
        let build = |part: Part| {
            let class_weights = &class_weights;
            let programs = data.shapes.iter().map(move |shape| {
                let spec = ModelSpec {
                    config,
                    num_classes,
                    images: division.images,
                    padded: (*shape).into(),
                    slot: data.slot_shape(),
                    target: target.clone(),
                    part: part.clone(),
                    observe: false,
                };
                let built = weighted_training_program(&spec, class_weights)?;
                let (height, width) = (spec.padded.height, spec.padded.width);
                let nodes = built.program.nodes().len();
                tracing::debug!(height, width, images = spec.images, nodes, "built a program");
                Ok(built)
            });
            programs.collect::<Result<Vec<_>, EngineError>>()
        };
        let mut built = build(Part::updating(division))?;
        let count = built.len();
        let has_early = division.passes > 1;
        if has_early {
            built.extend(build(Part::early(division))?);
        }
        let of_shape = |last| StepPrograms { last, early: has_early.then_some(count + last) };
        Ok(Self { built, shapes: (0..count).map(of_shape).collect() })
    }
}
