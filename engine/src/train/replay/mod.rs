//! A training step that can be run again: its state and batch, saved when a run's losses become
//! non-finite.

mod file;
mod run;

use crate::config::Config;
use graph::StateSet;
use graph::finite::NonFinite;

use super::trainer::Trainer;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::metrics::StepRecord;
use crate::model::{ImageSize, SlotShape, class_weights, is_transient};

/// A complete step: its inputs, and the results of its original run.
#[derive(Debug, Clone)]
pub struct Replay {
    /// Number of the step, counted from 1 as in the log.
    pub step: u64,
    /// Ids of its images.
    pub image_ids: Vec<u64>,
    /// The losses of its original run, by name.
    pub losses: Vec<(String, f32)>,
    pub(crate) config: Config,
    num_classes: usize,
    class_weights: Vec<f32>,
    padded: ImageSize,
    slot: SlotShape,
    /// For each pass of all ranks: the arrays of its batch, by name.
    batches: Vec<Vec<(String, Vec<u8>)>>,
    state: StateSet,
}

/// The result of a replay.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// The losses of the last pass that was replayed, by name.
    pub losses: Vec<(String, f32)>,
    /// The first tensor with non-finite values; `None` if all were finite.
    pub non_finite: Option<NonFinite>,
}

impl Replay {
    /// Captures a step whose update was skipped, so that the trainer still has the state from
    /// before the step. No step may be in flight.
    ///
    /// # Errors
    /// An image that cannot be read; device errors.
    pub(super) fn take(
        trainer: &mut Trainer,
        config: &Config,
        data: &DataSet,
        record: &StepRecord,
    ) -> Result<Self, EngineError> {
        let step = record.step - 1;
        let (mut batches, mut shape) = (Vec::new(), 0);
        trainer.batch_again(config, step, &mut |batch| {
            let arrays = batch.slot.arrays();
            batches.push(arrays.map(|(a, bytes)| (a.name.to_string(), bytes.to_vec())).collect());
            shape = batch.shape;
            Ok(())
        })?;
        let image_ids = trainer.image_ids(step);
        let mut state = trainer.state().fetch()?.without(is_transient);
        if let Some(scale) = state.get_mut("loss_scale") {
            scale.as_f32_mut()[0] = record.loss_scale;
        }
        // Weights files are not needed: the state contains the weights.
        let mut config = config.clone();
        (config.model.weights, config.model.backbone.weights) = (None, None);
        let num_classes = data.classes_of_model(&config)?;
        Ok(Self {
            class_weights: class_weights(&config.loss_weights, &data.categories(), num_classes)?,
            step: record.step,
            image_ids,
            losses: record.losses.iter().map(|(name, v)| (name.to_string(), *v)).collect(),
            num_classes,
            config,
            padded: data.shapes[shape].into(),
            slot: data.slot_shape(),
            batches,
            state,
        })
    }
}
