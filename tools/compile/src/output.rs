//! The result of compiling the sources: archives of PTX and machine code, the manifest.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use device::Precision;
use device::architecture::Architecture;
use device::archive::{Packed, pack};
use device::manifest::{Kernel, Manifest, Source};
use serde::Serialize;

use crate::child::Links;
use crate::files::Files;
use crate::ptx::{Entry, compiler_version, entries, renamed};
use crate::ptxas::{SPILLS_ALLOWED, Sm, resources, spill_fault};
use crate::sources::{HEADERS, architectures, find, reals, sha256, source_sha256, stem};
use crate::toolkit::{Toolkit, VERSION};
use crate::{Fault, SOURCES, child, read};

/// `--fmad=false` makes multiplications and additions round separately, as on the CPU, so that box
/// arithmetic is bit-identical. The architecture is added per source.
const FLAGS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// Number of threads: NVRTC and the assembler take about equally long, and run one after the other
/// for each source.
const THREADS: usize = 2;

/// Folder below the checkout's root in which files are assembled.
pub(crate) const SCRATCH: &str = "target/compile-kernels/ptx";

/// The highest compression level that takes seconds, not minutes.
const ZSTD_LEVEL: i32 = 19;

/// The compiled result of one source for one architecture and one element type.
struct One {
    source: Source,
    ptx: String,
    /// The machine code for each GPU.
    codes: Vec<(Sm, Vec<u8>)>,
}

/// Compiles all sources. Returns the manifest, and the archives of PTX and machine code.
///
/// # Errors
/// Lists all sources that do not compile and all kernels that spill.
pub fn compile(root: &Path, toolkit: &Toolkit) -> Result<Files, Fault> {
    let scratch = root.join(SCRATCH);
    fs::create_dir_all(&scratch).map_err(|e| Fault(format!("{}: {e}", scratch.display())))?;
    let links = Links::new(root, toolkit.folder())?;
    let compiler = Compiler { root, toolkit, links, scratch: &scratch };
    let mut todo = Vec::new();
    for path in find(root, SOURCES)? {
        let text = read(&root.join(&path))?;
        let fault = |e: &dyn Display| Fault(format!("{path}: {e}"));
        let list = architectures(&text).map_err(|e| fault(&e))?;
        for real in reals(&text).map_err(|e| fault(&e))? {
            todo.extend(list.iter().map(|architecture| (path.clone(), *architecture, real)));
        }
    }
    let todo = Mutex::new(todo.iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let next = || todo.lock().ok().and_then(|mut todo| todo.next());
                while let Some((path, architecture, real)) = next() {
                    let result = compiler.source(path, *architecture, *real);
                    if let Ok(mut done) = done.lock() {
                        done.push(result);
                    }
                }
            });
        }
    });
    let done = done.into_inner().map_err(|_| Fault("a compiling thread panicked".into()))?;
    let (mut compiled, mut faults) = (Vec::new(), Vec::new());
    for result in done {
        match result {
            Ok(one) => compiled.push(one),
            Err(fault) => faults.push(fault.0),
        }
    }
    if !faults.is_empty() {
        return Err(Fault(faults.join("\n")));
    }
    let key = |one: &One| {
        let Source { path, architecture, real, .. } = &one.source;
        (path.clone(), *architecture, real.name())
    };
    compiled.sort_by_key(key);
    gathered(compiled)
}

/// The output files of all compiled sources.
fn gathered(compiled: Vec<One>) -> Result<Files, Fault> {
    let mut files = Files::new();
    let mut manifest = Manifest {
        compiler: format!("NVRTC {VERSION}"),
        flags: FLAGS.map(String::from).to_vec(),
        sources: Vec::new(),
    };
    let mut archives: BTreeMap<String, Vec<Packed>> = BTreeMap::new();
    for One { source, ptx, codes } in compiled {
        let archive = archives.entry(source.archive()).or_default();
        let name = source.ptx.clone();
        archive.push(Packed { name, made_from: "-".into(), bytes: ptx.into_bytes() });
        for (gpu, bytes) in codes {
            let (name, made_from) = (source.machine_code(gpu.name()), source.ptx_sha256.clone());
            archive.push(Packed { name, made_from, bytes });
        }
        manifest.sources.push(source);
    }
    if let Some(fault) = duplicate(&manifest) {
        return Err(fault);
    }
    for (name, archive) in &archives {
        let fault = |e| Fault(format!("packing {name}: {e}"));
        let packed = zstd::bulk::compress(&pack(archive), ZSTD_LEVEL).map_err(fault)?;
        files.insert(name.clone(), packed);
    }
    files.insert(Manifest::FILE.into(), manifest_text(&manifest)?.into_bytes());
    Ok(files)
}

struct Compiler<'a> {
    root: &'a Path,
    toolkit: &'a Toolkit,
    links: Links,
    scratch: &'a Path,
}

impl Compiler<'_> {
    /// A path as seen by the child processes.
    fn linked(&self, path: &Path) -> PathBuf {
        let under = |from: &Path, name: &str| {
            path.strip_prefix(from).ok().map(|rest| Path::new(name).join(rest))
        };
        let toolkit = under(self.toolkit.folder(), Links::TOOLKIT);
        toolkit.or_else(|| under(self.root, Links::ROOT)).unwrap_or_else(|| path.to_path_buf())
    }

    /// Compiles one source: returns its manifest entry, PTX and machine code.
    fn source(
        &self,
        path: &str,
        architecture: Architecture,
        real: Precision,
    ) -> Result<One, Fault> {
        let text = read(&self.root.join(path))?;
        let name = stem(path);
        let own = self.root.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
        let mut options = vec![format!("--gpu-architecture={architecture}")];
        options.extend(FLAGS.map(String::from));
        options.extend(macros(real).iter().map(|name| format!("--define-macro={name}")));
        let folders = [own, self.root.join(HEADERS)].into_iter().chain(self.toolkit.includes());
        let folders = folders.map(|folder| self.linked(&folder));
        options.extend(folders.map(|folder| format!("--include-path={}", folder.display())));
        let nvrtc = self.linked(&self.toolkit.nvrtc());
        // Pass only the file name, since the compiler includes it in symbols.
        let compiled = child::compile(&self.links, &nvrtc, &format!("{name}.cu"), &text, &options)?;
        if !compiled.log.is_empty() {
            eprintln!("{path}: {}", compiled.log);
        }
        let ptx = renamed(&compiled.ptx, real)?;
        if compiler_version(&ptx) != Some(VERSION) {
            let found = compiler_version(&ptx).unwrap_or("unknown");
            return Err(Fault(format!("the toolkit's version is {found}; it must be {VERSION}")));
        }
        if let Some(fault) = foreign_path(path, &ptx, &options) {
            return Err(fault);
        }
        let read = |path: &str| fs::read_to_string(self.root.join(path)).ok();
        let sha256_of_source = source_sha256(path, &read)
            .ok_or_else(|| Fault(format!("{path}: was removed while it was compiled")))?;
        let file = format!("{architecture}/{}.ptx", file_name(name, real));
        let source = Source {
            path: path.to_string(),
            architecture,
            real,
            sha256: sha256_of_source,
            kernels: self.kernels(path, &file, &ptx, architecture)?,
            ptx: file,
            ptx_sha256: sha256(ptx.as_bytes()),
        };
        let code = |gpu| {
            let cubin = cubin(self.scratch, &source.ptx, gpu);
            let read = fs::read(&cubin);
            Ok((gpu, read.map_err(|e| Fault(format!("{}: {e}", cubin.display())))?))
        };
        let codes = Sm::running(architecture).map(code).collect::<Result<_, Fault>>()?;
        Ok(One { source, ptx, codes })
    }

    /// The kernels of a PTX file, with their resources on each GPU that runs the file.
    fn kernels(
        &self,
        path: &str,
        file: &str,
        ptx: &str,
        architecture: Architecture,
    ) -> Result<Vec<Kernel>, Fault> {
        let scratch = self.scratch.join(file);
        let fault = |e| Fault(format!("{}: {e}", scratch.display()));
        fs::create_dir_all(scratch.parent().unwrap_or(self.scratch)).map_err(fault)?;
        fs::write(&scratch, ptx).map_err(fault)?;
        let mut reports = Vec::new();
        for gpu in Sm::running(architecture) {
            let cubin = cubin(self.scratch, file, gpu);
            let report = resources(&self.toolkit.ptxas(), &scratch, gpu.name(), &cubin)?;
            reports.push((gpu.name(), report));
        }
        let (mut kernels, mut faults) = (Vec::new(), Vec::new());
        for Entry { name, parameter_bytes } in entries(ptx)? {
            let mut on = BTreeMap::new();
            for (gpu, report) in &reports {
                let Some(taken) = report.get(&name) else {
                    return Err(Fault(format!("{path}: ptxas reported no kernel `{name}`")));
                };
                let spills = spill_fault(&name, gpu, taken, SPILLS_ALLOWED);
                faults.extend(spills.map(|fault| format!("{path}: {fault}")));
                on.insert(gpu.to_string(), *taken);
            }
            kernels.push(Kernel { name, parameter_bytes, on });
        }
        if faults.is_empty() { Ok(kernels) } else { Err(Fault(faults.join("\n"))) }
    }
}

/// Path, in the scratch folder, of the cubin of a PTX file for a GPU.
pub(crate) fn cubin(scratch: &Path, ptx: &str, gpu: Sm) -> PathBuf {
    scratch.join(ptx).with_extension(format!("{}.cubin", gpu.name()))
}

/// The compiler options with the macros by which platform.cuh defines `real`.
fn macros(real: Precision) -> &'static [&'static str] {
    match real {
        Precision::Fp16 => &[],
        Precision::Fp32 => &["REAL_IS_FLOAT"],
        Precision::Tf32 => &["REAL_IS_FLOAT", "PRODUCTS_IN_TF32"],
    }
}

/// The name of a source's PTX: the source's name, followed by the type of `real`.
fn file_name(source: &str, real: Precision) -> String {
    match real {
        Precision::Fp16 => source.to_string(),
        real => format!("{source}_{}", real.name()),
    }
}

/// Reports a local path in the PTX, which would differ on other machines.
fn foreign_path(path: &str, ptx: &str, options: &[String]) -> Option<Fault> {
    let folders = options.iter().filter_map(|option| option.strip_prefix("--include-path="));
    let found = folders.into_iter().find(|folder| ptx.contains(folder))?;
    Some(Fault(format!("{path}: its PTX contains {found}; remove __FILE__ and assert")))
}

/// Reports a kernel that two sources define, or that one source defines for two element types.
fn duplicate(manifest: &Manifest) -> Option<Fault> {
    let mut first: BTreeMap<&str, (&str, Precision)> = BTreeMap::new();
    for source in &manifest.sources {
        for kernel in &source.kernels {
            let (name, path) = (&kernel.name, &source.path);
            let own = (path.as_str(), source.real);
            if let Some((other, _)) = first.insert(name, own).filter(|other| *other != own) {
                return Some(Fault(format!(
                    "{path}: {other} has a kernel `{name}` too; rename it"
                )));
            }
        }
    }
    None
}

/// The manifest as JSON with one line per kernel, so that a diff shows which kernels changed.
///
/// # Errors
/// JSON serialization fails; no case is known.
pub fn manifest_text(manifest: &Manifest) -> Result<String, Fault> {
    let mut text = format!(
        "{{\n  \"compiler\": {},\n  \"flags\": {},\n  \"sources\": [",
        json(&manifest.compiler)?,
        json(&manifest.flags)?
    );
    for (i, source) in manifest.sources.iter().enumerate() {
        text.push_str(if i == 0 { "\n    {" } else { ",\n    {" });
        let architecture = source.architecture.to_string();
        let real = source.real.name().to_string();
        let fields = [
            ("path", &source.path),
            ("architecture", &architecture),
            ("real", &real),
            ("sha256", &source.sha256),
            ("ptx", &source.ptx),
            ("ptx_sha256", &source.ptx_sha256),
        ];
        let is_said = |name: &str| name != "real" || source.real != Precision::Fp16;
        for (name, value) in fields.into_iter().filter(|(name, _)| is_said(name)) {
            text.push_str(&format!("\n      \"{name}\": {},", json(value)?));
        }
        let kernels = source.kernels.iter().map(|k| Ok(format!("\n        {}", json(k)?)));
        let kernels = kernels.collect::<Result<Vec<_>, Fault>>()?.join(",");
        text.push_str(&format!("\n      \"kernels\": [{kernels}\n      ]\n    }}"));
    }
    text.push_str("\n  ]\n}\n");
    Ok(text)
}

fn json(value: &impl Serialize) -> Result<String, Fault> {
    serde_json::to_string(value).map_err(|e| Fault(format!("the manifest: {e}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_round_trips() {
        let kernel = |name: &str| Kernel {
            name: name.into(),
            parameter_bytes: vec![8, 4],
            on: [("sm_80".to_string(), Default::default())].into(),
        };
        let source = |path: &str, kernels| Source {
            path: path.into(),
            architecture: Architecture::COMPUTE_80,
            real: if path == "a" { Precision::Fp16 } else { Precision::Tf32 },
            sha256: "1".into(),
            ptx: "a.ptx".into(),
            ptx_sha256: "2".into(),
            kernels,
        };
        let sources = vec![source("a", vec![kernel("k"), kernel("l")]), source("b", vec![])];
        let mut manifest = Manifest { compiler: "c".into(), flags: vec!["-x".into()], sources };
        assert_eq!(Manifest::parse(&manifest_text(&manifest).unwrap()).unwrap(), manifest);
        assert!(duplicate(&manifest).is_none());
        manifest.sources[1].kernels.push(kernel("k"));
        assert_eq!(duplicate(&manifest).unwrap().0, "b: a has a kernel `k` too; rename it");
        manifest.sources[1].path = "a".into();
        manifest.sources[1].real = Precision::Fp16;
        manifest.sources[1].architecture = Architecture::COMPUTE_90A;
        assert!(duplicate(&manifest).is_none(), "one source for two architectures");
    }
}
