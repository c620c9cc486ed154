//! The launches at both ends of a captured step: taking the inputs from the slot whose turn it is,
//! and handing the turn over.
//!
//! Inputs alternate between two slots in device memory, so that the next batch is copied into one
//! while the step reads the other. A captured graph holds fixed addresses; which slot it reads is
//! decided by an index in device memory.

use super::{Access, Arg, Launch, Touch};
use crate::DevicePtr;

/// Both slots, the index of the one whose turn it is, and where the step expects its inputs.
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// First byte of each slot, aligned to 16.
    pub slots: [DevicePtr; 2],
    /// Length of a slot, a multiple of 16.
    pub bytes: usize,
    /// `int`: 0 or 1.
    pub index: DevicePtr,
    /// Where the step reads, aligned to 16.
    pub inputs: DevicePtr,
    /// `unsigned` in mapped host memory: steps done.
    pub done: DevicePtr,
}

/// Copies the slot whose turn it is to where the step reads.
pub fn take_slot(s: &Slots, bytes: usize) -> Launch {
    assert!(bytes <= s.bytes && s.bytes.is_multiple_of(16), "{bytes} of a slot's {}", s.bytes);
    let bytes = bytes.next_multiple_of(16);
    let [first, second] = s.slots.map(|ptr| buffer(ptr, bytes, Access::Read));
    Launch::over("take_slot", bytes / 16)
        .arg(first)
        .arg(second)
        .arg(buffer(s.index, 4, Access::Read))
        .arg(buffer(s.inputs, bytes, Access::Write))
        .len(bytes / 16)
}

/// Hands the turn to the other slot and counts the step as done. Comes after all else of the step.
pub fn finish_step(s: &Slots) -> Launch {
    Launch::new("finish_step", [1, 1, 1])
        .block(32)
        .arg(buffer(s.index, 4, Access::Update))
        .arg(buffer(s.done, 4, Access::Update))
}

fn buffer(ptr: DevicePtr, bytes: usize, access: Access) -> Arg {
    Arg::Buffer(Touch { ptr, bytes, access })
}
