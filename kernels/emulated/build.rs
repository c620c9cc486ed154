//! Compiles every CUDA source and the runtime with g++ into one shared library.
//!
//! The kernels are those of the ops, and those of `planted`, which are there to be caught by tests.
//! A file is compiled again only if it, a header, or the flags changed: there are many kernels, and
//! one of them is being worked on. `ONEGRAPH_EMULATED_SANITIZE` (`address,undefined` or `thread`)
//! asks for instrumented code; the tests then need the sanitizer's library preloaded.

use std::collections::hash_map::DefaultHasher;
use std::env;
use std::fs;
use std::hash::{Hash, Hasher};
use std::io::Error;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

const FLAGS: &[&str] = &[
    "-std=c++20",
    "-O2",
    "-g1",
    "-mavx2",
    "-mfma",
    "-mf16c",
    "-ffp-contract=off",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-fno-omit-frame-pointer",
];

/// What plays the part of hardware: TSan must not take its memory for that of kernels.
const NOT_FOR_TSAN: &[&str] =
    &["runtime/collectives.cpp", "runtime/counter.cpp", "runtime/fibers.cpp", "runtime/launch.cpp"];

fn main() {
    if let Err(reason) = build() {
        eprintln!("the emulated device was not built: {reason}");
        std::process::exit(1);
    }
}

fn build() -> Result<(), Error> {
    let here = PathBuf::from(env_or("CARGO_MANIFEST_DIR", ""));
    let out = PathBuf::from(env_or("OUT_DIR", ""));
    let kernels = here.parent().unwrap_or(&here).to_path_buf();
    let (ops, headers) = (kernels.join("src/ops"), kernels.join("src/cuda"));
    let (runtime, planted) = (here.join("runtime"), here.join("planted"));
    for folder in [&ops, &headers, &runtime, &planted] {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    for variable in ["ONEGRAPH_EMULATED_SANITIZE", "CXX"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let sanitize = env_or("ONEGRAPH_EMULATED_SANITIZE", "");
    let mut flags: Vec<String> = FLAGS.iter().map(|f| f.to_string()).collect();
    if !sanitize.is_empty() {
        flags.push(format!("-fsanitize={sanitize}"));
        flags.push("-fno-sanitize-recover=undefined".into());
        flags.push("-fno-sanitize=vptr".into());
    }
    if sanitize == "thread" {
        flags.push("-DEMULATED_TSAN".into());
    }
    flags.extend([&headers, &runtime].map(|folder| format!("-I{}", folder.display())));
    let compiler = compiler()?;
    let folders = [(&ops, "cu"), (&headers, "cu"), (&planted, "cu"), (&runtime, "cpp")];
    let sources: Vec<Vec<PathBuf>> = folders
        .iter()
        .map(|(folder, extension)| files(folder, extension))
        .collect::<Result<_, _>>()?;
    let mut sources = sources.concat();
    let mut again = Vec::new();
    for source in &sources {
        let text = fs::read_to_string(source)?;
        for real in reals(&text).filter(|real| *real != "fp16") {
            let name = object_name(source, &kernels).replace(".o", &format!("-{real}.cpp"));
            let wrapper = out.join(name);
            fs::write(&wrapper, where_real_is(real, source, &text))?;
            again.push(wrapper);
        }
    }
    let mut common = hash_text(&flags.join(" "));
    let in_fp16 = |text: String| reals(&text).any(|real| real == "fp16");
    sources.retain(|source| fs::read_to_string(source).is_ok_and(in_fp16));
    sources.extend(again);
    for (folder, extension) in [(&headers, "cuh"), (&runtime, "h"), (&ops, "cuh")] {
        common = hash(&files(folder, extension)?, common)?;
    }
    let object = |source: &Path| match source.strip_prefix(&out) {
        Ok(wrapper) => out.join(wrapper).with_extension("o"),
        Err(_) => out.join(object_name(source, &kernels)),
    };
    let compile = Compile { compiler: &compiler, flags: &flags, common };
    compile.all(&sources, &object)?;
    let library = out.join("libemulated_kernels.so");
    let mut link = compiler.to_command();
    link.arg("-shared").arg("-o").arg(&library).args(sources.iter().map(|s| object(s)));
    link.arg("-pthread");
    if !sanitize.is_empty() {
        link.arg(format!("-fsanitize={sanitize}"));
    }
    run(&mut link)?;
    println!("cargo:rustc-env=EMULATED_LIBRARY={}", library.display());
    println!("cargo:rustc-env=EMULATED_SANITIZE={sanitize}");
    Ok(())
}

/// The C++ compiler, if it is there and makes code for x86-64 Linux.
fn compiler() -> Result<cc::Tool, Error> {
    let target = env_or("TARGET", "");
    if !(target.starts_with("x86_64") && target.contains("linux")) {
        return Err(Error::other(format!("it is for x86-64 Linux, the target is {target}")));
    }
    let compiler = cc::Build::new()
        .cpp(true)
        .cargo_metadata(false)
        .try_get_compiler()
        .map_err(|e| Error::other(format!("no C++ compiler was found, install g++ ({e})")))?;
    let path = compiler.path().display().to_string();
    match compiler.to_command().arg("--version").output() {
        Ok(output) if output.status.success() => Ok(compiler),
        Ok(output) => Err(Error::other(format!("`{path} --version` ended with {}", output.status))),
        Err(e) => {
            Err(Error::other(format!("the C++ compiler `{path}` does not run, install g++ ({e})")))
        }
    }
}

/// What `real` is in a source: the names in `REALS(fp16, fp32)`, or fp16.
fn reals(text: &str) -> impl Iterator<Item = &str> {
    let list = text.lines().find_map(|line| line.strip_prefix("REALS(")?.split_once(')'));
    list.map_or("fp16", |(names, _)| names).split(',').map(str::trim)
}

/// A file that includes a source where `real` is a float, in a namespace of its own: functions of
/// the same name are not those of the source itself. It has the source's hash, to be compiled again
/// with it.
fn where_real_is(real: &str, source: &Path, text: &str) -> String {
    let products = if real == "tf32" { "#define PRODUCTS_IN_TF32\n" } else { "" };
    format!(
        "// {:x}\n#define REAL_IS_FLOAT\n{products}#define EMULATED_REAL \"{real}\"\n\
         #include \"platform.cuh\"\nnamespace {real} {{\n#include \"{}\"\n}}\n",
        hash_text(text),
        source.display()
    )
}

struct Compile<'a> {
    compiler: &'a cc::Tool,
    flags: &'a [String],
    /// Hash of everything that all files depend on.
    common: u64,
}

impl Compile<'_> {
    /// Compiles all files, as many at a time as cargo grants; all of them, so that one build shows
    /// every error.
    fn all(
        &self,
        sources: &[PathBuf],
        object: &(dyn Fn(&Path) -> PathBuf + Sync),
    ) -> Result<(), Error> {
        let todo = Mutex::new(sources.to_vec());
        let errors = Mutex::new(Vec::new());
        let jobs = env_or("NUM_JOBS", "1").parse().unwrap_or(1);
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    while let Some(source) = todo.lock().ok().and_then(|mut list| list.pop()) {
                        if let Err(e) = self.one(&source, &object(&source))
                            && let Ok(mut errors) = errors.lock()
                        {
                            errors.push(e.to_string());
                        }
                    }
                });
            }
        });
        let errors = errors.into_inner().unwrap_or_default();
        if errors.is_empty() { Ok(()) } else { Err(Error::other(errors.join("\n"))) }
    }

    /// Compiles one file, unless its object stands for the same text.
    fn one(&self, source: &Path, object: &Path) -> Result<(), Error> {
        let stamp = format!("{:x}", hash(&[source.to_path_buf()], self.common)?);
        let stamp_file = object.with_extension("stamp");
        if object.exists() && fs::read_to_string(&stamp_file).is_ok_and(|s| s == stamp) {
            return Ok(());
        }
        let mut command = self.compiler.to_command();
        command.args(self.flags).args(["-x", "c++", "-c"]).arg(source).arg("-o").arg(object);
        if NOT_FOR_TSAN.iter().any(|name| source.ends_with(name)) {
            command.arg("-fno-sanitize=thread");
        }
        run(&mut command)?;
        fs::write(stamp_file, stamp)
    }
}

fn run(command: &mut Command) -> Result<(), Error> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    for line in text.lines().filter(|l| l.contains("warning:")) {
        println!("cargo:warning={line}");
    }
    if output.status.success() {
        return Ok(());
    }
    let program = command.get_program().to_string_lossy();
    Err(Error::other(format!("{program} failed:\n{text}")))
}

/// The path below `kernels` as a name, so that files of one name in two folders stay apart.
fn object_name(source: &Path, kernels: &Path) -> String {
    let path = source.strip_prefix(kernels).unwrap_or(source).with_extension("");
    let parts: Vec<_> = path.iter().map(|part| part.to_string_lossy()).collect();
    format!("{}.o", parts.join("-"))
}

fn env_or(name: &str, default: &str) -> String {
    env::var(name).unwrap_or_else(|_| default.to_string())
}

fn hash_text(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

fn hash(files: &[PathBuf], start: u64) -> Result<u64, Error> {
    let mut hasher = DefaultHasher::new();
    start.hash(&mut hasher);
    for file in files {
        file.hash(&mut hasher);
        fs::read(file)?.hash(&mut hasher);
    }
    Ok(hasher.finish())
}

/// Files below `folder` with the extension, sorted.
fn files(folder: &Path, extension: &str) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
