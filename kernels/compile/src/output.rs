//! The files of `ptx/`: made, written, compared.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use kernels::device::manifest::{Kernel, Manifest, Source};
use serde::Serialize;

use crate::nvrtc::Nvrtc;
use crate::ptx::{Entry, compiler_version, entries};
use crate::ptxas::{SPILLS_ALLOWED, resources, spill_fault};
use crate::sass::record::Record;
use crate::sass::{self, Measured, PLAIN, Target, hot};
use crate::sources::{HEADERS, find, sha256, source_sha256, stem};
use crate::toolkit::{NVDISASM_VERSION, Toolkit, VERSION};
use crate::{FOLDER, Fault, read};

/// Names and texts of all files of the folder.
pub type Files = BTreeMap<String, String>;

/// `--fmad=false`: a product and a sum stay two roundings, as on the CPU, so that box arithmetic
/// gives the CPU's bits.
const FLAGS: [&str; 3] = ["--gpu-architecture=compute_80", "--std=c++17", "--fmad=false"];

/// NVRTC and the assembler take about as long as each other, and wait for each other's files.
const THREADS: usize = 2;

/// What all sources became.
#[derive(Debug)]
pub struct Compiled {
    /// The manifest and the PTX.
    pub files: Files,
    /// What was counted in the hot kernels.
    pub record: Record,
}

/// What one source became.
struct One {
    source: Source,
    ptx: String,
    measured: Vec<Measured>,
}

/// Compiles all sources.
///
/// # Errors
/// All sources that do not compile, and kernels that must not be as they are.
pub fn compile(root: &Path, toolkit: &Toolkit) -> Result<Compiled, Fault> {
    let nvrtc = Nvrtc::open(&toolkit.nvrtc())?;
    sass::check_version(&toolkit.nvdisasm(), NVDISASM_VERSION)?;
    let scratch = root.join("target/compile-kernels");
    fs::create_dir_all(&scratch).map_err(|e| Fault(format!("{}: {e}", scratch.display())))?;
    let compiler = Compiler { root, toolkit, nvrtc, scratch: &scratch };
    let paths = find(root)?;
    let todo = Mutex::new(paths.iter());
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
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
    compiled.sort_by(|a, b| a.source.path.cmp(&b.source.path));
    gathered(compiled)
}

/// The files of all sources, and the record of their hot kernels.
fn gathered(compiled: Vec<One>) -> Result<Compiled, Fault> {
    let mut files = Files::new();
    let mut record = Record {
        assembler: format!("ptxas {VERSION}"),
        disassembler: format!("nvdisasm {NVDISASM_VERSION}"),
        sources: Vec::new(),
    };
    let mut manifest = Manifest {
        compiler: format!("NVRTC {VERSION}"),
        flags: FLAGS.map(String::from).to_vec(),
        sources: Vec::new(),
    };
    for One { source, ptx, measured } in compiled {
        files.insert(source.ptx.clone(), ptx);
        if !measured.is_empty() {
            record.add(&source.ptx, &source.ptx_sha256, &measured);
        }
        manifest.sources.push(source);
    }
    if let Some(fault) = duplicate(&manifest) {
        return Err(fault);
    }
    let counted = |name: &&&str| record.kernels().any(|kernel| kernel.name == **name);
    if let Some(name) = PLAIN.iter().find(|name| !counted(name)) {
        let file = "kernels/compile/src/sass/mod.rs";
        return Err(Fault(format!("{file}: there is no kernel `{name}` to count in")));
    }
    files.insert(Manifest::FILE.into(), manifest_text(&manifest)?);
    Ok(Compiled { files, record })
}

struct Compiler<'a> {
    root: &'a Path,
    toolkit: &'a Toolkit,
    nvrtc: Nvrtc,
    scratch: &'a Path,
}

impl Compiler<'_> {
    /// One source: its entry in the manifest, its PTX, and what its hot kernels hold.
    fn source(&self, path: &str) -> Result<One, Fault> {
        let text = read(&self.root.join(path))?;
        let name = stem(path);
        let own = self.root.join(path).parent().map(Path::to_path_buf).unwrap_or_default();
        let mut options: Vec<String> = FLAGS.map(String::from).to_vec();
        let folders = [own, self.root.join(HEADERS)].into_iter().chain(self.toolkit.includes());
        options.extend(folders.map(|folder| format!("--include-path={}", folder.display())));
        // The file's name alone: it becomes part of symbols.
        let compiled = self.nvrtc.compile(&format!("{name}.cu"), &text, &options)?;
        if !compiled.log.is_empty() {
            eprintln!("{path}: {}", compiled.log);
        }
        let ptx = compiled.ptx;
        if compiler_version(&ptx) != Some(VERSION) {
            let found = compiler_version(&ptx).unwrap_or("unknown");
            return Err(Fault(format!("the toolkit's version is {found}; it must be {VERSION}")));
        }
        if let Some(fault) = foreign_path(path, &ptx, &options) {
            return Err(fault);
        }
        let read = |path: &str| fs::read_to_string(self.root.join(path)).ok();
        let sha256_of_source = source_sha256(path, &read)
            .ok_or_else(|| Fault(format!("{path}: vanished while it was compiled")))?;
        let source = Source {
            path: path.to_string(),
            sha256: sha256_of_source,
            ptx: format!("{name}.ptx"),
            ptx_sha256: sha256(ptx.as_bytes()),
            kernels: self.kernels(path, &ptx)?,
        };
        let measured = self.measured(path, &hot(&ptx))?;
        Ok(One { source, ptx, measured })
    }

    /// Where the assembler leaves what it made of a source for a GPU.
    fn cubin(&self, path: &str, target: Target) -> PathBuf {
        self.scratch.join(format!("{}.{}.cubin", stem(path), target.name()))
    }

    fn measured(&self, path: &str, hot: &[&str]) -> Result<Vec<Measured>, Fault> {
        let mut measured = Vec::new();
        for target in Target::ALL.into_iter().filter(|_| !hot.is_empty()) {
            let cubin = self.cubin(path, target);
            let counted = sass::measure(&self.toolkit.nvdisasm(), &cubin, target, hot);
            measured.extend(counted.map_err(|fault| Fault(format!("{path}: {fault}")))?);
        }
        Ok(measured)
    }

    fn kernels(&self, path: &str, ptx: &str) -> Result<Vec<Kernel>, Fault> {
        let file = self.scratch.join(format!("{}.ptx", stem(path)));
        fs::write(&file, ptx).map_err(|e| Fault(format!("{}: {e}", file.display())))?;
        let of = |target: Target| {
            resources(&self.toolkit.ptxas(), &file, target.name(), &self.cubin(path, target))
        };
        let (sm_80, sm_90a) = (of(Target::Sm80)?, of(Target::Sm90a)?);
        let (mut kernels, mut faults) = (Vec::new(), Vec::new());
        for entry in entries(ptx)? {
            let (Some(&on_80), Some(&on_90a)) = (sm_80.get(&entry.name), sm_90a.get(&entry.name))
            else {
                return Err(Fault(format!("{path}: no report on kernel `{}`", entry.name)));
            };
            let found = [("sm_80", on_80), ("sm_90a", on_90a)].map(|(target, on)| {
                let fault = spill_fault(&entry.name, target, &on, SPILLS_ALLOWED)?;
                Some(format!("{path}: {fault}"))
            });
            faults.extend(found.into_iter().flatten());
            let Entry { name, parameter_bytes } = entry;
            kernels.push(Kernel { name, parameter_bytes, sm_80: on_80, sm_90a: on_90a });
        }
        if faults.is_empty() { Ok(kernels) } else { Err(Fault(faults.join("\n"))) }
    }
}

/// A folder of this machine in the PTX, which would differ on the next.
fn foreign_path(path: &str, ptx: &str, options: &[String]) -> Option<Fault> {
    let folders = options.iter().filter_map(|option| option.strip_prefix("--include-path="));
    let found = folders.into_iter().find(|folder| ptx.contains(folder))?;
    Some(Fault(format!("{path}: its PTX names {found}; use no __FILE__ or assert in kernels")))
}

fn duplicate(manifest: &Manifest) -> Option<Fault> {
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for source in &manifest.sources {
        for kernel in &source.kernels {
            if let Some(other) = first.insert(&kernel.name, &source.path) {
                let (name, path) = (&kernel.name, &source.path);
                return Some(Fault(format!(
                    "{path}: {other} has a kernel `{name}` too; rename it"
                )));
            }
        }
    }
    None
}

/// The manifest as JSON with a line for each kernel, so that a change of one shows as one.
///
/// # Errors
/// Text that is no JSON: none is known.
pub fn manifest_text(manifest: &Manifest) -> Result<String, Fault> {
    let mut text = format!(
        "{{\n  \"compiler\": {},\n  \"flags\": {},\n  \"sources\": [",
        json(&manifest.compiler)?,
        json(&manifest.flags)?
    );
    for (i, source) in manifest.sources.iter().enumerate() {
        text.push_str(if i == 0 { "\n    {" } else { ",\n    {" });
        let fields = [
            ("path", &source.path),
            ("sha256", &source.sha256),
            ("ptx", &source.ptx),
            ("ptx_sha256", &source.ptx_sha256),
        ];
        for (name, value) in fields {
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

/// What the folder holds now; nothing if there is none.
///
/// # Errors
/// Files that cannot be read.
pub fn present(folder: &Path) -> Result<Files, Fault> {
    let mut files = Files::new();
    if !folder.exists() {
        return Ok(files);
    }
    let fault = |e| Fault(format!("{}: {e}", folder.display()));
    for entry in fs::read_dir(folder).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        files.insert(entry.file_name().to_string_lossy().into_owned(), read(&entry.path())?);
    }
    Ok(files)
}

/// Makes the folder hold these files and no others; files that are as they should be are not
/// touched, so that nothing is built again for them.
///
/// # Errors
/// Files that cannot be written.
pub fn write(folder: &Path, files: &Files) -> Result<(), Fault> {
    let fault = |e| Fault(format!("{}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(fault)?;
    let old = present(folder)?;
    for name in old.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder.join(name)).map_err(fault)?;
    }
    for (name, text) in files.iter().filter(|(name, text)| old.get(*name) != Some(text)) {
        fs::write(folder.join(name), text).map_err(fault)?;
    }
    Ok(())
}

/// One sentence for each file in which the folder differs from what was compiled.
pub fn differences(compiled: &Files, present: &Files) -> Vec<String> {
    let mut sentences = Vec::new();
    for (name, text) in compiled {
        match present.get(name) {
            None => sentences.push(format!("{FOLDER}/{name} is missing")),
            Some(old) if old != text => {
                let (line, was, is) = first_difference(old, text);
                sentences.push(format!(
                    "{FOLDER}/{name} differs from what its source compiles to: line {line} is \
                     `{was}` and should be `{is}`"
                ));
            }
            Some(_) => {}
        }
    }
    let extra = present.keys().filter(|name| !compiled.contains_key(*name));
    sentences.extend(extra.map(|name| format!("{FOLDER}/{name} has no source")));
    sentences
}

/// Number, from 1, and beginnings of the first line that differs.
fn first_difference(old: &str, new: &str) -> (usize, String, String) {
    let begin = |line: Option<&str>| line.unwrap_or("").trim().chars().take(60).collect();
    let (mut old, mut new) = (old.lines(), new.lines());
    for number in 1.. {
        let (a, b) = (old.next(), new.next());
        if a != b || a.is_none() {
            return (number, begin(a), begin(b));
        }
    }
    (0, String::new(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter().map(|(name, text)| (name.to_string(), text.to_string())).collect()
    }

    #[test]
    fn each_difference_is_a_sentence() {
        let compiled = files(&[("a.ptx", "1\n2\n"), ("b.ptx", "1"), ("c.ptx", "1")]);
        let present = files(&[("a.ptx", "1\n3\n"), ("c.ptx", "1"), ("d.ptx", "1")]);
        assert_eq!(
            differences(&compiled, &present),
            [
                "ptx/a.ptx differs from what its source compiles to: line 2 is `3` and should be \
                 `2`",
                "ptx/b.ptx is missing",
                "ptx/d.ptx has no source",
            ]
        );
        assert!(differences(&compiled, &compiled).is_empty());
    }

    #[test]
    fn writing_leaves_what_was_compiled_and_nothing_else() {
        let folder = std::env::temp_dir().join(format!("compile-kernels-{}", std::process::id()));
        write(&folder, &files(&[("a.ptx", "1"), ("old.ptx", "1")])).unwrap();
        let compiled = files(&[("a.ptx", "2"), ("b.ptx", "1")]);
        write(&folder, &compiled).unwrap();
        assert_eq!(present(&folder).unwrap(), compiled);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn the_manifest_is_read_as_it_was_written() {
        let kernel = |name: &str| Kernel {
            name: name.into(),
            parameter_bytes: vec![8, 4],
            sm_80: Default::default(),
            sm_90a: Default::default(),
        };
        let source = |path: &str, kernels| Source {
            path: path.into(),
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
    }
}
