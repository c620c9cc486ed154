//! Steps on the CPU: begin runs a step to completion.

use std::sync::Arc;

use graph::{CpuExecutor, StateSet};
use kernels::ops::control_step::Control;

use super::{Measured, MicroLosses, Steps, measured};
use crate::error::EngineError;
use crate::model::BuiltProgram;
use crate::runtime::{ModelState, copy_inputs};
use crate::train::feed::Batch;
use crate::train::programs::{StepPrograms, TrainingPrograms};

/// One executor per program.
#[derive(Debug)]
pub(in crate::train) struct CpuSteps {
    executors: Vec<CpuExecutor>,
    shapes: Vec<StepPrograms>,
    loss_names: Vec<&'static str>,
    /// Results of the micro-steps begun so far.
    losses: Vec<MicroLosses>,
    last: Option<usize>,
}

impl CpuSteps {
    pub(in crate::train) fn new(
        programs: TrainingPrograms,
        state: &StateSet,
    ) -> Result<Self, EngineError> {
        let TrainingPrograms { built, shapes } = programs;
        let loss_names = built.first().map(|b| b.losses.clone()).unwrap_or_default();
        let plan = |b: BuiltProgram| Ok(CpuExecutor::new(Arc::new(b.program), state)?);
        let executors = built.into_iter().map(plan).collect::<Result<_, EngineError>>()?;
        Ok(Self { executors, shapes, loss_names, losses: vec![], last: None })
    }
}

impl Steps for CpuSteps {
    fn depth(&self) -> usize {
        1
    }

    fn begin(
        &mut self,
        batch: Batch,
        state: &mut ModelState,
    ) -> Result<Option<Batch>, EngineError> {
        let program = self.shapes[batch.shape].of(batch.last);
        let executor = &mut self.executors[program];
        copy_inputs(executor, &batch.slot)?;
        let state = state.host_mut();
        // Inside the pool, so that an op's parallel loops start without a thread hand-off.
        rayon::scope(|_| executor.run(state));
        let executor = &self.executors[program];
        let losses = self
            .loss_names
            .iter()
            .map(|name| Ok((*name, executor.f32(name)?[0])))
            .collect::<Result<Vec<_>, EngineError>>()?;
        self.losses.push((batch.weight, losses));
        self.last = Some(program);
        Ok(Some(batch))
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        let Some(program) = self.last.take() else { panic!("no step was begun") };
        let executor = &self.executors[program];
        let losses = std::mem::take(&mut self.losses);
        let norms = executor.f32("grad_norms")?;
        let control = Control::read(executor.f32("control")?);
        Ok(measured(&losses, control, norms[norms.len() - 1]))
    }

    fn bytes(&self) -> usize {
        self.executors.iter().map(|e| e.plan().arena_bytes()).sum()
    }

    fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        &mut self.executors
    }
}
