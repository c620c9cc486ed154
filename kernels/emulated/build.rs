//! Compiles every CUDA source and the runtime with g++ into one shared library.
//!
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
    "-fno-strict-aliasing",
    "-Wall",
    "-Wextra",
    "-Wno-unknown-pragmas",
    "-Wno-unused-function",
    "-fno-omit-frame-pointer",
];

fn main() {
    if let Err(reason) = build() {
        panic!("the emulated device was not built: {reason} (it needs g++ on x86-64 Linux)");
    }
}

fn build() -> Result<(), Error> {
    let here = PathBuf::from(env_or("CARGO_MANIFEST_DIR", ""));
    let out = PathBuf::from(env_or("OUT_DIR", ""));
    let ops = here.join("../src/ops");
    let headers = here.join("../src/cuda");
    let runtime = here.join("runtime");
    for folder in [&ops, &headers, &runtime] {
        println!("cargo:rerun-if-changed={}", folder.display());
    }
    println!("cargo:rerun-if-env-changed=ONEGRAPH_EMULATED_SANITIZE");
    let sanitize = env_or("ONEGRAPH_EMULATED_SANITIZE", "");
    let mut flags: Vec<String> = FLAGS.iter().map(|f| f.to_string()).collect();
    if !sanitize.is_empty() {
        flags.push(format!("-fsanitize={sanitize}"));
        flags.push("-fno-sanitize-recover=undefined".into());
        flags.push("-fno-sanitize=vptr".into());
    }
    flags.extend([&headers, &runtime].map(|folder| format!("-I{}", folder.display())));
    let compiler = cc::Build::new().cpp(true).cargo_metadata(false).get_compiler();
    let sources = [files(&ops, &["cu"])?, files(&headers, &["cu"])?, files(&runtime, &["cpp"])?];
    let sources = sources.concat();
    let common = hash(&files(&headers, &["cuh"])?, hash(&files(&runtime, &["h"])?, 0)?)?;
    let common = hash(&files(&ops, &["cuh"])?, common)? ^ hash_text(&flags.join(" "));
    let todo = Mutex::new(sources.clone());
    let objects: Vec<PathBuf> = sources.iter().map(|s| object(&out, s)).collect();
    let jobs = env_or("NUM_JOBS", "1").parse().unwrap_or(1);
    let failed = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                while let Some(source) = todo.lock().ok().and_then(|mut list| list.pop()) {
                    let compile = || Compile { compiler: &compiler, flags: &flags, common };
                    if let Err(e) = compile().run(&source, &object(&out, &source))
                        && let Ok(mut failed) = failed.lock()
                    {
                        *failed = Some(e);
                    }
                }
            });
        }
    });
    if let Some(e) = failed.into_inner().ok().flatten() {
        return Err(e);
    }
    let library = out.join("libemulated_kernels.so");
    let mut link = compiler.to_command();
    link.arg("-shared").arg("-o").arg(&library).args(&objects).arg("-pthread");
    if !sanitize.is_empty() {
        link.arg(format!("-fsanitize={sanitize}"));
    }
    run(&mut link)?;
    println!("cargo:rustc-env=EMULATED_LIBRARY={}", library.display());
    println!("cargo:rustc-env=EMULATED_SANITIZE={sanitize}");
    Ok(())
}

struct Compile<'a> {
    compiler: &'a cc::Tool,
    flags: &'a [String],
    /// Hash of everything that all files depend on.
    common: u64,
}

impl Compile<'_> {
    /// Compiles one file, unless its object stands for the same text.
    fn run(&self, source: &Path, object: &Path) -> Result<(), Error> {
        let stamp = format!("{:x}", hash(&[source.to_path_buf()], self.common)?);
        let stamp_file = object.with_extension("stamp");
        if object.exists() && fs::read_to_string(&stamp_file).is_ok_and(|s| s == stamp) {
            return Ok(());
        }
        let mut command = self.compiler.to_command();
        command.args(self.flags).args(["-x", "c++", "-c"]).arg(source).arg("-o").arg(object);
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
    Err(Error::other(format!("{command:?} failed:\n{text}")))
}

fn object(out: &Path, source: &Path) -> PathBuf {
    let name = source.file_stem().unwrap_or_default().to_string_lossy();
    out.join(format!("{name}.o"))
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

/// Files below `folder` with one of the extensions, sorted.
fn files(folder: &Path, extensions: &[&str]) -> Result<Vec<PathBuf>, Error> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extensions)?);
        } else if path.extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
