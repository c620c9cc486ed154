//! A measurement in its own process, with a time limit: a kernel that faults or hangs spoils the
//! context of its process, and no other.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process_group};

/// How a process ended, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    /// `None` if it was stopped at the time limit.
    pub(crate) status: Option<ExitStatus>,
    output: String,
    pub(crate) seconds: f64,
}

/// Runs the command, in its own process group, to its end, or for at most `limit`.
pub(crate) fn run(command: &mut Command, limit: Duration) -> anyhow::Result<Ended> {
    let mut log: File = tempfile::tempfile().context("a temporary file")?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log.try_clone()?);
    let started = Instant::now();
    let mut child = command.process_group(0).spawn().context("starting a measurement")?;
    let status = loop {
        match child.try_wait()? {
            Some(status) => break Some(status),
            None if started.elapsed() < limit => std::thread::sleep(Duration::from_millis(10)),
            None => {
                // A process stuck in the driver may not even die: do not wait for it.
                let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
                break None;
            }
        }
    };
    let mut output = Vec::new();
    log.rewind()?;
    log.read_to_end(&mut output)?;
    let output = String::from_utf8_lossy(&output).into_owned();
    Ok(Ended { status, output, seconds: started.elapsed().as_secs_f64() })
}

impl Ended {
    /// The last line that begins with `head`, without it.
    pub(crate) fn line(&self, head: &str) -> Option<&str> {
        self.output.lines().rev().find_map(|line| line.strip_prefix(head)).map(str::trim)
    }

    /// The last non-empty line.
    pub(crate) fn last_line(&self) -> &str {
        self.output.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("said nothing")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The grandchild holds the output open and would go on for ten minutes.
    #[test]
    fn one_that_hangs_is_stopped_with_all_that_it_started() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let alive = folder.path().join("alive");
        let script = format!("(sleep 1; touch {}) & echo begun; sleep 600", alive.display());
        let mut command = Command::new("sh");
        let ended = run(command.args(["-c", &script]), Duration::from_millis(300));
        let ended = ended.expect("sh starts");
        assert!(ended.status.is_none() && ended.seconds < 60.0, "{ended:?}");
        assert_eq!(ended.last_line(), "begun");
        std::thread::sleep(Duration::from_millis(1200));
        assert!(!alive.exists(), "the grandchild went on");
    }

    #[test]
    fn what_was_said_is_kept() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo figure: 1; echo error: two >&2; exit 3"]);
        let ended = run(&mut command, Duration::from_secs(60)).expect("sh starts");
        assert_eq!(ended.status.and_then(|status| status.code()), Some(3));
        assert_eq!((ended.line("figure: "), ended.last_line()), (Some("1"), "error: two"));
    }
}
