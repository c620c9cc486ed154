//! The pinned compiler: NVIDIA's wheels from PyPI, unpacked into one folder.

use std::fs;
use std::io::Error;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Fault;

/// Version of the toolkit. The oldest supported driver (535, CUDA 12.2) can load its PTX.
pub const VERSION: &str = "12.2.140";

/// Version of the disassembler, which also reads the output of older assemblers.
pub const NVDISASM_VERSION: &str = "13.3.73";

const WHEELS: [(&str, &str); 4] = [
    ("nvidia-cuda-nvrtc-cu12", VERSION),
    ("nvidia-cuda-runtime-cu12", VERSION),
    ("nvidia-cuda-nvcc-cu12", VERSION),
    ("nvidia-cuda-nvdisasm", NVDISASM_VERSION),
];

/// Paths of the parts of the toolkit.
#[derive(Debug)]
pub struct Toolkit {
    folder: PathBuf,
}

impl Toolkit {
    /// Opens a folder of unpacked wheels.
    ///
    /// # Errors
    /// The folder lacks a part of the toolkit.
    pub fn open(folder: &Path) -> Result<Self, Fault> {
        // Use an absolute path: NVRTC does not resolve paths, and dlopen searches for names without
        // a slash.
        let folder = fs::canonicalize(folder)
            .map_err(|e| Fault(format!("{}: {e}; use --fetch", folder.display())))?;
        let toolkit = Self { folder: folder.join("nvidia") };
        let tools = [toolkit.nvrtc(), toolkit.ptxas(), toolkit.nvdisasm()];
        for part in tools.iter().chain(&toolkit.includes()) {
            if !part.exists() {
                let part = part.display();
                return Err(Fault(format!(
                    "{part} is missing; unpack {} there",
                    wheels().join(", ")
                )));
            }
        }
        Ok(toolkit)
    }

    /// The toolkit in `target/`, downloaded if missing.
    ///
    /// # Errors
    /// There is no python3 with pip, or no network.
    pub fn fetch(root: &Path) -> Result<Self, Fault> {
        let folder = root.join("target").join(format!("cuda-{VERSION}"));
        let complete = folder.join("complete");
        // This file lists the unpacked wheels; if it is missing or differs, the wheels are
        // downloaded again.
        if fs::read_to_string(&complete).ok() != Some(wheels().join("\n")) {
            let wheels_folder = folder.join("wheels");
            let mut pip = python(&["-m", "pip", "download", "--no-deps", "--quiet"]);
            pip.args(["--disable-pip-version-check", "--only-binary=:all:", "--dest"]);
            run(pip.arg(&wheels_folder).args(wheels()))?;
            for wheel in files(&wheels_folder)? {
                run(python(&["-m", "zipfile", "-e"]).arg(wheel).arg(&folder))?;
            }
            // Unpacking loses permission bits: make the programs executable.
            let toolkit = Self::open(&folder)?;
            let program = |path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
            program(toolkit.ptxas())
                .and_then(|()| program(toolkit.nvdisasm()))
                .and_then(|()| fs::remove_dir_all(wheels_folder))
                .and_then(|()| fs::write(complete, wheels().join("\n")))
                .map_err(|e| Fault(format!("{}: {e}", folder.display())))?;
        }
        Self::open(&folder)
    }

    /// The folder of the unpacked wheels.
    pub(crate) fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Folder of the compiler's libraries.
    pub fn nvrtc(&self) -> PathBuf {
        self.folder.join("cuda_nvrtc/lib")
    }

    /// Folders of the toolkit's headers.
    pub fn includes(&self) -> [PathBuf; 2] {
        ["cuda_runtime/include", "cuda_nvcc/include"].map(|part| self.folder.join(part))
    }

    /// The assembler.
    pub fn ptxas(&self) -> PathBuf {
        self.folder.join("cuda_nvcc/bin/ptxas")
    }

    /// The disassembler.
    pub(crate) fn nvdisasm(&self) -> PathBuf {
        self.folder.join("cu13/bin/nvdisasm")
    }
}

fn wheels() -> Vec<String> {
    WHEELS.iter().map(|(name, version)| format!("{name}=={version}")).collect()
}

fn python(arguments: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.args(arguments);
    command
}

fn run(command: &mut Command) -> Result<(), Fault> {
    let status = command.status().map_err(|e| Fault(format!("{command:?}: {e}")))?;
    if status.success() { Ok(()) } else { Err(Fault(format!("{command:?}: {status}"))) }
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, Fault> {
    let list =
        || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_, Error>>();
    list().map_err(|e| Fault(format!("{}: {e}", folder.display())))
}
