//! `onegraph train --ranks N`: starts the ranks on this machine, and waits for them.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ranks::Launch;
use rustix::process::{Pid, Signal, kill_process};

use super::exit;
use super::launch::{PARENT, cannot_start};
use super::signals::Stop;
use crate::EngineError;
use crate::train::Outcome;

/// Added to the time limit within which the other ranks must end after one has failed.
const SLACK: Duration = Duration::from_secs(5);

/// Starts this command as `ranks` processes and waits for them. After one has failed, the others
/// must end within `timeout`.
///
/// # Errors
/// [`EngineError::Usage`] if a process cannot be started; [`EngineError::Ranks`] with an exit code
/// if a rank failed, after it has printed the reason.
pub(super) fn run(
    ranks: usize,
    timeout: Duration,
    launch: &Launch,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    if launch.ranks > 1 {
        let launcher = launch.launcher;
        return Err(EngineError::Usage(format!(
            "--ranks {ranks} starts processes, but {launcher} has already started {}: use only one \
             of them",
            launch.ranks
        )));
    }
    let mut children = processes(ranks)?;
    stop.finish_first();
    match wait(&mut children, timeout + SLACK, stop) {
        0 => Ok(Outcome::Done),
        exit::INTERRUPTED => Ok(Outcome::Interrupted),
        code => Err(EngineError::Ranks { code }),
    }
}

fn processes(ranks: usize) -> Result<Vec<Child>, EngineError> {
    let program = std::env::current_exe().map_err(cannot_start)?;
    let number = |n: usize| n.to_string();
    let mut children: Vec<Child> = Vec::with_capacity(ranks);
    for rank in 0..ranks {
        let child = Command::new(&program)
            .args(own_words())
            .env("RANK", number(rank))
            .env("WORLD_SIZE", number(ranks))
            .env("LOCAL_RANK", number(rank))
            .env("LOCAL_WORLD_SIZE", number(ranks))
            .env("ONEGRAPH_JOB", format!("{}-{ranks}", std::process::id()))
            .env(PARENT, std::process::id().to_string())
            .spawn();
        match child {
            Ok(child) => children.push(child),
            Err(fault) => {
                children.iter_mut().for_each(|child| drop(child.kill()));
                return Err(cannot_start(fault));
            }
        }
    }
    Ok(children)
}

/// The arguments of this process without `--ranks`.
fn own_words() -> Vec<OsString> {
    let mut words = Vec::new();
    let mut all = std::env::args_os().skip(1);
    while let Some(word) = all.next() {
        match word.to_string_lossy() {
            text if text == "--ranks" => drop(all.next()),
            text if text.starts_with("--ranks=") => {}
            _ => words.push(word),
        }
    }
    words
}

/// Waits for all children, and forwards a request to stop. After a child has failed, the others are
/// killed once `patience` has passed: they might hang, or be suspended by SIGSTOP. Returns the exit
/// code of the first child whose failure was not caused by another child.
fn wait(children: &mut [Child], patience: Duration, stop: &Stop) -> u8 {
    let flag = stop.flag();
    let mut is_handed_on = false;
    let mut failed: Option<Instant> = None;
    let mut codes: Vec<Option<u8>> = vec![None; children.len()];
    while codes.iter().any(Option::is_none) {
        for (child, code) in children.iter_mut().zip(&mut codes) {
            let ended = child.try_wait().ok().flatten();
            *code = ended.map(|status| match (status.code(), status.signal()) {
                (Some(code), _) => code as u8,
                (None, Some(signal)) => 128 + signal as u8,
                (None, None) => exit::FAILED,
            });
        }
        if failed.is_none() && codes.iter().flatten().any(|code| *code != 0) {
            failed = Some(Instant::now());
        }
        let running = || children.iter().zip(&codes).filter(|(_, code)| code.is_none());
        let send = |signal: Signal| {
            for (child, _) in running() {
                // Fails only if the child has ended in the meantime.
                let _ = kill_process(Pid::from_child(child), signal);
            }
        };
        if failed.is_some_and(|since| since.elapsed() > patience) {
            send(Signal::KILL);
        }
        if flag.load(Ordering::Relaxed) && !std::mem::replace(&mut is_handed_on, true) {
            send(Signal::USR1);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    let codes: Vec<u8> = codes.into_iter().flatten().collect();
    let told = codes.iter().find(|code| **code != 0 && **code != exit::RANK_LOST);
    told.or(codes.iter().find(|code| **code != 0)).copied().unwrap_or(0)
}
