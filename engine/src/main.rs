//! The command `onegraph`.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::process::ExitCode;

/// The system's allocator. If memory runs out, the process ends with a one-line message instead of
/// a signal.
struct Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn checked(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() { engine::cli::out_of_memory(bytes) } else { memory }
}

// SAFETY: every call goes to the system's allocator, under the same contract.
unsafe impl GlobalAlloc for Allocator {
    /// # Safety
    /// As for the system's allocator.
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    /// # Safety
    /// As for the system's allocator.
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    /// # Safety
    /// As for the system's allocator.
    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller upholds the contract.
        checked(unsafe { System.realloc(memory, layout, bytes) }, bytes)
    }

    /// # Safety
    /// As for the system's allocator.
    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn main() -> ExitCode {
    engine::cli::main()
}
