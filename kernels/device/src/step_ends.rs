//! The launches at both ends of a captured step: copying the inputs from the current input buffer,
//! and switching buffers.
//!
//! Inputs alternate between two buffers in device memory, so that the next batch is copied into one
//! while the step reads the other. A captured graph contains fixed addresses; an index in device
//! memory selects the buffer that it reads.

use super::{Access, Arg, Launch, Touch};
use crate::DevicePtr;

/// Both input buffers, the index of the current one, and the address from which the step reads its
/// inputs.
#[derive(Debug, Clone, Copy)]
pub struct StepEnds {
    /// Address of each input buffer, aligned to 16.
    pub buffers: [DevicePtr; 2],
    /// Length of an input buffer, a multiple of 16.
    pub bytes: usize,
    /// `int`: 0 or 1.
    pub index: DevicePtr,
    /// Address from which the step reads its inputs, aligned to 16.
    pub inputs: DevicePtr,
    /// Number of completed steps: an `unsigned` in mapped host memory.
    pub done: DevicePtr,
}

/// Copies `bytes` bytes of the current input buffer to the address from which the step reads.
pub fn take_inputs(s: &StepEnds, bytes: usize) -> Launch {
    assert!(bytes <= s.bytes && s.bytes.is_multiple_of(16), "{bytes} of a buffer's {}", s.bytes);
    let bytes = bytes.next_multiple_of(16);
    let [first, second] = s.buffers.map(|ptr| buffer(ptr, bytes, Access::Read));
    Launch::over("take_inputs", bytes / 16)
        .arg(first)
        .arg(second)
        .arg(buffer(s.index, 4, Access::Read))
        .arg(buffer(s.inputs, bytes, Access::Write))
        .len(bytes / 16)
}

/// Switches to the other input buffer and counts the step as done. Comes last in the step.
pub fn finish_step(s: &StepEnds) -> Launch {
    Launch::new("finish_step", [1, 1, 1])
        .block(32)
        .arg(buffer(s.index, 4, Access::Update))
        .arg(buffer(s.done, 4, Access::Update))
}

fn buffer(ptr: DevicePtr, bytes: usize, access: Access) -> Arg {
    Arg::Buffer(Touch { ptr, bytes, access })
}
