//! What the CUDA sources were compiled to: the manifest of `ptx/`.
//!
//! The tool `compile-kernels` writes it, the CUDA device checks launches against it, and a test
//! holds it to the sources.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

/// What is wrong with a manifest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ManifestError {
    /// The file.
    pub path: String,
    /// Why it is no manifest.
    pub reason: String,
}

/// Everything in `ptx/`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name and version of the compiler.
    pub compiler: String,
    /// Its flags, paths left out.
    pub flags: Vec<String>,
    /// Compiled files, by path.
    pub sources: Vec<Source>,
}

/// One CUDA source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// From the checkout's root, with `/`.
    pub path: String,
    /// Hash of the source and of all that it includes.
    pub sha256: String,
    /// The file in `ptx/`.
    pub ptx: String,
    /// Hash of that file.
    pub ptx_sha256: String,
    /// Its kernels, by name.
    pub kernels: Vec<Kernel>,
}

/// One kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kernel {
    /// The `extern "C"` name.
    pub name: String,
    /// Sizes of the parameters, in order.
    pub parameter_bytes: Vec<usize>,
    /// What it takes on A100.
    pub sm_80: Resources,
    /// What it takes on H100 and H200.
    pub sm_90a: Resources,
}

/// What a kernel takes of a GPU, as the assembler says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Registers of a thread.
    pub registers: u32,
    /// Static shared memory of a block.
    pub shared_bytes: u32,
    /// Stack of a thread.
    pub stack_bytes: u32,
    /// Registers stored to memory for want of more, in bytes of code.
    pub spill_store_bytes: u32,
    /// Registers loaded back.
    pub spill_load_bytes: u32,
}

impl Manifest {
    /// The name of its file in `ptx/`.
    pub const FILE: &str = "manifest.json";

    /// Reads a manifest's text.
    ///
    /// # Errors
    /// Text that is no manifest.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        serde_json::from_str(text).map_err(|e| error(Self::FILE, &e))
    }

    /// Reads a manifest's file.
    ///
    /// # Errors
    /// A file that cannot be read, or is no manifest.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| error(&name, &e))?;
        serde_json::from_str(&text).map_err(|e| error(&name, &e))
    }

    /// A kernel and the source that holds it.
    pub fn kernel(&self, name: &str) -> Option<(&Source, &Kernel)> {
        self.sources.iter().find_map(|source| {
            let kernel = source.kernels.iter().find(|kernel| kernel.name == name)?;
            Some((source, kernel))
        })
    }
}

fn error(path: &str, reason: &dyn std::fmt::Display) -> ManifestError {
    ManifestError { path: path.into(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_is_found_with_its_source() {
        let zeros = r#"{"registers": 8, "shared_bytes": 0, "stack_bytes": 0,
                        "spill_store_bytes": 0, "spill_load_bytes": 0}"#;
        let text = format!(
            r#"{{"compiler": "c", "flags": [], "sources": [{{"path": "a.cu", "sha256": "1",
            "ptx": "a.ptx", "ptx_sha256": "2", "kernels": [{{"name": "k",
            "parameter_bytes": [8, 4], "sm_80": {zeros}, "sm_90a": {zeros}}}]}}]}}"#
        );
        let manifest = Manifest::parse(&text).unwrap();
        let (source, kernel) = manifest.kernel("k").unwrap();
        assert_eq!(
            (source.ptx.as_str(), kernel.parameter_bytes.as_slice()),
            ("a.ptx", &[8, 4][..])
        );
        assert_eq!(kernel.sm_80.registers, 8);
        assert_eq!(manifest.kernel("l"), None);
    }

    #[test]
    fn what_is_no_manifest_is_refused_with_its_name() {
        let fault = Manifest::parse("{}").unwrap_err();
        assert!(fault.to_string().starts_with("manifest.json: missing field"), "{fault}");
        let fault = Manifest::load(Path::new("nowhere/manifest.json")).unwrap_err();
        assert!(fault.to_string().starts_with("nowhere/manifest.json: "), "{fault}");
    }
}
