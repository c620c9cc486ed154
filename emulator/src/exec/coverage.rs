//! Counts how often each instruction was executed, and writes a file at process exit.

use std::collections::BTreeMap;
use std::env;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::{Mutex, PoisonError};

use crate::ptx::program::Program;

/// The file to which each kernel's lines are appended, as `KERNEL LINE COUNT OPCODE`.
const FILE: &str = "DRIVER_COVERAGE";

/// An instruction's opcode, and how many warps executed it.
type Count = (u64, Box<str>);

/// Counts by kernel and PTX line.
static COUNTS: Mutex<BTreeMap<(String, u32), Count>> = Mutex::new(BTreeMap::new());

/// Counters for a launch, by instruction; empty if disabled.
pub(super) fn counters(program: &Program) -> Vec<u64> {
    let is_wanted = env::var_os(FILE).is_some();
    if is_wanted { vec![0; program.steps.len()] } else { vec![] }
}

/// Adds the counters of a launch.
pub(super) fn add(kernel: &str, program: &Program, counters: &[u64]) {
    if counters.is_empty() {
        return;
    }
    let mut counts = COUNTS.lock().unwrap_or_else(PoisonError::into_inner);
    for ((step, opcode), count) in program.steps.iter().zip(&program.opcodes).zip(counters) {
        let of_line = counts.entry((kernel.to_string(), step.line));
        of_line.or_insert_with(|| (0, opcode.clone())).0 += count;
    }
}

/// Writes all counts.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write() -> std::io::Result<()> {
    let Some(path) = env::var_os(FILE) else { return Ok(()) };
    let counts = std::mem::take(&mut *COUNTS.lock().unwrap_or_else(PoisonError::into_inner));
    let mut text = String::new();
    for ((kernel, line), (count, opcode)) in counts {
        let _ = writeln!(text, "{kernel} {line} {count} {opcode}");
    }
    OpenOptions::new().create(true).append(true).open(path)?.write_all(text.as_bytes())
}
