//! NVRTC in a separate process. The compiler breaks ties by memory addresses, so equal sources give
//! equal PTX only with equal addresses. So each source is compiled in a new process without address
//! randomization (`setarch -R`), in a thread, whose heap begins at a 64 MiB boundary regardless of
//! the end of the main heap. The process accesses the checkout and the toolkit through links in a
//! folder with a path of fixed length (`Links`), because path lengths shift addresses. The length
//! of a source also shifts them: a longer comment can reorder the branches of a kernel.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde::{Deserialize, Serialize};

use crate::Fault;
use crate::nvrtc::{Compiled, Nvrtc};

/// The first argument of a child process.
pub const ARGUMENT: &str = "nvrtc-child";

/// The folder in which child processes run, with links to the checkout and to the toolkit; removed
/// on drop.
#[derive(Debug)]
pub(crate) struct Links(PathBuf);

impl Links {
    /// The name of the link to the checkout.
    pub(crate) const ROOT: &str = "root";
    /// The name of the link to the toolkit.
    pub(crate) const TOOLKIT: &str = "toolkit";

    /// Creates the folder.
    ///
    /// # Errors
    /// A folder or link cannot be created.
    pub(crate) fn new(root: &Path, toolkit: &Path) -> Result<Self, Fault> {
        let folder =
            std::env::temp_dir().join(format!("onegraph-nvrtc-{:010}", std::process::id()));
        let links = Self(folder);
        let fault = |e: std::io::Error| Fault(format!("{}: {e}", links.0.display()));
        std::fs::create_dir(&links.0).map_err(fault)?;
        for (name, to) in [(Self::ROOT, root), (Self::TOOLKIT, toolkit)] {
            let to = to.canonicalize().map_err(fault)?;
            std::os::unix::fs::symlink(to, links.0.join(name)).map_err(fault)?;
        }
        Ok(links)
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        // An error is ignored: leftover links in a temporary folder are harmless.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The request that the parent writes to the child's standard input.
#[derive(Debug, Serialize, Deserialize)]
struct Order {
    /// Folder of the NVRTC library.
    folder: String,
    name: String,
    source: String,
    options: Vec<String>,
}

/// Compiles one source in the folder of `links`, to which paths are relative; for the remaining
/// arguments see [`Nvrtc::compile`].
///
/// # Errors
/// The compiler's report; the process cannot be started.
pub(crate) fn compile(
    links: &Links,
    folder: &Path,
    name: &str,
    source: &str,
    options: &[String],
) -> Result<Compiled, Fault> {
    let fault = |e: &dyn std::fmt::Display| Fault(format!("{name}: setarch -R: {e}"));
    let program = std::env::current_exe().map_err(|e| fault(&e))?;
    let order = Order {
        folder: folder.display().to_string(),
        name: name.to_string(),
        source: source.to_string(),
        options: options.to_vec(),
    };
    let text = serde_json::to_vec(&order).map_err(|e| fault(&e))?;
    let mut child = Command::new("setarch")
        .arg("-R")
        .arg(program)
        .arg(ARGUMENT)
        .env_clear()
        .current_dir(&links.0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| fault(&e))?;
    if let Some(mut input) = child.stdin.take() {
        input.write_all(&text).map_err(|e| fault(&e))?;
    }
    let output = child.wait_with_output().map_err(|e| fault(&e))?;
    let answer: Result<Compiled, String> =
        serde_json::from_slice(&output.stdout).map_err(|_| fault(&output.status))?;
    answer.map_err(Fault)
}

/// Main function of a child process: reads a request from standard input, and writes the result to
/// standard output.
///
/// # Errors
/// The input is not a valid request, or the output is closed.
pub fn run() -> Result<(), Fault> {
    let fault = |e: &dyn std::fmt::Display| Fault(format!("{ARGUMENT}: {e}"));
    let mut text = Vec::new();
    std::io::stdin().read_to_end(&mut text).map_err(|e| fault(&e))?;
    let order: Order = serde_json::from_slice(&text).map_err(|e| fault(&e))?;
    let compiling = std::thread::spawn(move || {
        let nvrtc = Nvrtc::open(Path::new(&order.folder))?;
        nvrtc.compile(&order.name, &order.source, &order.options)
    });
    let result = compiling.join().map_err(|_| fault(&"the compiling thread panicked"))?;
    let answer = serde_json::to_vec(&result.map_err(|fault| fault.0)).map_err(|e| fault(&e))?;
    std::io::stdout().write_all(&answer).map_err(|e| fault(&e))
}
