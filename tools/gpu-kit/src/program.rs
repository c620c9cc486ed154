//! The program of a stage and its arguments, and where programs are found.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Placeholder in the arguments for the seconds that the program may take.
pub(super) const SECONDS: &str = "{seconds}";

/// The program of a stage.
#[derive(Debug, Clone)]
pub(super) struct Program {
    /// The stage's name.
    pub(super) stage: String,
    path: PathBuf,
    folder: PathBuf,
    args: Vec<OsString>,
    /// Options that name a file in the folder, passed if it exists by then.
    files: Vec<(&'static str, &'static str)>,
    envs: Vec<(&'static str, String)>,
    most_seconds: u64,
    /// Time that it needs beyond the seconds it is given.
    start_seconds: u64,
}

impl Program {
    pub(super) fn new(path: &Path, folder: &Path) -> Self {
        Self {
            stage: String::new(),
            path: path.to_path_buf(),
            folder: folder.to_path_buf(),
            args: Vec::new(),
            files: Vec::new(),
            envs: Vec::new(),
            most_seconds: 0,
            start_seconds: 0,
        }
    }

    pub(super) fn of_stage(self, name: &str) -> Self {
        Self { stage: name.to_string(), ..self }
    }

    pub(super) fn args<T: Into<OsString>>(mut self, args: impl IntoIterator<Item = T>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    pub(super) fn file(mut self, option: &'static str, file: &'static str) -> Self {
        self.files.push((option, file));
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: &str) -> Self {
        self.envs.push((name, value.to_string()));
        self
    }

    /// [`SECONDS`] becomes the remaining time less `start`, at most `most`.
    pub(super) fn seconds(mut self, most: u64, start: u64) -> Self {
        (self.most_seconds, self.start_seconds) = (most, start);
        self
    }

    /// The whole of this program as arguments of another one.
    pub(super) fn under(self, tool: &Path, args: &[&str]) -> Self {
        let inner = [self.path.into_os_string()].into_iter().chain(self.args);
        let args: Vec<OsString> = args.iter().map(OsString::from).chain(inner).collect();
        Self { path: tool.to_path_buf(), args, ..self }
    }

    /// True if the program, a Python interpreter, finds a module.
    pub(super) fn has_module(&self, module: &str) -> bool {
        let find = format!(
            "import importlib.util, sys; sys.exit(importlib.util.find_spec('{module}') is None)"
        );
        let mut python = Command::new(&self.path);
        python.args(["-c", &find]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        python.status().is_ok_and(|status| status.success())
    }

    /// The command, given the remaining time.
    pub(super) fn command(&self, left: Duration) -> Command {
        let seconds = left.as_secs().saturating_sub(self.start_seconds);
        let seconds = seconds.clamp(1, self.most_seconds.max(1)).to_string();
        let mut command = Command::new(&self.path);
        for arg in &self.args {
            match arg.to_str() == Some(SECONDS) {
                true => command.arg(&seconds),
                false => command.arg(arg),
            };
        }
        for (option, file) in &self.files {
            if self.folder.join(file).is_file() {
                command.args([option, file]);
            }
        }
        command.envs(self.envs.iter().cloned()).current_dir(&self.folder);
        command
    }
}

/// The file of this name in PATH.
pub(super) fn in_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// A path that works from any folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or(path.to_path_buf())
}
