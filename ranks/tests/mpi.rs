//! Runs under Open MPI's `mpirun`: values arrive, all end together, and a rank that is killed is
//! named by the others.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The time limit of the runs.
const TIMEOUT: Duration = Duration::from_secs(4);

/// One run at a time: each keeps all processors busy.
static TURN: Mutex<()> = Mutex::new(());

fn mpirun(ranks: usize, steps: usize) -> (Child, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new("mpirun");
    command.args(["--allow-run-as-root", "--oversubscribe", "-np", &ranks.to_string()]);
    command
        .arg(env!("CARGO_BIN_EXE_rank-under-test"))
        .args([&steps.to_string(), &TIMEOUT.as_millis().to_string()]);
    command.env("RANK_UNDER_TEST_MPI", "1").env("XDG_RUNTIME_DIR", folder.path());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    (command.spawn().expect("mpirun (openmpi-bin) is installed"), folder)
}

fn values_arrive(ranks: usize) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (child, _folder) = mpirun(ranks, 30);
    let output = child.wait_with_output().expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{printed}\n{said}");
    let count = |wanted: &str| printed.lines().filter(|line| *line == wanted).count();
    assert_eq!((count("step 30"), count("done")), (ranks, ranks), "{printed}\n{said}");
    assert_eq!(said, "");
}

#[test]
fn values_arrive_between_2_and_4_ranks_and_all_end_together() {
    values_arrive(2);
    values_arrive(4);
}

/// Does something to rank 1 of 4 while values move; the others name it within the time limit.
fn survivors_name(signal: Signal, why: &str) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut child, _folder) = mpirun(4, 100_000);
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    let mut victim = None;
    for line in out.by_ref().lines().map(|line| line.expect("text")) {
        if let Some(pid) = line.strip_prefix("rank 1 is process ") {
            victim = Some(pid.parse().expect("a process id"));
        }
        if line == "step 10" {
            break;
        }
    }
    let victim = Pid::from_raw(victim.expect("rank 1 is there")).expect("not 0");
    let begin = Instant::now();
    kill_process(victim, signal).expect("it is there");
    let mut err = BufReader::new(child.stderr.take().expect("piped"));
    let mut named = 0;
    let mut said = String::new();
    while named < 3 && err.read_line(&mut said).expect("text") > 0 {
        let line = said.lines().next_back().unwrap_or_default();
        let is_error = line.contains("error: rank 1 on host ") && line.contains(why);
        named += usize::from(is_error && line.contains("lost at step "));
    }
    let took = begin.elapsed();
    // mpirun ends the rest; one that is stopped only on this word.
    let _ = kill_process(victim, Signal::KILL);
    drop(out);
    let status = child.wait().expect("it ends");
    assert_eq!(named, 3, "{said}");
    assert!(took < TIMEOUT, "{took:?}: {said}");
    assert!(!status.success(), "{said}");
}

#[test]
fn a_rank_that_is_killed_under_mpirun_is_named_by_all_others() {
    survivors_name(Signal::KILL, "(its connection closed");
}

#[test]
fn a_rank_that_is_stopped_under_mpirun_is_named_by_all_others() {
    survivors_name(Signal::STOP, "(no sign of life for ");
}

#[test]
fn a_launcher_that_mpi_does_not_know_is_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let start = |rank: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_rank-under-test"));
        let variables = [("RANK", rank), ("LOCAL_RANK", rank), ("RANK_UNDER_TEST_MPI", "1")];
        command.envs(variables).envs([("WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "2")]);
        command.env("XDG_RUNTIME_DIR", folder.path()).env("ONEGRAPH_JOB", "no mpirun");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("it starts")
    };
    let mut said = String::new();
    for child in ["0", "1"].map(start) {
        let output = child.wait_with_output().expect("it ends");
        assert!(!output.status.success());
        said.push_str(&String::from_utf8_lossy(&output.stderr));
    }
    // The other may only see that the first to find out has left.
    let alone = "MPI has started this process alone: start them with the mpirun of the MPI library";
    assert!(said.contains(alone), "{said}");
}
