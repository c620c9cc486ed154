//! Fixes the commit of the build, for reports: at run time, git would describe the current
//! directory.
//!
//! `ONEGRAPH_COMMIT` in the environment of the build wins, for sources without a checkout. The
//! script runs again when the checkout moves or a source of this crate or of one below it changes,
//! which is when this crate is compiled anyway.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The variable that holds the commit, for the build and for the crate.
const COMMIT: &str = "ONEGRAPH_COMMIT";
/// Paths of the files that this crate and the crates below it are compiled from.
const SOURCES: [&str; 9] = [
    "src",
    "../configs",
    "../dali/src",
    "../graph/src",
    "../kernels/src",
    "../kernels/device/src",
    "../ptx",
    "../Cargo.toml",
    "../Cargo.lock",
];

fn main() {
    println!("cargo:rerun-if-env-changed={COMMIT}");
    let told = std::env::var(COMMIT).ok().filter(|commit| !commit.is_empty());
    let commit = told.or_else(|| {
        let checkout = Checkout::here()?;
        let sources = SOURCES.map(PathBuf::from).into_iter();
        let sources = sources.flat_map(|path| compiled(&path));
        for path in checkout.marks().into_iter().chain(sources).filter(|path| path.exists()) {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        checkout.git(&["describe", "--always", "--dirty", "--tags"])
    });
    println!("cargo:rustc-env={COMMIT}={}", commit.unwrap_or("unknown".into()));
}

/// The compiled files at or under a path: no tests, and no CUDA sources, which are compiled into
/// `ptx` ahead of time.
fn compiled(path: &Path) -> Vec<PathBuf> {
    if let Ok(entries) = std::fs::read_dir(path) {
        let entries = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let entries = entries.filter(|path| !path.ends_with("tests"));
        return entries.flat_map(|path| compiled(&path)).collect();
    }
    let extension = path.extension().and_then(|extension| extension.to_str());
    let is_compiled = matches!(extension, Some("rs" | "toml" | "lock" | "ptx" | "json"));
    if is_compiled { vec![path.to_path_buf()] } else { vec![] }
}

/// The git checkout that tracks this crate.
struct Checkout {
    manifest: PathBuf,
}

impl Checkout {
    /// `None` without git, or where the sources are untracked, possibly inside another project's
    /// checkout.
    fn here() -> Option<Self> {
        let manifest = PathBuf::from(std::env::var_os("CARGO_MANIFEST_DIR")?);
        let checkout = Self { manifest };
        checkout.git(&["ls-files", "--error-unmatch", "Cargo.toml"])?;
        Some(checkout)
    }

    /// The output of git in this crate's folder; `None` if it fails.
    fn git(&self, arguments: &[&str]) -> Option<String> {
        let mut git = Command::new("git");
        let output = git.arg("-C").arg(&self.manifest).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_string())
    }

    /// Files that change with the commit: the log of HEAD gets a line each time; without one, HEAD
    /// and the branch that it names.
    fn marks(&self) -> Vec<PathBuf> {
        let path = |name: &str| {
            let path = self.git(&["rev-parse", "--git-path", name])?;
            Some(self.manifest.join(path))
        };
        let log = path("logs/HEAD").filter(|log| log.exists());
        let marks = match log {
            Some(log) => [path("HEAD"), Some(log), None],
            None => {
                let branch = self.git(&["symbolic-ref", "--quiet", "HEAD"]);
                [path("HEAD"), branch.and_then(|branch| path(&branch)), path("packed-refs")]
            }
        };
        marks.into_iter().flatten().collect()
    }
}
