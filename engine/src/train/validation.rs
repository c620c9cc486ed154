//! Losses on the validation images, computed by the training program without its backward pass.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use crate::config::{Augment, Config};
use dali::loader::{self, Loader};
use dali::order::PaddedShape;
use device::Target;
use graph::exec::device::Prepared;

use super::feed::fill_rows;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::evaluate::{DetectionMemory, Evaluator};
use crate::model::{
    BuiltProgram, ModelSpec, Part, class_weights, detector, further_arrays, loss_layout,
    loss_program,
};
use crate::runtime::{Backend, Executor, Inputs, ModelState};
use crate::team::{Team, decode, encode};
use crate::view::Views;

/// Number of batches decoded ahead of the model.
const DECODED_AHEAD: usize = 1;

/// Mean losses over images, by name; the weighted sum, `val_loss`, comes first.
pub(super) type ValLosses = Vec<(String, f64)>;

/// Number of images, and losses, of each batch.
type Batches = Vec<(usize, Vec<f32>)>;

/// Computes losses on the validation images, without augmentation and with the random samples of
/// the first epoch, so that results of evaluations only differ by the weights.
#[derive(Debug)]
pub(super) struct ValidationLoss {
    config: Config,
    data: DataSet,
    classes: usize,
    backend: Backend,
    /// Batches: index of the padded shape, and positions in the data set.
    batches: Vec<(usize, Vec<usize>)>,
    /// Executor of each padded shape; on the CPU planned on first use.
    executors: Vec<Option<Executor>>,
    losses: Vec<&'static str>,
    loss_weights: Vec<f32>,
}

impl ValidationLoss {
    /// Computes losses on the batches of `evaluator`, for a model with `classes` classes.
    ///
    /// # Errors
    /// A config that describes no valid program; device errors.
    pub(super) fn new(
        config: &Config,
        evaluator: &Evaluator,
        classes: usize,
        backend: &Backend,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let (data, images) = (evaluator.set().data().clone(), evaluator.set().images());
        let place = |(shape, positions): (usize, Vec<usize>)| {
            (shape, positions.into_iter().map(|position| images[position]).collect())
        };
        let batches = evaluator.batches(images).into_iter().map(place).collect();
        let config = unaugmented(config);
        let executors = data.shapes.iter().map(|_| None).collect();
        let (backend, losses, loss_weights) = (backend.clone(), vec![], vec![]);
        let mut all =
            Self { config, data, classes, backend, batches, executors, losses, loss_weights };
        if let Backend::Device(_) = all.backend {
            (0..all.executors.len()).try_for_each(|shape| all.plan(shape, state))?;
        }
        Ok(all)
    }

    /// Memory that validation losses on `data` need in addition to the state.
    ///
    /// # Errors
    /// A config that describes no valid program.
    pub(super) fn memory(
        config: &Config,
        data: &DataSet,
        classes: usize,
        backend: &Backend,
    ) -> Result<DetectionMemory, EngineError> {
        let config = &unaugmented(config);
        let target = backend.target(config);
        let mut memory = DetectionMemory::default();
        for padded in data.shapes_of_evaluation(config) {
            let program = program(config, data, classes, padded, &target)?.program;
            let prepared = Prepared::new(Arc::new(program), target.clone())?;
            memory.arena_bytes = memory.arena_bytes.max(prepared.plan.arena_bytes());
            memory.input_bytes += prepared.input_places() * prepared.input_bytes();
        }
        Ok(memory)
    }

    /// Mean losses of all images on rank 0, empty on the other ranks; the batches are divided among
    /// the ranks. Batches and summation order do not depend on the number of ranks.
    ///
    /// # Errors
    /// An image that cannot be read; device errors; [`EngineError::Interrupted`];
    /// [`EngineError::RankLost`].
    pub(super) fn run(
        &mut self,
        state: &mut ModelState,
        team: &Team,
        interrupted: &AtomicBool,
    ) -> Result<ValLosses, EngineError> {
        let mine = match self.run_own(state, team, interrupted) {
            Err(EngineError::Interrupted) => None,
            batches => Some(batches?),
        };
        let all = match team.is_alone() {
            true => vec![mine],
            false => {
                let messages = team.gather("the losses of all ranks", &encode(&mine)?)?;
                if !team.is_first() {
                    return mine.map(|_| vec![]).ok_or(EngineError::Interrupted);
                }
                messages.iter().map(|message| decode(message)).collect::<Result<_, _>>()?
            }
        };
        let all: Option<Vec<Batches>> = all.into_iter().collect();
        Ok(self.mean(&all.ok_or(EngineError::Interrupted)?))
    }

    /// The losses of this rank's batches.
    fn run_own(
        &mut self,
        state: &mut ModelState,
        team: &Team,
        interrupted: &AtomicBool,
    ) -> Result<Batches, EngineError> {
        let ranks = team.ranks();
        let own: Vec<_> =
            self.batches.iter().skip(ranks.rank).step_by(ranks.count).cloned().collect();
        let images = self.data.images.clone();
        let to_load = own.clone().into_iter().map(move |(_, positions)| loader::Batch {
            indices: positions.into_iter().map(|position| images[position]).collect(),
            epoch: 0,
            copies: vec![],
        });
        let config = &self.config;
        let size = config.eval.batch_size;
        let layout = Arc::new(loss_layout(&further_arrays(config), size, self.data.slot_shape())?);
        let slots = (0..=DECODED_AHEAD).map(|_| self.backend.slot(&layout));
        let slots = slots.collect::<Result<_, EngineError>>()?;
        let filler = fill_rows(&self.data, Views::new(config), detector(&config.model));
        let store = self.data.store.clone();
        let mut loader = Loader::new(store, to_load, slots, 1, Box::new(filler))?;
        let mut batches = Batches::new();
        for (shape, positions) in own {
            self.plan(shape, state)?;
            let (Some(filled), Some(executor)) = (loader.next()?, &mut self.executors[shape])
            else {
                unreachable!("planned above, and loaded batch by batch")
            };
            executor.run(Inputs::Slot { slot: &filled.slot, keep: None }, state, interrupted)?;
            loader.recycle(filled.slot);
            let read = |name: &&str| Ok(executor.read(name)?.as_f32()[0]);
            let losses = self.losses.iter().map(read).collect::<Result<_, EngineError>>()?;
            batches.push((positions.len(), losses));
            team.record_progress();
        }
        Ok(batches)
    }

    /// Means over all images. Batches were assigned to ranks round-robin.
    fn mean(&self, of_ranks: &[Batches]) -> ValLosses {
        let in_turn =
            (0..self.batches.len()).map(|i| &of_ranks[i % of_ranks.len()][i / of_ranks.len()]);
        let images: usize = in_turn.clone().map(|(images, _)| images).sum();
        let mean = |loss: usize| {
            let sum: f64 = in_turn.clone().map(|(n, of)| *n as f64 * f64::from(of[loss])).sum();
            sum / images.max(1) as f64
        };
        let means: Vec<f64> = (0..self.losses.len()).map(mean).collect();
        let weighted = |(weight, mean): (&f32, &f64)| f64::from(*weight) * mean;
        let total = self.loss_weights.iter().zip(&means).map(weighted).sum();
        let parts = self.losses.iter().map(|name| format!("val_{name}")).zip(means);
        [("val_loss".into(), total)].into_iter().chain(parts).collect()
    }

    fn plan(&mut self, shape: usize, state: &mut ModelState) -> Result<(), EngineError> {
        if self.executors[shape].is_some() {
            return Ok(());
        }
        let (config, data) = (&self.config, &self.data);
        let target = self.backend.target(config);
        let built = program(config, data, self.classes, data.shapes[shape], &target)?;
        let size = config.eval.batch_size;
        let layout = loss_layout(&further_arrays(config), size, data.slot_shape())?;
        (self.losses, self.loss_weights) = (built.losses, built.loss_weights);
        self.executors[shape] = Some(Executor::new(built.program, &layout, &self.backend, state)?);
        Ok(())
    }
}

/// The config without augmentation, as in an evaluation.
fn unaugmented(config: &Config) -> Config {
    let mut config = config.clone();
    config.input.augment = Augment::default();
    config.input.flip_probability = 0.0;
    config
}

/// The program of a padded shape.
fn program(
    config: &Config,
    data: &DataSet,
    num_classes: usize,
    padded: PaddedShape,
    target: &Target,
) -> Result<BuiltProgram, EngineError> {
    let spec = ModelSpec {
        config,
        num_classes,
        images: config.eval.batch_size,
        padded: padded.into(),
        slot: data.slot_shape(),
        target: target.clone(),
        part: Part::whole(),
        observe: false,
    };
    let weights = class_weights(&config.loss_weights, &data.categories(), num_classes)?;
    loss_program(&spec, &weights)
}
