//! Steps that are made to be measured: launch by launch, on one stream, with stamps of the time.
//!
//! Each is a step like any other: it takes its inputs from the buffer whose turn it is, updates the
//! state once, is counted, and leaves the bits that the captured graph leaves. So training goes on
//! behind it. What differs is how the launches reach the device.

use std::sync::Arc;

use device::Device;

use super::{DeviceExecutor, Stopwatch};
use crate::GraphError;
use crate::capture::{CapturedGraph, capture};
use crate::timeline::{Span, Stamps};

/// A step that was given launch by launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenLaunches {
    /// Its number, for [`DeviceExecutor::until_done`].
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

/// A program captured with a stamp of the time before and after each work, on the streams that it
/// has in training.
#[derive(Debug)]
pub struct StampedStep {
    program: usize,
    graph: CapturedGraph,
    stamps: Stamps,
}

impl StampedStep {
    /// When each work began and ended in the last step that was made with it, in the order of the
    /// program's launch list. Waits for the device.
    ///
    /// # Errors
    /// The device's own.
    pub fn spans(&self) -> Result<Vec<Span>, GraphError> {
        self.stamps.read()
    }
}

impl DeviceExecutor {
    /// As [`Self::submit`], but the tasks go to one stream one by one, in the order of the launch
    /// list, with an event after each: [`Stopwatch::read_us`] gives the time of each, in the order
    /// of [`LaunchList::tasks`](crate::capture::LaunchList::tasks). The host waits for nothing.
    ///
    /// # Errors
    /// The device's own.
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

    /// As [`Self::submit`], with the replay timed as one piece of work.
    ///
    /// # Errors
    /// The device's own.
    pub fn submit_timed(
        &mut self,
        program: usize,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.replay_timed(program, self.graphs[program], watch)
    }

    /// Captures a program's launch list once more, all on one stream: what the second stream saves
    /// shows beside it.
    ///
    /// # Errors
    /// The device's own.
    pub fn capture_on_one_stream(&self, program: usize) -> Result<OneStream, GraphError> {
        let list = self.lists[program].on_one_stream();
        let graph = capture(self.device.as_ref(), &list)?;
        self.device.synchronize()?;
        Ok(OneStream { program, graph })
    }

    /// As [`Self::submit_timed`], on one stream.
    ///
    /// # Errors
    /// The device's own.
    pub fn submit_on_one_stream(
        &mut self,
        step: &OneStream,
        watch: &mut Stopwatch,
    ) -> Result<u32, GraphError> {
        self.replay_timed(step.program, step.graph, watch)
    }

    /// Captures a program with stamps. Training's own graph does not change.
    ///
    /// # Errors
    /// The device's own.
    pub fn capture_with_stamps(&self, program: usize) -> Result<StampedStep, GraphError> {
        let device: Arc<dyn Device> = self.device.clone();
        let (list, stamps) = Stamps::around(device, &self.lists[program])?;
        let graph = capture(self.device.as_ref(), &list)?;
        self.device.synchronize()?;
        Ok(StampedStep { program, graph, stamps })
    }

    /// As [`Self::submit_timed`], with stamps.
    ///
    /// # Errors
    /// The device's own.
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
