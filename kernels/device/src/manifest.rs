//! The compiled CUDA sources: PTX and its manifest, in their folder and embedded in a program.
//!
//! The tool `compile-kernels` writes it, the CUDA device checks launches against it, and a test
//! compares it with the sources. A source may have several entries, one per target architecture; a
//! GPU gets the newest that it can run.

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
    /// Why it is not a manifest.
    pub reason: String,
}

/// Everything in `ptx/`.
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
    /// The precision of `real`; absent for fp16.
    #[serde(default, skip_serializing_if = "is_fp16")]
    pub real: Precision,
    /// Hash of the source and of everything that it includes.
    pub sha256: String,
    /// The file, relative to the manifest: `compute_80/sum.ptx`.
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
    /// Its resources on each GPU that was assembled for: `sm_80` (A100), `sm_90a` (H100, H200).
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
    /// Spill stores, in bytes of code.
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

/// Compiled kernels with their manifest, as embedded in a binary.
#[derive(Debug)]
pub struct Compiled {
    manifest: Manifest,
    ptx: &'static [u8],
    /// The PTX by name, unpacked when it is first asked for.
    texts: OnceLock<BTreeMap<String, String>>,
    machine: Vec<Machine>,
}

/// Machine code for one GPU, unpacked when it is first asked for.
#[derive(Debug)]
struct Machine {
    runs_on: Architecture,
    packed: &'static [u8],
    codes: OnceLock<BTreeMap<String, Packed>>,
}

impl Compiled {
    /// From the manifest's text and archives: one of all PTX files, and one of machine code for
    /// each GPU (`sm_80`, `sm_90a`).
    ///
    /// # Errors
    /// Text that is not a manifest, or a GPU that has no such name.
    pub fn new(
        manifest: &str,
        ptx: &'static [u8],
        machine: &[(&str, &'static [u8])],
    ) -> Result<Self, ManifestError> {
        let machine = machine.iter().map(|(gpu, packed)| {
            let runs_on = gpu.replace("sm_", "compute_").parse();
            let runs_on = runs_on.map_err(|e| error(gpu, &e))?;
            Ok(Machine { runs_on, packed, codes: OnceLock::new() })
        });
        Ok(Self {
            manifest: Manifest::parse(manifest)?,
            ptx,
            texts: OnceLock::new(),
            machine: machine.collect::<Result<_, _>>()?,
        })
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The PTX of a source of this manifest.
    ///
    /// Panics if the source belongs to another, or the archive lacks it: a test looks at each.
    pub fn ptx(&self, source: &Source) -> &str {
        let texts = self.texts.get_or_init(|| {
            let text = |file: Packed| Some((file.name, String::from_utf8(file.bytes).ok()?));
            files(self.ptx).into_iter().filter_map(text).collect()
        });
        let found = texts.get(&source.ptx);
        found.unwrap_or_else(|| panic!("{} is of another manifest", source.ptx))
    }

    /// The machine code of a source for a GPU of this capability, as it is loaded. None if it is
    /// not there, or was assembled from another PTX.
    pub fn machine_code(&self, source: &Source, gpu: Capability) -> Option<&[u8]> {
        let machine = self.machine.iter().find(|machine| machine.serves(gpu))?;
        let codes = machine.codes.get_or_init(|| {
            files(machine.packed).into_iter().map(|file| (file.name.clone(), file)).collect()
        });
        let code = codes.get(&source.ptx).filter(|code| code.made_from == source.ptx_sha256)?;
        Some(&code.bytes)
    }
}

impl Machine {
    /// Machine code runs on later GPUs of the same major version, unlike PTX.
    fn serves(&self, gpu: Capability) -> bool {
        self.runs_on.runs_on(gpu) && self.runs_on.capability.major == gpu.major
    }
}

/// The files of a compressed archive; none if it is broken.
fn files(compressed: &[u8]) -> Vec<Packed> {
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
    fn a_gpu_gets_the_latest_architecture_that_it_runs() {
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
    fn what_is_no_manifest_is_refused_with_its_name() {
        let fault = Manifest::parse("{}").unwrap_err();
        assert!(fault.to_string().starts_with("manifest.json: missing field"), "{fault}");
        let fault = Manifest::load(Path::new("nowhere/manifest.json")).unwrap_err();
        assert!(fault.to_string().starts_with("nowhere/manifest.json: "), "{fault}");
        let text = manifest(&[source("a", "sm_80", &[])]);
        let fault = Manifest::parse(&text).unwrap_err().to_string();
        assert!(fault.contains("`sm_80` is not an architecture"), "{fault}");
    }
}
