//! The compiled CUDA sources: archives of PTX and machine code, and their manifest, in their folder
//! and embedded in a program.
//!
//! The tool `compile-kernels` writes the manifest, the CUDA device checks launches against it, and
//! a test compares it with the sources. A source may have several entries, one per target
//! architecture; a GPU uses the entry with the newest architecture that it can run.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::OnceLock;

use ruzstd::decoding::StreamingDecoder;
use serde::{Deserialize, Serialize};

use crate::Precision;
use crate::architecture::{Architecture, Capability};
use crate::archive::{Packed, unpack};

/// Why a manifest is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {reason}")]
pub struct ManifestError {
    /// The file.
    pub path: String,
    /// Why the file is not a valid manifest.
    pub reason: String,
}

/// The compiled files in `ptx/`, and how they were compiled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Name and version of the compiler.
    pub compiler: String,
    /// Its flags, without paths.
    pub flags: Vec<String>,
    /// Compiled files, by path and architecture.
    pub sources: Vec<Source>,
}

/// One CUDA source, compiled for one architecture and one element type.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Path from the checkout's root, with `/`.
    pub path: String,
    /// Its target architecture.
    pub architecture: Architecture,
    /// The precision of the CUDA type `real`; absent in the file for fp16.
    #[serde(default, skip_serializing_if = "is_fp16")]
    pub real: Precision,
    /// Hash of the source and of all files that it includes.
    pub sha256: String,
    /// The PTX's name in its archive: `compute_80/sum.ptx` in `sum.zst`.
    pub ptx: String,
    /// Hash of the PTX.
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
    /// Its resources on each GPU target that it was assembled for: `sm_80` (A100), `sm_90a` (H100,
    /// H200).
    pub on: BTreeMap<String, Resources>,
}

/// A kernel's resources, from the assembler.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block.
    pub shared_bytes: u32,
    /// Stack per thread.
    pub stack_bytes: u32,
    /// Bytes of spill stores, as reported by ptxas.
    pub spill_store_bytes: u32,
    /// Spill loads.
    pub spill_load_bytes: u32,
}

fn is_fp16(real: &Precision) -> bool {
    *real == Precision::Fp16
}

impl Manifest {
    /// The name of its file in `ptx/`.
    pub const FILE: &str = "manifest.json";

    /// Parses a manifest.
    ///
    /// # Errors
    /// Text that is not a manifest.
    pub fn parse(text: &str) -> Result<Self, ManifestError> {
        serde_json::from_str(text).map_err(|e| error(Self::FILE, &e))
    }

    /// Reads and parses a manifest's file.
    ///
    /// # Errors
    /// A file that cannot be read, or is not a manifest.
    pub fn load(path: &Path) -> Result<Self, ManifestError> {
        let name = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|e| error(&name, &e))?;
        serde_json::from_str(&text).map_err(|e| error(&name, &e))
    }

    /// A kernel and its source, as compiled for the newest architecture that a GPU of this
    /// capability runs.
    pub fn kernel(&self, name: &str, gpu: Capability) -> Option<(&Source, &Kernel)> {
        let fitting = self.sources.iter().filter(|source| source.architecture.runs_on(gpu));
        let holding = fitting.filter_map(|source| {
            let kernel = source.kernels.iter().find(|kernel| kernel.name == name)?;
            Some((source, kernel))
        });
        holding.max_by_key(|(source, _)| source.architecture)
    }

    /// The sources whose kernels a GPU of this capability uses.
    pub fn for_gpu(&self, gpu: Capability) -> impl Iterator<Item = &Source> {
        self.sources.iter().filter(move |source| {
            let best = |kernel: &Kernel| self.kernel(&kernel.name, gpu);
            let mut best = source.kernels.iter().filter_map(best);
            best.any(|(best, _)| std::ptr::eq(best, *source))
        })
    }
}

impl Source {
    /// The name of the archive that holds its PTX and its machine code: `sum.zst`.
    pub fn archive(&self) -> String {
        let name = self.ptx.rsplit('/').next().unwrap_or(&self.ptx);
        name.replace(".ptx", ".zst")
    }

    /// The name of its machine code for a GPU (`sm_80`, `sm_90a`) in that archive.
    pub fn machine_code(&self, gpu: &str) -> String {
        format!("{}.{gpu}.cubin", self.ptx.strip_suffix(".ptx").unwrap_or(&self.ptx))
    }
}

/// Compiled kernels with their manifest, as embedded in a binary.
#[derive(Debug)]
pub struct Compiled {
    manifest: Manifest,
    archives: BTreeMap<&'static str, Archive>,
}

/// The files of one source, unpacked at first use.
#[derive(Debug)]
struct Archive {
    packed: &'static [u8],
    files: OnceLock<BTreeMap<String, Packed>>,
}

impl Compiled {
    /// Takes the files of `ptx/` by name: the manifest and the archives.
    ///
    /// # Errors
    /// A missing or invalid manifest.
    pub fn new(
        files: impl Iterator<Item = (&'static str, &'static [u8])>,
    ) -> Result<Self, ManifestError> {
        let archive = |packed| Archive { packed, files: OnceLock::new() };
        let mut archives: BTreeMap<_, _> =
            files.map(|(name, packed)| (name, archive(packed))).collect();
        let manifest = archives.remove(Manifest::FILE).map_or(&[][..], |file| file.packed);
        Ok(Self { manifest: Manifest::parse(&String::from_utf8_lossy(manifest))?, archives })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    fn file(&self, source: &Source, name: &str) -> Option<&Packed> {
        let archive = self.archives.get(source.archive().as_str())?;
        let files = archive.files.get_or_init(|| {
            files(archive.packed).into_iter().map(|file| (file.name.clone(), file)).collect()
        });
        files.get(name)
    }

    /// The PTX of a source of this manifest.
    ///
    /// Panics if the source is from a different manifest, or its archive lacks the PTX; a test
    /// checks all sources.
    pub fn ptx(&self, source: &Source) -> &str {
        let found = self.file(source, &source.ptx);
        let text = found.and_then(|file| std::str::from_utf8(&file.bytes).ok());
        text.unwrap_or_else(|| panic!("{} is of another manifest", source.ptx))
    }

    /// The machine code of a source for a GPU of this capability, as the driver loads it. `None` if
    /// it is missing, or was assembled from different PTX.
    pub fn machine_code(&self, source: &Source, gpu: Capability) -> Option<&[u8]> {
        // Unlike PTX, machine code runs on later GPUs only if they have the same major version.
        let serves = |sm: &str| {
            let of = sm.replace("sm_", "compute_").parse::<Architecture>();
            of.is_ok_and(|of| of.runs_on(gpu) && of.capability.major == gpu.major)
        };
        let sm = SMS.iter().find(|sm| serves(sm))?;
        let code = self.file(source, &source.machine_code(sm))?;
        (code.made_from == source.ptx_sha256).then_some(&code.bytes)
    }
}

/// GPU targets that machine code is assembled for.
const SMS: [&str; 2] = ["sm_80", "sm_90a"];

/// The files of a compressed archive; empty if it is damaged.
pub fn files(compressed: &[u8]) -> Vec<Packed> {
    let mut all = Vec::new();
    let read = StreamingDecoder::new(compressed).map(|mut archive| archive.read_to_end(&mut all));
    read.is_ok_and(|read| read.is_ok()).then(|| unpack(&all)).flatten().unwrap_or_default()
}

fn error(path: &str, reason: &dyn std::fmt::Display) -> ManifestError {
    ManifestError { path: path.into(), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, architecture: &str, kernels: &[&str]) -> String {
        let kernel = |name: &&str| {
            format!(
                r#"{{"name": "{name}", "parameter_bytes": [8, 4], "on": {{"sm_90a": {{
                "registers": 8, "shared_bytes": 0, "stack_bytes": 0, "spill_store_bytes": 0,
                "spill_load_bytes": 0}}}}}}"#
            )
        };
        let kernels = kernels.iter().map(kernel).collect::<Vec<_>>().join(",");
        format!(
            r#"{{"path": "{path}", "architecture": "{architecture}", "sha256": "1",
            "ptx": "{architecture}/{path}", "ptx_sha256": "2", "kernels": [{kernels}]}}"#
        )
    }

    fn manifest(sources: &[String]) -> String {
        let sources = sources.join(",");
        format!(r#"{{"compiler": "c", "flags": [], "sources": [{sources}]}}"#)
    }

    #[test]
    fn gpu_gets_newest_supported_architecture() {
        let sources = [source("a", "compute_80", &["k", "l"]), source("a", "compute_90a", &["k"])];
        let manifest = Manifest::parse(&manifest(&sources)).unwrap();
        let found = |kernel: &str, major, minor| {
            let found = manifest.kernel(kernel, Capability { major, minor });
            found.map(|(source, _)| source.ptx.as_str())
        };
        assert_eq!(found("k", 8, 0), Some("compute_80/a"));
        assert_eq!(found("k", 9, 0), Some("compute_90a/a"));
        assert_eq!(found("l", 9, 0), Some("compute_80/a"));
        assert_eq!(found("k", 10, 0), Some("compute_80/a"), "a specific one runs nowhere else");
        assert_eq!(found("k", 7, 0), None);
        assert_eq!(found("m", 9, 0), None);
        let taken = |major| {
            let sources = manifest.for_gpu(Capability { major, minor: 0 });
            sources.map(|source| source.ptx.as_str()).collect::<Vec<_>>()
        };
        assert_eq!(taken(8), ["compute_80/a"]);
        assert_eq!(taken(9), ["compute_80/a", "compute_90a/a"], "`l` is in the first alone");
    }

    #[test]
    fn invalid_manifest_is_rejected_with_its_name() {
        let fault = Manifest::parse("{}").unwrap_err();
        assert!(fault.to_string().starts_with("manifest.json: missing field"), "{fault}");
        let fault = Manifest::load(Path::new("nowhere/manifest.json")).unwrap_err();
        assert!(fault.to_string().starts_with("nowhere/manifest.json: "), "{fault}");
        let text = manifest(&[source("a", "sm_80", &[])]);
        let fault = Manifest::parse(&text).unwrap_err().to_string();
        assert!(fault.contains("`sm_80` is not an architecture"), "{fault}");
    }
}
