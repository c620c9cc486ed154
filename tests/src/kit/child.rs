//! A command with a time limit, whose output goes to a file.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How a command ended, and what it said.
#[derive(Debug)]
pub(super) struct Ended {
    /// None if it was stopped for want of time.
    pub(super) status: Option<ExitStatus>,
    pub(super) output: String,
    pub(super) seconds: f64,
}

/// Runs the command until it ends, or for `limit` at most. Its output, both streams, is kept in the
/// file `log`.
///
/// # Errors
/// A command that does not start, or a file that cannot be written, in one sentence.
pub(super) fn run(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended, String> {
    let at_log = |e: std::io::Error| format!("{}: {e}", log.display());
    let file = File::create(log).map_err(at_log)?;
    let errors = file.try_clone().map_err(at_log)?;
    command.stdin(Stdio::null()).stdout(file).stderr(errors);
    let program = command.get_program().to_string_lossy().into_owned();
    let started = Instant::now();
    let mut child = command.spawn().map_err(|e| format!("{program} does not start: {e}"))?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if started.elapsed() < limit => {
                std::thread::sleep(Duration::from_millis(20));
            }
            Ok(None) => {
                // A process that the driver holds may not even end now: it is not waited for.
                let _ = child.kill();
                break None;
            }
            Err(e) => return Err(format!("{program}: {e}")),
        }
    };
    let output = String::from_utf8_lossy(&fs::read(log).map_err(at_log)?).into_owned();
    Ok(Ended { status, output, seconds: started.elapsed().as_secs_f64() })
}

impl Ended {
    /// The last line that begins with `head`, without it.
    pub(super) fn line(&self, head: &str) -> Option<&str> {
        self.output.lines().rev().find_map(|line| line.strip_prefix(head)).map(str::trim)
    }

    /// The last line that says anything.
    pub(super) fn last_line(&self) -> &str {
        self.output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("said nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ended {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("sh");
        run(command.args(["-c", script]), &folder.path().join("log"), limit).expect("sh starts")
    }

    #[test]
    fn both_streams_are_kept() {
        let ended = shell("echo figure: 1; echo error: two >&2; exit 3", Duration::from_secs(60));
        assert_eq!(ended.status.and_then(|s| s.code()), Some(3));
        assert_eq!((ended.line("figure: "), ended.line("error: ")), (Some("1"), Some("two")));
        assert_eq!(ended.last_line(), "error: two");
    }

    #[test]
    fn one_that_hangs_is_stopped() {
        let ended = shell("echo begun; exec sleep 600", Duration::from_millis(300));
        assert!(ended.status.is_none() && ended.seconds < 60.0, "{ended:?}");
        assert_eq!(ended.last_line(), "begun");
    }

    #[test]
    fn one_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let mut command = Command::new("no-such-command");
        let error = run(&mut command, &folder.path().join("log"), Duration::from_secs(1));
        assert!(error.is_err_and(|e| e.starts_with("no-such-command does not start")));
    }
}
