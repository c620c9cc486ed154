//! Compiles the CUDA sources into the archives that are checked in, and records what they contain.
//!
//! A source is compiled for each architecture that it lists, by default for `compute_80`.
//!
//! Only developers need it: users run the checked-in kernels. The compiler is pinned, so the same
//! sources give identical files on every machine, which [`write()`] writes and [`check()`]
//! compares. [`sass::report`] lists stalls and waits in the main loops of the machine code.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod child;
pub mod files;
pub mod nvrtc;
pub mod output;
pub mod print;
pub mod ptx;
pub mod ptxas;
pub mod sass;
pub mod sources;
pub mod toolkit;

use std::fs;
use std::path::{Path, PathBuf};

pub use ptxas::SPILLS_ALLOWED;
use toolkit::Toolkit;

/// Why there is no result: a one-line message, or the compiler's own report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// Folder of the sources, relative to the checkout's root.
pub const SOURCES: &str = "kernels/src";
/// Folder of the compiled files.
pub const FOLDER: &str = "ptx";

/// The root of the checkout that this tool was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles everything, and compares it with the checked-in files: one line per difference.
///
/// # Errors
/// Sources that do not compile, kernels that spill.
pub fn check(root: &Path, toolkit: &Toolkit) -> Result<Vec<String>, Fault> {
    let compiled = output::compile(root, toolkit)?;
    Ok(files::differences(FOLDER, &compiled, &files::present(&root.join(FOLDER))?))
}

/// Compiles everything, and writes it.
///
/// # Errors
/// As [`check()`], and files that cannot be written.
pub fn write(root: &Path, toolkit: &Toolkit) -> Result<(), Fault> {
    files::write(&root.join(FOLDER), &output::compile(root, toolkit)?)
}

fn read(path: &Path) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault(format!("{}: {e}", path.display())))
}
