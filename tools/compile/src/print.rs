//! Prints the PTX of a kernel, current or as of a commit, or of an archive.

use std::fs;
use std::path::Path;
use std::process::Command;

use device::manifest::{Manifest, Source, files};

use crate::{FOLDER, Fault};

/// The PTX of the kernel `name`, for the architecture whose name contains `architecture`, or by
/// default for all architectures for which it was compiled; as of `commit` if given.
///
/// # Errors
/// The kernel is not in the manifest; the commit is unknown.
pub fn kernel(
    root: &Path,
    name: &str,
    architecture: Option<&str>,
    commit: Option<&str>,
) -> Result<String, Fault> {
    let read = |path: &str| at(root, &format!("{FOLDER}/{path}"), commit);
    let manifest = String::from_utf8_lossy(&read(Manifest::FILE)?).into_owned();
    let manifest = Manifest::parse(&manifest).map_err(|e| Fault(e.to_string()))?;
    let asked = architecture.unwrap_or_default().replace("sm_", "compute_");
    let holds = |source: &&Source| {
        let has_kernel = source.kernels.iter().any(|kernel| kernel.name == name);
        has_kernel && source.architecture.to_string().contains(&asked)
    };
    let mut text = String::new();
    for source in manifest.sources.iter().filter(holds) {
        // Until 2026 each PTX was a separate file.
        let ptx = match read(&source.ptx) {
            Ok(ptx) => ptx,
            Err(_) => of_archive(&read(&source.archive())?, &source.ptx)?,
        };
        let ptx = String::from_utf8_lossy(&ptx);
        let entry = format!(".entry {name}(");
        let lines = ptx.lines().skip_while(|line| !line.contains(&entry));
        let to_end = lines.scan(false, |ended, line| {
            (!std::mem::replace(ended, line == "}")).then(|| format!("{line}\n"))
        });
        text += &format!("// {} from {}\n{}", source.ptx, source.path, to_end.collect::<String>());
    }
    match text.is_empty() {
        true => Err(Fault(format!("{FOLDER}/{} has no kernel {name}", Manifest::FILE))),
        false => Ok(text),
    }
}

/// All PTX in an archive file.
///
/// # Errors
/// The file is not an archive.
pub fn archive(path: &Path) -> Result<String, Fault> {
    let bytes = fs::read(path).map_err(|e| Fault(format!("{}: {e}", path.display())))?;
    let files = files(&bytes).into_iter().filter(|file| file.name.ends_with(".ptx"));
    let texts = files.map(|file| String::from_utf8_lossy(&file.bytes).into_owned());
    match texts.collect::<String>() {
        text if text.is_empty() => Err(Fault(format!("{} contains no PTX", path.display()))),
        text => Ok(text),
    }
}

fn of_archive(packed: &[u8], name: &str) -> Result<Vec<u8>, Fault> {
    let found = files(packed).into_iter().find(|file| file.name == name);
    found.map(|file| file.bytes).ok_or_else(|| Fault(format!("no archive contains {name}")))
}

/// Contents of a file in the checkout, or in a commit.
fn at(root: &Path, path: &str, commit: Option<&str>) -> Result<Vec<u8>, Fault> {
    let Some(commit) = commit else {
        return fs::read(root.join(path)).map_err(|e| Fault(format!("{path}: {e}")));
    };
    let mut git = Command::new("git");
    git.arg("-C").arg(root).args(["show", &format!("{commit}:{path}")]);
    let output = git.output().map_err(|e| Fault(format!("git: {e}")))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Fault(String::from_utf8_lossy(&output.stderr).trim().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root;

    #[test]
    fn kernel_is_printed_from_header_to_end() {
        let text = kernel(&root(), "stamp", None, None).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[0].starts_with("// compute_80/stamp.ptx from kernels/src/"), "{text}");
        assert!(lines[1].contains(".entry stamp(") && lines.ends_with(&["}"]), "{text}");
        assert_eq!(lines.iter().filter(|line| **line == "}").count(), 1, "{text}");
        let hopper = kernel(&root(), "conv2d_f16_wide", Some("sm_90a"), None).unwrap();
        assert!(hopper.contains("wgmma"));
        let fault = kernel(&root(), "no_kernel", None, None).unwrap_err().to_string();
        assert_eq!(fault, "ptx/manifest.json has no kernel no_kernel");
        assert!(archive(&root().join("ptx/stamp.zst")).unwrap().contains(".entry stamp("));
    }
}
