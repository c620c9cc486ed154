//! Steps on a device: one graph launch per pass; the host reads results from the ring.

use std::collections::VecDeque;
use std::sync::Arc;

use dali::loader::SlotLayout;
use device::{Device, Pinned};
use graph::DeviceExecutor;
use graph::capture::CapturedGraph;
use graph::exec::device::Prepared;

use super::{Losses, Measured, Steps, Submit, add_counts, kept_names, measured, rows_in_use};
use crate::error::EngineError;
use crate::model::{Division, RING, RingLayout};
use crate::runtime::{ModelState, Slot, same_layout};
use crate::train::feed::Batch;
use crate::train::memory::arena_bytes;
use crate::train::programs::StepPrograms;

/// Runs each program as a captured graph; all share one arena.
#[derive(Debug)]
pub(in crate::train) struct DeviceSteps {
    device: Arc<dyn Device>,
    executor: DeviceExecutor,
    layout: RingLayout,
    ring: Pinned,
    /// Batches from which the device may still be copying, oldest first, each with its micro-step
    /// number.
    copied: VecDeque<(u32, Batch)>,
    shapes: Vec<StepPrograms>,
    division: Division,
    /// Index of the program that was submitted last.
    ran: usize,
    /// Weights of passes that are not measured yet, oldest first.
    weights: VecDeque<f32>,
    /// Number of passes measured.
    measured: u32,
}

impl DeviceSteps {
    pub(in crate::train) fn new(
        device: Arc<dyn Device>,
        programs: Vec<Prepared>,
        shapes: Vec<StepPrograms>,
        division: &Division,
        layout: RingLayout,
        slot: &SlotLayout,
        state: &mut ModelState,
    ) -> Result<Self, EngineError> {
        let arena = state.arena(&device, arena_bytes(&programs))?;
        let memory = state.memory().map(Arc::as_ref);
        let Some((memory, ring)) = memory.and_then(|m| Some((m, m.mapped(RING)?))) else {
            panic!("the state is not on the device, or has no ring")
        };
        programs.iter().for_each(|program| same_layout(program, slot));
        let executor = DeviceExecutor::new(device.clone(), programs, arena, memory)?;
        let division = division.clone();
        let (copied, weights, measured) = (VecDeque::new(), VecDeque::new(), 0);
        Ok(Self {
            device,
            executor,
            layout,
            ring,
            copied,
            shapes,
            division,
            ran: 0,
            weights,
            measured,
        })
    }
}

impl DeviceSteps {
    fn row(&self, row: usize) -> Vec<f32> {
        let mut bytes = vec![0; size_of::<f32>() * self.layout.width];
        self.device.read_pinned(self.ring, row * bytes.len(), &mut bytes);
        bytemuck::pod_collect_to_vec(&bytes)
    }
}

impl Steps for DeviceSteps {
    fn depth(&self) -> usize {
        2
    }

    fn begin(
        &mut self,
        batch: Batch,
        _state: &mut ModelState,
    ) -> Result<Option<Batch>, EngineError> {
        self.begin_by(batch, &mut |executor, program| executor.submit(program).map(drop))
    }

    fn begin_by(
        &mut self,
        batch: Batch,
        submit: &mut Submit<'_>,
    ) -> Result<Option<Batch>, EngineError> {
        let executor = &mut self.executor;
        let program = self.shapes[batch.shape].of(batch.last);
        executor.upload_inputs(program, batch.slot.memory().pinned())?;
        let before = executor.submitted();
        submit(executor, program)?;
        let step = before.wrapping_add(1);
        assert_eq!(executor.submitted(), step, "one step was to be made");
        self.ran = program;
        self.weights.push_back(batch.weight);
        self.copied.push_back((step, batch));
        // The oldest batch can be reused once its micro-step is done.
        let free = self.copied.front().is_some_and(|(step, _)| executor.is_done(*step));
        Ok(if free { self.copied.pop_front().map(|(_, batch)| batch) } else { None })
    }

    fn warm_up(&mut self, slot: &Slot) -> Result<(), EngineError> {
        for program in 0..self.executor.programs().len() {
            self.executor.upload_inputs(program, slot.memory().pinned())?;
            let step = self.executor.submit(program)?;
            self.executor.until_done(step)?;
            self.measured = self.measured.wrapping_add(1);
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        let (mut passes, mut counts) = (Vec::new(), Vec::new());
        let mut last = None;
        for _ in 0..self.division.passes {
            let place = self.measured as usize % self.layout.rows;
            self.measured = self.measured.wrapping_add(1);
            self.executor.until_done(self.measured)?;
            let row = self.layout.split(&self.row(place));
            let Some(weight) = self.weights.pop_front() else { panic!("no step was begun") };
            // All-reduced losses already include the weight.
            let weight = if self.layout.is_summed { 1.0 } else { weight };
            passes.push((weight, row.losses.clone()));
            add_counts(&mut counts, row.counts.iter().map(|count| f64::from(*count)));
            last = Some(row);
        }
        let Some(last) = last else { panic!("a step has a pass") };
        let losses = mean(&passes, self.division.parts());
        let divisor = self.division.divisor();
        let (norms, stats) = (&last.norms, &last.stats);
        let stop = last.stop > 0.0;
        Ok(Measured { counts, ..measured(losses, last.control, norms, stats, divisor, stop) })
    }

    fn kept(&self, prefix: &str, pattern: &str) -> Result<Vec<(String, Vec<f32>)>, EngineError> {
        let (executor, ran) = (&self.executor, self.ran);
        let program = &executor.programs()[ran].program;
        let read = |name: &str| {
            let values = executor.read(ran, &format!("{prefix}{name}"))?.as_f32().to_vec();
            let count =
                |output: &str| Ok::<_, EngineError>(executor.read(ran, output)?.as_i32()[0]);
            Ok((name.to_string(), rows_in_use(program, prefix, name, values, count)?))
        };
        kept_names(program, prefix, pattern).into_iter().map(read).collect()
    }

    fn bytes(&self) -> usize {
        self.executor.arena_bytes() + self.executor.input_bytes()
    }

    fn pinned_bytes(&self) -> usize {
        self.ring.bytes
    }

    fn graphs(&self) -> &[CapturedGraph] {
        self.executor.graphs()
    }

    fn device_executor(&mut self) -> Option<&mut DeviceExecutor> {
        Some(&mut self.executor)
    }
}

/// The losses of a step: weighted sums over passes, divided by `parts`, the passes of all ranks.
fn mean(passes: &[(f32, Losses)], parts: usize) -> Losses {
    let parts = parts as f32;
    // Multiplying by a weight of 1 is exact.
    let weighted = |i: usize| passes.iter().map(move |(weight, of)| weight * of[i].1);
    let names = passes[0].1.iter().map(|(name, _)| *name);
    names.enumerate().map(|(i, name)| (name, weighted(i).sum::<f32>() / parts)).collect()
}
