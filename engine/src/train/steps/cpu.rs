//! Steps on the CPU: `begin` runs a step to completion.

use crate::config::Train;
use graph::exec::device::Prepared;
use graph::{CpuArena, CpuExecutor};
use kernels::ops::control_step::Control;

use super::{Measured, Steps, add_counts, kept_names, measured, rows_in_use};
use crate::error::EngineError;
use crate::model::{ACCURACIES, Division, PARAMETER_STATS, STEP_LOSS, STOP_REQUESTS};
use crate::runtime::{ModelState, copy_inputs};
use crate::train::feed::Batch;
use crate::train::programs::StepPrograms;

/// Runs each program with its own executor; all share one arena.
#[derive(Debug)]
pub(in crate::train) struct CpuSteps {
    executors: Vec<CpuExecutor>,
    arena: CpuArena,
    input_bytes: usize,
    shapes: Vec<StepPrograms>,
    loss_names: Vec<&'static str>,
    division: Division,
    /// True if steps output statistics of parameters.
    has_stats: bool,
    /// Counts of correct predictions in the step so far; `None` if steps do not output them.
    counts: Option<Vec<f64>>,
    /// Index of the program that ran last.
    ran: usize,
    /// Index of the program of the step's last pass, if that pass has run.
    last: Option<usize>,
}

impl CpuSteps {
    pub(in crate::train) fn new(
        programs: Vec<Prepared>,
        shapes: Vec<StepPrograms>,
        loss_names: Vec<&'static str>,
        division: &Division,
        asked: &Train,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let arena = state.cpu_arena().clone();
        let input_bytes = programs.iter().map(Prepared::input_bytes).sum();
        let products = state.gemm_settings();
        let state = state.host_mut();
        let plan = |prepared| Ok(CpuExecutor::in_arena(prepared, state, &arena)?.taking(products));
        let executors = programs.into_iter().map(plan).collect::<Result<_, EngineError>>()?;
        let division = division.clone();
        let (has_stats, counts) = (asked.log_parameters, asked.accuracies.then(Vec::new));
        Ok(Self {
            executors,
            arena,
            input_bytes,
            shapes,
            loss_names,
            division,
            has_stats,
            counts,
            ran: 0,
            last: None,
        })
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
        // Runs inside the thread pool, so that parallel loops of ops start without switching
        // threads.
        rayon::scope(|_| executor.run(state));
        if let Some(fault) = self.division.group.fault() {
            return Err(EngineError::RankLost(fault));
        }
        if let Some(counts) = &mut self.counts {
            add_counts(counts, executor.i32(ACCURACIES)?.iter().map(|count| f64::from(*count)));
        }
        self.ran = program;
        self.last = batch.last.then_some(program);
        Ok(Some(batch))
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        let Some(program) = self.last.take() else { panic!("no step was begun") };
        let executor = &self.executors[program];
        let is_weighted = self.division.is_weighted();
        let divisor = self.division.divisor();
        let loss = |name: &&'static str| {
            let total = if is_weighted { &format!("{STEP_LOSS}{name}") } else { *name };
            Ok((*name, executor.f32(total)?[0] / divisor as f32))
        };
        let losses = self.loss_names.iter().map(loss).collect::<Result<_, EngineError>>()?;
        let stop = is_weighted && executor.f32(STOP_REQUESTS)?[0] > 0.0;
        let norms = executor.f32("grad_norms")?;
        let control = Control::read(executor.f32("control")?);
        let stats = if self.has_stats { executor.f32(PARAMETER_STATS)? } else { &[] };
        let counts = self.counts.as_mut().map(std::mem::take).unwrap_or_default();
        Ok(Measured { counts, ..measured(losses, control, norms, stats, divisor, stop) })
    }

    fn kept(&self, prefix: &str, pattern: &str) -> Result<Vec<(String, Vec<f32>)>, EngineError> {
        let executor = &self.executors[self.ran];
        let program = executor.program();
        let read = |name: &str| {
            let values = executor.f32(&format!("{prefix}{name}"))?.to_vec();
            let count = |output: &str| Ok::<_, EngineError>(executor.i32(output)?[0]);
            Ok((name.to_string(), rows_in_use(program, prefix, name, values, count)?))
        };
        kept_names(program, prefix, pattern).into_iter().map(read).collect()
    }

    fn bytes(&self) -> usize {
        self.arena.bytes() + self.input_bytes
    }

    fn cpu_executors(&mut self) -> &mut [CpuExecutor] {
        &mut self.executors
    }
}
