//! Compiles the CUDA sources into the PTX that is checked in, and records what the result contains.
//!
//! A source is compiled for each architecture that it names, by default for `compute_80`.
//!
//! Only developers need it: users run the checked-in PTX. The compiler is pinned, so the same
//! sources give the same bytes on every machine; [`run`] writes or compares them. It also records
//! the machine code of the hot kernels ([`sass`]), and lets no figure regress without a reason.

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod child;
pub mod files;
pub mod nvrtc;
pub mod output;
pub mod ptx;
pub mod ptxas;
pub mod sass;
pub mod sources;
pub mod toolkit;

use std::fs;
use std::path::{Path, PathBuf};

use output::Compiled;
pub use ptxas::SPILLS_ALLOWED;
use sass::ratchet::{self, Verdict};
use sass::record::Record;
use toolkit::Toolkit;

/// Why there is no result: one sentence, or the compiler's own report.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub String);

/// Folder of the sources, relative to the checkout's root.
pub const SOURCES: &str = "kernels/src";
/// Folder of the compiled files.
pub const FOLDER: &str = "ptx";

/// The root of the checkout that this tool was built from.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What to do with the compiled files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task<'a> {
    /// Compare them with the checked-in ones.
    Check,
    /// Write them, if no figure regresses.
    Write,
    /// Write them, and record this reason with every kernel that regresses.
    WriteWorse(&'a str),
}

/// How the compiled files compare with the checked-in ones.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// One sentence per figure that regressed.
    pub worse: Vec<String>,
    /// One sentence per figure that improved, and per kernel that is new or gone.
    pub unrecorded: Vec<String>,
    /// One sentence per other difference between files.
    pub differences: Vec<String>,
    /// The folder now contains the compiled files.
    pub written: bool,
}

/// Compiles everything, and compares or writes it. [`Task::Write`] writes nothing if a figure
/// regresses.
///
/// # Errors
/// Sources that do not compile, kernels that spill, files that cannot be written, a reason without
/// a regression.
pub fn run(root: &Path, toolkit: &Toolkit, task: Task) -> Result<Outcome, Fault> {
    settle(&root.join(FOLDER), FOLDER, output::compile(root, toolkit)?, task)
}

fn settle(folder: &Path, name: &str, compiled: Compiled, task: Task) -> Result<Outcome, Fault> {
    let present = files::present(folder)?;
    let recorded = ratchet::recorded(present.get(Record::FILE))?;
    let reason = if let Task::WriteWorse(reason) = task { Some(reason) } else { None };
    let verdict = ratchet::judge(&recorded, compiled.record, reason);
    let Verdict { record, worse, mut unrecorded } = verdict;
    if !present.contains_key(Record::FILE) {
        unrecorded.clear(); // the missing file says it all
    }
    let written = match task {
        Task::Check => false,
        Task::Write => worse.is_empty(),
        Task::WriteWorse(_) if worse.is_empty() => {
            return Err(Fault("no figure is worse than recorded; leave out --accept-worse".into()));
        }
        Task::WriteWorse(_) => true,
    };
    let mut made = compiled.files;
    made.insert(Record::FILE.into(), record.text()?.into_bytes());
    let mut differences = files::differences(name, &made, &present);
    if !(worse.is_empty() && unrecorded.is_empty()) {
        // The sentences on figures say more than one about the first different line.
        let file = format!("{name}/{}", Record::FILE);
        differences.retain(|difference| !difference.starts_with(&file));
    }
    if written {
        files::write(folder, &made)?;
    }
    Ok(Outcome { worse, unrecorded, differences, written })
}

/// The counts of the hot kernels for the current sources, as a table; writes and compares nothing.
///
/// # Errors
/// Compilation errors.
pub fn sass_table(root: &Path, toolkit: &Toolkit) -> Result<String, Fault> {
    Ok(sass::table(&output::compile(root, toolkit)?.record))
}

fn read(path: &Path) -> Result<String, Fault> {
    fs::read_to_string(path).map_err(|e| Fault(format!("{}: {e}", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::counts::Counts;
    use crate::sass::{Measured, Sm};

    /// The compiled result of a source with one hot kernel of this many instructions.
    fn compiled(instructions: u32) -> Compiled {
        let counts =
            Counts { instructions, in_loops: 0, loads_16_bit: 0, local: 0, main_loop: None };
        let measured = Measured { kernel: "k".into(), target: Sm::Sm80, counts };
        let mut record = Record::default();
        record.add("a.ptx", "1", &[measured]);
        let text = instructions.to_string().into_bytes();
        Compiled { files: [("a.ptx".into(), text)].into(), record }
    }

    /// A temporary folder with a result of 90 instructions.
    fn folder(name: &str) -> PathBuf {
        let name = format!("compile-{name}-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        let outcome = settle(&folder, "ptx", compiled(90), Task::Write).unwrap();
        assert!(outcome.written && outcome.worse.is_empty() && outcome.unrecorded.is_empty());
        assert_eq!(settle(&folder, "ptx", compiled(90), Task::Check).unwrap(), Outcome::default());
        folder
    }

    #[test]
    fn what_is_worse_is_written_with_a_reason_alone() {
        let folder = folder("worse");
        let before = files::present(&folder).unwrap();
        let refused = settle(&folder, "ptx", compiled(91), Task::Write).unwrap();
        assert_eq!((refused.worse.len(), refused.written), (1, false), "{refused:?}");
        assert_eq!(files::present(&folder).unwrap(), before, "nothing is written");
        let checked = settle(&folder, "ptx", compiled(91), Task::Check).unwrap();
        assert_eq!(checked.worse, refused.worse);
        let accepted =
            settle(&folder, "ptx", compiled(91), Task::WriteWorse("wider loads")).unwrap();
        assert!(accepted.written && accepted.worse == refused.worse);
        let text =
            String::from_utf8(files::present(&folder).unwrap()[Record::FILE].clone()).unwrap();
        assert!(text.contains("\"accepted\":\"wider loads\""), "{text}");
        assert_eq!(settle(&folder, "ptx", compiled(91), Task::Check).unwrap(), Outcome::default());
        let fault = settle(&folder, "ptx", compiled(91), Task::WriteWorse("again")).unwrap_err();
        assert!(fault.0.starts_with("no figure is worse"), "{fault}");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_is_better_must_be_written_down() {
        let folder = folder("better");
        let checked = settle(&folder, "ptx", compiled(89), Task::Check).unwrap();
        assert_eq!(
            checked.unrecorded,
            ["k on sm_80: instructions was 90 and is 89, which is better"]
        );
        assert_eq!(checked.differences.len(), 1, "the PTX: {checked:?}");
        assert!(settle(&folder, "ptx", compiled(89), Task::Write).unwrap().written);
        assert_eq!(settle(&folder, "ptx", compiled(89), Task::Check).unwrap(), Outcome::default());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_record_that_is_missing_old_or_broken_is_told() {
        let folder = folder("missing");
        let file = folder.join(Record::FILE);
        let text = read(&file).unwrap();
        fs::write(&file, text.replace("\"ptx_sha256\": \"1\"", "\"ptx_sha256\": \"0\"")).unwrap();
        let old = settle(&folder, "ptx", compiled(90), Task::Check).unwrap();
        assert!(old.differences[0].starts_with("ptx/sass.json differs"), "{old:?}");
        fs::remove_file(&file).unwrap();
        let missing = settle(&folder, "ptx", compiled(90), Task::Check).unwrap();
        assert_eq!(missing.differences, ["ptx/sass.json is missing"]);
        assert!(missing.unrecorded.is_empty());
        fs::write(&file, "{").unwrap();
        for task in [Task::Check, Task::Write] {
            let fault = settle(&folder, "ptx", compiled(90), task).unwrap_err();
            assert!(fault.0.ends_with("take the file from the last commit"), "{fault}");
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
