//! Compiles the CUDA sources into the checked-in archives and their manifest.
//!
//! A source is compiled for each architecture that it lists, by default for `compute_80`.
//!
//! Only developers need this crate: users run the checked-in kernels. The compiler is pinned, so
//! the same sources give identical files on every machine; [`write()`] writes these files,
//! [`check()`] compares them. [`sass::report`] lists stalls and waits in the main loops of the
//! machine code.

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

/// An error: a one-line message, or the compiler's report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// Folder of the sources, relative to the checkout's root.
pub const SOURCES: &str = "kernels/src";
/// Folder of the compiled files.
pub const FOLDER: &str = "ptx";

/// The root of the checkout from which this tool was built.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles all sources, and compares the result with the checked-in files; returns one line per
/// difference.
///
/// # Errors
/// A source does not compile, or a kernel spills.
pub fn check(root: &Path, toolkit: &Toolkit) -> Result<Vec<String>, Fault> {
    let compiled = output::compile(root, toolkit)?;
    Ok(files::differences(FOLDER, &compiled, &files::present(&root.join(FOLDER))?))
}

/// Compiles all sources, and writes the files.
///
/// # Errors
/// As for [`check()`]; a file cannot be written.
pub fn write(root: &Path, toolkit: &Toolkit) -> Result<(), Fault> {
    files::write(&root.join(FOLDER), &output::compile(root, toolkit)?)
}

fn read(path: &Path) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault(format!("{}: {e}", path.display())))
}
