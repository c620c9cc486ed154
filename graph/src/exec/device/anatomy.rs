//! Instrumented steps: launch by launch, on one stream, or with timestamps.
//!
//! Each is a normal training step: it reads the next input buffer, updates the state once, is
//! counted, and its results are bit-identical to those of the captured graph, so training can
//! continue after it. Only the way in which launches are submitted differs.

use std::sync::Arc;

use device::Device;

use super::{DeviceExecutor, Stopwatch};
use crate::GraphError;
use crate::capture::{CapturedGraph, capture};
use crate::timeline::{Span, Stamps};

/// A step that was submitted launch by launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenLaunches {
    /// Step number, for [`DeviceExecutor::until_done`].
    pub step: u32,
    /// Launches timed.
    pub launches: usize,
}

/// A program captured on one stream.
#[derive(Debug)]
pub struct OneStream {
    program: usize,
    graph: CapturedGraph,
}

/// A program captured with a timestamp before and after each piece of work, on its training
/// streams.
#[derive(Debug)]
pub struct StampedStep {
    program: usize,
    graph: CapturedGraph,
    stamps: Stamps,
}

impl StampedStep {
    /// Start and end of each piece of work in the last step submitted with these stamps, in the
    /// order of the program's launch list. Waits for the device.
    ///
    /// # Errors
    /// Device errors.
    pub fn spans(&self) -> Result<Vec<Span>, GraphError> {
        self.stamps.read()
    }
}

impl DeviceExecutor {
    /// Like [`Self::submit`], but submits the tasks one by one to a single stream, in the order of
    /// the launch list, with an event after each: [`Stopwatch::read_us`] returns the time of each
    /// task, in the order of [`LaunchList::tasks`](crate::capture::LaunchList::tasks). The host
    /// does not wait.
    ///
    /// # Errors
    /// Device errors.
    pub fn submit_launches(
        &mut self,
        program: usize,
        watch: &mut Stopwatch,
    ) -> Result<GivenLaunches, GraphError> {
        self.take_inputs_of(program)?;
        watch.begin(self.main)?;
        let mut launches = 0;
        for task in self.lists[program].tasks() {
            task.submit(self.device.as_ref(), self.main)?;
            watch.mark(self.main)?;
            launches += 1;
        }
        watch.end();
        Ok(GivenLaunches { step: self.close_step()?, launches })
    }

    /// Like [`Self::submit`], but times the replay as one piece of work.
    ///
    /// # Errors
    /// Device errors.
    pub fn submit_timed(
        &mut self,
        program: usize,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.replay_timed(program, self.graphs[program], watch)
    }

    /// Captures a program's launch list again on a single stream, to measure how much time several
    /// streams save.
    ///
    /// # Errors
    /// Device errors.
    pub fn capture_on_one_stream(&self, program: usize) -> Result<OneStream, GraphError> {
        let list = self.lists[program].on_one_stream();
        let graph = capture(self.device.as_ref(), &list)?;
        self.device.synchronize()?;
        Ok(OneStream { program, graph })
    }

    /// Like [`Self::submit_timed`], on one stream.
    ///
    /// # Errors
    /// Device errors.
    pub fn submit_on_one_stream(
        &mut self,
        step: &OneStream,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.replay_timed(step.program, step.graph, watch)
    }

    /// Captures a program with timestamps. The graph used for training does not change.
    ///
    /// # Errors
    /// Device errors.
    pub fn capture_with_stamps(&self, program: usize) -> Result<StampedStep, GraphError> {
        let device: Arc<dyn Device> = self.device.clone();
        let (list, stamps) = Stamps::around(device, &self.lists[program])?;
        let graph = capture(self.device.as_ref(), &list)?;
        self.device.synchronize()?;
        Ok(StampedStep { program, graph, stamps })
    }

    /// Like [`Self::submit_timed`], with timestamps.
    ///
    /// # Errors
    /// Device errors.
    pub fn submit_with_stamps(
        &mut self,
        step: &StampedStep,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.replay_timed(step.program, step.graph, watch)
    }

    fn replay_timed(
        &mut self,
        program: usize,
        graph: CapturedGraph,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.take_inputs_of(program)?;
        watch.begin(self.main)?;
        self.device.replay(graph.handle, self.main)?;
        watch.mark(self.main)?;
        watch.end();
        self.close_step()
    }
}
