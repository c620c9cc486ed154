//! Steps on the CPU: a step is done when it has begun.

use std::sync::Arc;

use graph::{CpuExecutor, Program, StateSet};

use super::{Measured, Steps, measured};
use crate::error::EngineError;
use crate::model::LOSS_NAMES;
use crate::runtime::{ModelState, copy_inputs};
use crate::train::feed::Batch;

/// One executor a padded shape; with micro-steps, those of the early ones after those of the last.
#[derive(Debug)]
pub(in crate::train) struct CpuSteps {
    executors: Vec<CpuExecutor>,
    shapes: usize,
    losses: Vec<Vec<(&'static str, f32)>>,
    last: Option<usize>,
}

impl CpuSteps {
    pub(in crate::train) fn new(
        programs: Vec<Program>,
        shapes: usize,
        state: &StateSet,
    ) -> Result<Self, EngineError> {
        let plan = |program| Ok(CpuExecutor::new(Arc::new(program), state)?);
        let executors = programs.into_iter().map(plan).collect::<Result<_, EngineError>>()?;
        Ok(Self { executors, shapes, losses: vec![], last: None })
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
        let program = batch.shape + if batch.last { 0 } else { self.shapes };
        let executor = &mut self.executors[program];
        copy_inputs(executor, &batch.slot)?;
        let state = state.host_mut();
        // Inside the pool, so that an op's parallel loops start without a hand-over of threads.
        rayon::scope(|_| executor.run(state));
        let executor = &self.executors[program];
        let kept = |name: &&str| executor.program().find(name).is_some();
        let losses = LOSS_NAMES
            .into_iter()
            .filter(kept)
            .map(|name| Ok((name, executor.f32(name)?[0])))
            .collect::<Result<Vec<_>, EngineError>>()?;
        self.losses.push(losses);
        self.last = Some(program);
        Ok(Some(batch))
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        let Some(shape) = self.last.take() else { panic!("no step was begun") };
        let executor = &self.executors[shape];
        let losses = std::mem::take(&mut self.losses);
        let norms = executor.f32("grad_norms")?;
        Ok(measured(&losses, executor.f32("control")?, norms[norms.len() - 1]))
    }

    fn bytes(&self) -> usize {
        self.executors.iter().map(|e| e.plan().arena_bytes()).sum()
    }

    fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        &mut self.executors
    }
}
