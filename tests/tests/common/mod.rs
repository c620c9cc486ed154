//! Runs the command `onegraph` in a folder of its own, and reads what it leaves there.

// Each test target that includes this file uses a part of it.
#![allow(dead_code)]

pub(crate) mod driver;
pub(crate) mod ranks;
#[cfg(feature = "s3")]
pub(crate) mod s3;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// Exit codes of the README.
pub(crate) const FAILED: i32 = 1;
pub(crate) const BAD_CONFIG: i32 = 3;
pub(crate) const BAD_DATA: i32 = 4;
pub(crate) const DIVERGED: i32 = 5;
pub(crate) const INTERRUPTED: i32 = 6;
pub(crate) const RANK_LOST: i32 = 8;

/// Key of a record: what an evaluation would take on another machine.
const PROJECTED: &str = "waited_seconds_of_5000_images_on_8_gpus";

/// Empty, it hides a machine's GPUs: `auto` is the CPU for the tests, wherever they run.
pub(crate) const GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// A folder to run commands in; it goes when this is dropped.
pub(crate) struct Place {
    folder: TempDir,
}

/// Exit code and output of a command that ended.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        let parent = path.parent().expect("a file inside the folder");
        fs::create_dir_all(parent).expect("a folder");
        fs::write(&path, contents).expect("a file");
        path
    }

    pub(crate) fn text(&self, name: &str) -> String {
        let path = self.join(name);
        fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub(crate) fn bytes(&self, name: &str) -> Vec<u8> {
        let path = self.join(name);
        fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub(crate) fn json(&self, name: &str) -> Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    }

    /// The names in a folder, sorted.
    pub(crate) fn names(&self, name: &str) -> Vec<String> {
        let entries = fs::read_dir(self.join(name)).expect("a folder");
        let name = |e: std::io::Result<fs::DirEntry>| {
            e.expect("an entry").file_name().to_string_lossy().into_owned()
        };
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    /// The command in this folder; `arguments` are cut at spaces.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph-under-test"));
        command.args(arguments.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        command.env(GPUS, "");
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, arguments: &str) -> Said {
        said(&mut self.command(arguments))
    }

    /// Runs a command that must succeed, and gives what it printed.
    pub(crate) fn good(&self, arguments: &str) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "onegraph {arguments}\n{}", said.err);
        said.out
    }

    /// Runs a command that must fail with `code` and say each of `words`, in one line (after what
    /// it said of its progress) and without a panic.
    pub(crate) fn bad(&self, arguments: &str, code: i32, words: &[&str]) {
        let Said { code: got, err, .. } = self.run(arguments);
        assert_eq!(got, code, "onegraph {arguments}\n{err}");
        let line = err.lines().last().unwrap_or_default();
        assert!(line.starts_with("error: "), "onegraph {arguments}\n{err}");
        assert_eq!(err.matches("error:").count(), 1, "one sentence\n{err}");
        assert!(!err.contains("panicked"), "{err}");
        for word in words {
            assert!(line.contains(word), "onegraph {arguments}\n`{word}` is not in: {line}");
        }
    }

    /// The records of a metrics file by step, without what the clock and the
    /// machine say. In the file an evaluation comes some steps late.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Value> {
        let text = self.text(&format!("{run}/metrics.jsonl"));
        let timeless = |line: &str| {
            let mut record: Value = serde_json::from_str(line).expect("a JSON line");
            let record_map = record.as_object_mut().expect("an object");
            for key in ["step_ms", "data_ms", "eval_seconds", "waited_seconds", PROJECTED] {
                record_map.remove(key);
            }
            record_map.retain(|key, _| !key.starts_with("system/"));
            record
        };
        let mut records: Vec<Value> = text.lines().map(timeless).collect();
        records.sort_by_key(|record| (record["step"].as_u64(), record.get("loss").is_none()));
        records
    }

    /// The records of a metrics file that are training steps, without what the clock says.
    pub(crate) fn steps(&self, run: &str) -> Vec<Value> {
        let mut records = self.metrics(run);
        records.retain(|record| record.get("loss").is_some());
        records
    }

    /// The bytes of everything that training updates, at a step.
    pub(crate) fn state(&self, run: &str, step: u64) -> Vec<u8> {
        self.bytes(&format!("{run}/checkpoints/step_{step:08}/state.safetensors"))
    }
}

/// True if this machine lacks a program that a test needs.
pub(crate) fn is_missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        println!("SKIPPED: there is no {program}");
    }
    missing
}

/// True if `two-hosts.sh` runs here.
pub(crate) fn has_namespaces() -> bool {
    let trial = "[ $(id -u) = 0 ] || exec unshare --user --map-root-user --net --uts true; \
                 exec unshare --net --uts ip link add name one type veth peer name two";
    let has = Command::new("sh").args(["-c", trial]).output().is_ok_and(|o| o.status.success());
    if !has {
        println!("SKIPPED: no network namespaces here, or no ip");
    }
    has
}

/// The command with the signals that end it as they are by default: whatever runs the tests may
/// ignore some, and a process keeps ignoring what it was started to ignore.
pub(crate) fn with_default_signals(command: &Command) -> Command {
    let mut wrapped = Command::new("env");
    wrapped.arg("--default-signal=HUP,INT,TERM,USR1").arg(command.get_program());
    wrapped.args(command.get_args()).stdin(Stdio::null());
    wrapped.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        wrapped.current_dir(folder);
    }
    wrapped
}

/// Runs a command to its end.
pub(crate) fn said(command: &mut Command) -> Said {
    let output = command.output().expect("the command starts");
    Said {
        code: output.status.code().expect("an exit code, not a signal"),
        out: String::from_utf8(output.stdout).expect("text"),
        err: String::from_utf8(output.stderr).expect("text"),
    }
}

/// `micro` without pictures, then more arguments.
pub(crate) fn micro(more: &str) -> String {
    format!("train micro --set eval.draw_images=0 {more}")
}
