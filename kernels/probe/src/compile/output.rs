//! The files of `kernels/probe/ptx`: made by the compiler, and held to what the assembler says.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use compile::Fault;
use compile::nvrtc::Nvrtc;
use compile::output::{Files, manifest_text};
use compile::ptx::{compiler_version, entries};
use compile::ptxas::{parse, spill_fault};
use compile::sources::{HEADERS, sha256, source_sha256, stem};
use compile::toolkit::{Toolkit, VERSION};
use kernels::device::manifest::{Kernel, Manifest, Resources, Source};
use probe::compiled::{CUDA_FOLDER, for_hopper_alone};

/// Where the compiled variants lie, from the checkout's root.
pub(crate) const FOLDER: &str = "kernels/probe/ptx";

/// As for the kernels of training; the architecture is that of the source.
const FLAGS: [&str; 2] = ["--std=c++17", "--fmad=false"];

/// What the assembler says of wgmma that it had to serialise, for want of a fence or because sums
/// are touched while a product runs: such code would measure nothing. The notes' numbers (C7508,
/// C7510, C7511, C7514, C7515 and others) tell the reasons apart, their words are the same.
const SERIALISED: &str = "wgmma.mma_async instructions are serialized";

/// Compiles all sources, on two threads.
///
/// # Errors
/// All sources that do not compile, and kernels that must not be as they are.
pub(crate) fn compile(root: &Path, toolkit: &Toolkit) -> Result<Files, Fault> {
    let at = |path: &Path, e: std::io::Error| Fault(format!("{}: {e}", path.display()));
    let scratch = root.join("target/compile-probe");
    fs::create_dir_all(&scratch).map_err(|e| at(&scratch, e))?;
    let nvrtc = Nvrtc::open(&toolkit.nvrtc())?;
    let compiler = Compiler { root, toolkit, nvrtc, scratch };
    let folder = root.join(CUDA_FOLDER);
    let mut paths = Vec::new();
    for entry in fs::read_dir(&folder).map_err(|e| at(&folder, e))? {
        let name = entry.map_err(|e| at(&folder, e))?.file_name().to_string_lossy().into_owned();
        if name.ends_with(".cu") {
            paths.push(format!("{CUDA_FOLDER}/{name}"));
        }
    }
    paths.sort();
    let todo = Mutex::new(paths.iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let next = || todo.lock().ok().and_then(|mut todo| todo.next());
                while let Some(path) = next() {
                    let result = compiler.source(path);
                    if let Ok(mut done) = done.lock() {
                        done.push(result);
                    }
                }
            });
        }
    });
    let done = done.into_inner().map_err(|_| Fault("a compiling thread panicked".into()))?;
    files(done)
}

/// The files of what was compiled, or all that is wrong with it.
fn files(done: Vec<Result<(Source, String), Fault>>) -> Result<Files, Fault> {
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
    compiled.sort_by(|a, b| a.0.path.cmp(&b.0.path));
    let mut files = Files::new();
    let compiler = format!("NVRTC {VERSION}");
    let flags = FLAGS.map(String::from).to_vec();
    let mut manifest = Manifest { compiler, flags, sources: Vec::new() };
    for (source, ptx) in compiled {
        files.insert(source.ptx.clone(), ptx);
        manifest.sources.push(source);
    }
    files.insert(Manifest::FILE.into(), manifest_text(&manifest)?);
    Ok(files)
}

struct Compiler<'a> {
    root: &'a Path,
    toolkit: &'a Toolkit,
    nvrtc: Nvrtc,
    scratch: PathBuf,
}

impl Compiler<'_> {
    /// One source: its entry in the manifest, and its PTX.
    fn source(&self, path: &str) -> Result<(Source, String), Fault> {
        let fault = |e: std::io::Error| Fault(format!("{path}: {e}"));
        let text = fs::read_to_string(self.root.join(path)).map_err(fault)?;
        let name = stem(path);
        let hopper = for_hopper_alone(path);
        let architecture = if hopper { "compute_90a" } else { "compute_80" };
        let mut options: Vec<String> = FLAGS.map(String::from).to_vec();
        options.push(format!("--gpu-architecture={architecture}"));
        let ours = [CUDA_FOLDER, HEADERS].map(|folder| self.root.join(folder));
        let folders = ours.into_iter().chain(self.toolkit.includes());
        options.extend(folders.map(|folder| format!("--include-path={}", folder.display())));
        let compiled = self.nvrtc.compile(&format!("{name}.cu"), &text, &options)?;
        if !compiled.log.is_empty() {
            eprintln!("{path}: {}", compiled.log);
        }
        let ptx = compiled.ptx;
        if compiler_version(&ptx) != Some(VERSION) {
            let found = compiler_version(&ptx).unwrap_or("unknown");
            return Err(Fault(format!("the toolkit's version is {found}; it must be {VERSION}")));
        }
        let read = |path: &str| fs::read_to_string(self.root.join(path)).ok();
        let sha256_of_source = source_sha256(path, &read)
            .ok_or_else(|| Fault(format!("{path}: vanished while it was compiled")))?;
        let source = Source {
            path: path.to_string(),
            sha256: sha256_of_source,
            ptx: format!("{name}.ptx"),
            ptx_sha256: sha256(ptx.as_bytes()),
            kernels: self.kernels(path, &ptx, hopper)?,
        };
        Ok((source, ptx))
    }

    /// The kernels of a source with what they take on each architecture that they are for.
    fn kernels(&self, path: &str, ptx: &str, hopper: bool) -> Result<Vec<Kernel>, Fault> {
        let file = self.scratch.join(format!("{}.ptx", stem(path)));
        fs::write(&file, ptx).map_err(|e| Fault(format!("{}: {e}", file.display())))?;
        let sm_80 = if hopper { BTreeMap::new() } else { self.assemble(&file, "sm_80")? };
        let sm_90a = self.assemble(&file, "sm_90a")?;
        let mut kernels = Vec::new();
        for entry in entries(ptx)? {
            let on = |reports: &BTreeMap<String, Resources>| reports.get(&entry.name).copied();
            let on_80 = on(&sm_80).unwrap_or_default();
            let Some(on_90a) = on(&sm_90a) else {
                return Err(Fault(format!("{path}: no report on kernel `{}`", entry.name)));
            };
            for (target, taken) in [("sm_80", &on_80), ("sm_90a", &on_90a)] {
                if let Some(fault) = spill_fault(&entry.name, target, taken, &[]) {
                    return Err(Fault(format!("{path}: {fault}")));
                }
            }
            let (name, parameter_bytes) = (entry.name, entry.parameter_bytes);
            kernels.push(Kernel { name, parameter_bytes, sm_80: on_80, sm_90a: on_90a });
        }
        Ok(kernels)
    }

    /// Assembles a PTX file into `<name>.<target>.cubin` beside it; what each kernel takes.
    fn assemble(&self, ptx: &Path, target: &str) -> Result<BTreeMap<String, Resources>, Fault> {
        let ptxas = self.toolkit.ptxas();
        let mut command = Command::new(&ptxas);
        command.args(["-v", &format!("-arch={target}"), "-o"]);
        let output = command.arg(ptx.with_extension(format!("{target}.cubin"))).arg(ptx).output();
        let output = output.map_err(|e| Fault(format!("{}: {e}", ptxas.display())))?;
        let report = String::from_utf8_lossy(&output.stderr);
        if !output.status.success() {
            return Err(Fault(format!("{}: {}\n{report}", ptx.display(), output.status)));
        }
        match serialised(&report) {
            Some(line) => Err(Fault(format!("{}: wgmma is serialised: {line}", ptx.display()))),
            None => Ok(parse(&report)),
        }
    }
}

/// The first line of the assembler's report that says that wgmma was serialised.
fn serialised(report: &str) -> Option<&str> {
    report.lines().find(|line| line.contains(SERIALISED))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn serialised_products_are_found_in_the_report() {
        // The last two as ptxas 12.2.140 wrote them, of sums that were touched between products.
        for note in [
            "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are \
             serialized due to insufficient register resources for the wgmma pipeline",
            "ptxas info    : (C7515) Potential Performance Loss: wgmma.mma_async instructions are \
             serialized due to non wgmma instructions defining accumulator registers of a wgmma",
            "ptxas info    : (C7514) Potential Performance Loss: wgmma.mma_async instructions are \
             serialized due to non wgmma instructions reading accumulator registers of  a wgmma",
        ] {
            let report = format!("ptxas info    : 0 bytes gmem\n{note}\nptxas info    : Used 168");
            assert_eq!(serialised(&report), Some(note));
        }
        assert_eq!(serialised("ptxas info    : Used 168 registers"), None);
    }
}
