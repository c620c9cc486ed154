//! Runs the command `onegraph` in a temporary folder, and reads its outputs.

// Each test target that includes this file uses only part of it.
#![allow(dead_code)]

pub(crate) mod driver;
pub(crate) mod ranks;
pub(crate) mod s3;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use engine::config::Config;
use serde_json::Value;
use tempfile::TempDir;

/// Exit codes, as documented in the README.
pub(crate) const FAILED: i32 = 1;
pub(crate) const BAD_CONFIG: i32 = 3;
pub(crate) const BAD_DATA: i32 = 4;
pub(crate) const DIVERGED: i32 = 5;
pub(crate) const INTERRUPTED: i32 = 6;
/// No GPU can be used, or one failed.
pub(crate) const NO_DEVICE: i32 = 7;
pub(crate) const RANK_LOST: i32 = 8;

/// Key of a record: the evaluation time projected for a machine with 8 GPUs.
const PROJECTED: &str = "waited_seconds_of_5000_images_on_8_gpus";

/// Variable that hides a machine's GPUs if it is empty, so that `auto` selects the CPU on any
/// machine.
pub(crate) const GPUS: &str = "CUDA_VISIBLE_DEVICES";

/// A folder to run commands in, removed when dropped.
pub(crate) struct Place {
    folder: TempDir,
}

/// Exit code and output of a command.
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

    /// The config of `micro`, with data in this folder.
    pub(crate) fn config(&self, set: &[&str]) -> Config {
        let dir = format!("data.synthetic.dir={}", self.join("drawn").display());
        let all: Vec<String> = set.iter().map(|s| s.to_string()).chain([dir]).collect();
        Config::load("micro", &all).expect("the preset loads")
    }

    /// A folder with a run of `micro`.
    pub(crate) fn trained(more: &str) -> Self {
        let place = Self::new();
        place.good(&micro(more));
        place
    }

    /// Generates `count` synthetic images with their annotations and store.
    pub(crate) fn shapes(&self, count: usize, out: &str) {
        self.good(&format!("prep --synthetic shapes --count {count} --size 64 --out {out}"));
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

    /// Flips a bit in the middle of a file, which may be read-only.
    pub(crate) fn flip(&self, name: &str) {
        let mut bytes = self.bytes(name);
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::remove_file(self.join(name)).expect("it goes");
        self.write(name, bytes);
    }

    /// The report of a run.
    pub(crate) fn report(&self, run: &str) -> Value {
        self.json(&format!("runs/{run}/report.json"))
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

    /// The command in this folder; `arguments` are split at spaces.
    pub(crate) fn command(&self, arguments: &str) -> Command {
        self.program(env!("CARGO_BIN_EXE_onegraph-under-test"), arguments)
    }

    /// The command bench in this folder.
    pub(crate) fn bench(&self, arguments: &str) -> Command {
        self.program(env!("CARGO_BIN_EXE_bench-under-test"), arguments)
    }

    fn program(&self, path: &str, arguments: &str) -> Command {
        let mut command = Command::new(path);
        command.args(arguments.split_whitespace()).current_dir(self.path()).stdin(Stdio::null());
        command.env(GPUS, "");
        command
    }

    /// Runs the command to its end.
    pub(crate) fn run(&self, arguments: &str) -> Said {
        said(&mut self.command(arguments))
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn good(&self, arguments: &str) -> String {
        self.prints(arguments, &[]).out
    }

    /// Runs a command that must succeed and print each of `words` to standard error.
    pub(crate) fn prints(&self, arguments: &str, words: &[&str]) -> Said {
        let said = self.run(arguments);
        assert_eq!(said.code, 0, "onegraph {arguments}\n{}", said.err);
        assert_has(&said.err, words);
        said
    }

    /// Runs a command that must succeed and print each of `words`; returns its output.
    pub(crate) fn shows(&self, arguments: &str, words: &[&str]) -> String {
        let out = self.good(arguments);
        assert_has(&out, words);
        out
    }

    /// Runs commands that must fail with `code`, like [`Place::bad`].
    pub(crate) fn refuses(&self, code: i32, rows: &[(&str, &[&str])]) {
        for (arguments, words) in rows {
            self.bad(arguments, code, words);
        }
    }

    /// Runs a command that must fail, like [`bad`].
    pub(crate) fn bad(&self, arguments: &str, code: i32, words: &[&str]) {
        bad(&mut self.command(arguments), code, words);
    }

    /// The records of a metrics file as written.
    pub(crate) fn records(&self, run: &str) -> Vec<Value> {
        let text = self.text(&format!("{run}/metrics.jsonl"));
        text.lines().map(|line| serde_json::from_str(line).expect("a JSON line")).collect()
    }

    /// The events that a run wrote for TensorBoard, as text.
    pub(crate) fn events(&self, run: &str) -> String {
        let names = self.names(run);
        let name = names.iter().find(|n| n.starts_with("events.out")).expect("an event file");
        String::from_utf8_lossy(&self.bytes(&format!("{run}/{name}"))).into_owned()
    }

    /// The records of a metrics file sorted by step, without values that depend on the clock and
    /// the machine. In the file an evaluation may appear some steps late.
    pub(crate) fn metrics(&self, run: &str) -> Vec<Value> {
        let timeless = |mut record: Value| {
            let record_map = record.as_object_mut().expect("an object");
            for key in ["step_ms", "data_ms", "eval_seconds", "waited_seconds", PROJECTED] {
                record_map.remove(key);
            }
            record_map.retain(|key, _| !key.starts_with("system/"));
            record
        };
        let mut records: Vec<Value> = self.records(run).into_iter().map(timeless).collect();
        records.sort_by_key(|record| (record["step"].as_u64(), record.get("loss").is_none()));
        records
    }

    /// The records of a metrics file that are training steps, without times.
    pub(crate) fn steps(&self, run: &str) -> Vec<Value> {
        let mut records = self.metrics(run);
        records.retain(|record| record.get("loss").is_some());
        records
    }

    /// The bytes of the complete training state after a step.
    pub(crate) fn state(&self, run: &str, step: u64) -> Vec<u8> {
        self.bytes(&format!("{run}/checkpoints/step_{step:08}/state.safetensors"))
    }
}

/// True if a program that a test needs is missing on this machine.
pub(crate) fn is_missing(program: &str) -> bool {
    let missing = Command::new(program).arg("--version").output().is_err();
    if missing {
        println!("SKIPPED: there is no {program}");
    }
    missing
}

/// True if this machine supports the namespaces that `two-hosts.sh` needs.
pub(crate) fn has_namespaces() -> bool {
    let trial = "[ $(id -u) = 0 ] || exec unshare --user --map-root-user --net --uts true; \
                 exec unshare --net --uts ip link add name one type veth peer name two";
    let has = Command::new("sh").args(["-c", trial]).output().is_ok_and(|o| o.status.success());
    if !has {
        println!("SKIPPED: no network namespaces here, or no ip");
    }
    has
}

/// The command with default handlers for the signals that end it: the test runner may ignore some
/// signals, and child processes inherit this.
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

/// Runs a command that must succeed.
pub(crate) fn good(command: &mut Command) -> Said {
    let said = said(command);
    assert_eq!(said.code, 0, "{command:?}\n{}{}", said.out, said.err);
    said
}

/// Runs a command that must fail with `code` and print, after its progress, one line that contains
/// each of `words`, without a panic.
pub(crate) fn bad(command: &mut Command, code: i32, words: &[&str]) {
    let Said { code: got, err, .. } = said(command);
    assert_eq!(got, code, "{command:?}\n{err}");
    let line = err.lines().last().unwrap_or_default();
    assert!(line.starts_with("error: "), "{command:?}\n{err}");
    assert_eq!(err.matches("error:").count(), 1, "one sentence\n{err}");
    assert!(!err.contains("panicked"), "{err}");
    assert_has(line, words);
}

/// The items of a JSON list.
pub(crate) fn as_list(value: &Value) -> &[Value] {
    value.as_array().unwrap_or_else(|| panic!("{value} is not a list"))
}

pub(crate) fn as_number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

pub(crate) fn as_count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not a count"))
}

/// Fails unless a text contains all of these words.
pub(crate) fn assert_has(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in\n{text}");
    }
}

/// Assigns a new id to each category of an annotation file and its objects, or removes them if `id`
/// returns `None`.
pub(crate) fn renumber(annotations: &mut Value, id: impl Fn(u64) -> Option<u64>) {
    for (list, key) in [("categories", "id"), ("annotations", "category_id")] {
        annotations[list].as_array_mut().expect("a list").retain_mut(|row| {
            let new = id(row[key].as_u64().expect("an id"));
            row[key] = new.into();
            new.is_some()
        });
    }
}

/// Arguments that select these stores instead of synthetic data.
pub(crate) fn stores(train: &str, val: &str) -> String {
    format!("--set data.synthetic=none --set data.train_store={train} --set data.val_store={val}")
}

/// Arguments that select these images for training and validation, instead of synthetic data.
pub(crate) fn files(images: &str, annotations: &str) -> String {
    let of = |split: &str| {
        format!("--set data.{split}_images={images} --set data.{split}_annotations={annotations}")
    };
    format!("--set data.synthetic=none {} {}", of("train"), of("val"))
}

/// `micro` without pictures, with additional arguments.
pub(crate) fn micro(more: &str) -> String {
    format!("train micro --set eval.draw_images=0 {more}")
}
