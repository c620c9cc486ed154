//! Compiles the CUDA sources of `kernels/src` into `ptx/`, and says what the result holds.
//!
//! Only developers need it: users run the PTX that is checked in. The compiler is pinned, so that
//! the same sources give the same bytes on every machine; [`run`] writes them or compares them.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod nvrtc;
pub mod output;
pub mod ptx;
pub mod ptxas;
pub mod sources;
pub mod toolkit;

use std::fs;
use std::path::{Path, PathBuf};

pub use ptxas::SPILLS_ALLOWED;
use toolkit::Toolkit;

/// The folder of what is compiled, from the checkout's root.
pub const FOLDER: &str = "ptx";

/// Why nothing came out: one sentence, or the compiler's own report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// The root of the checkout that this tool was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Compiles everything. With `check`, compares the result with what is checked in and returns one
/// sentence a difference; without, writes it and returns none.
///
/// # Errors
/// Sources that do not compile, kernels that spill, files that cannot be written.
pub fn run(root: &Path, toolkit: &Toolkit, check: bool) -> Result<Vec<String>, Fault> {
    let files = output::compile(root, toolkit)?;
    let folder = root.join(FOLDER);
    if check {
        return Ok(output::differences(&files, &output::present(&folder)?));
    }
    output::write(&folder, &files)?;
    Ok(Vec::new())
}

fn read(path: &Path) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault(format!("{}: {e}", path.display())))
}
