//! A rank is lost: the others know it in time, and say which, where and when.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{launch, logged, options, run};
use ranks::{Group, JoinOptions, RanksError};
use rustix::process::{Pid, Signal, kill_process};

/// The time limit of the runs of processes.
const TIMEOUT: Duration = Duration::from_millis(3000);

/// A run whose ranks are processes.
struct Processes {
    ranks: Vec<(Child, BufReader<ChildStdout>)>,
    _folder: tempfile::TempDir,
}

/// Starts one rank.
fn start(
    folder: &tempfile::TempDir,
    [rank, count, steps]: [usize; 3],
    fail_at: Option<usize>,
) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rank-under-test"));
    command.args([steps.to_string(), TIMEOUT.as_millis().to_string()]);
    command.args(fail_at.map(|step| step.to_string()));
    for (name, value) in [("RANK", rank), ("LOCAL_RANK", rank)] {
        command.env(name, value.to_string());
    }
    for name in ["WORLD_SIZE", "LOCAL_WORLD_SIZE"] {
        command.env(name, count.to_string());
    }
    command.env("XDG_RUNTIME_DIR", folder.path()).env("ONEGRAPH_JOB", "faults");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

impl Processes {
    fn start(count: usize, steps: usize, fail_at: Option<usize>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let start = |rank: usize| {
            let mut child = start(&folder, [rank, count, steps], fail_at);
            let out = BufReader::new(child.stdout.take().expect("piped"));
            (child, out)
        };
        Self { ranks: (0..count).map(start).collect(), _folder: folder }
    }

    /// Reads what a rank prints until it has done a step.
    fn wait_for_step(&mut self, rank: usize, step: usize) {
        let out = &mut self.ranks[rank].1;
        let line = out.lines().map(|line| line.expect("text"));
        assert!(line.into_iter().any(|line| line == format!("step {step}")), "no step {step}");
    }

    fn signal(&self, rank: usize, signal: Signal) {
        let pid = i32::try_from(self.ranks[rank].0.id()).expect("a process id");
        kill_process(Pid::from_raw(pid).expect("not 0"), signal).expect("it is there");
    }

    /// Waits for a rank's end: its exit code, and what it said.
    fn end(&mut self, rank: usize) -> (Option<i32>, String) {
        let (child, out) = &mut self.ranks[rank];
        let mut printed = String::new();
        out.read_to_string(&mut printed).expect("text");
        let mut said = String::new();
        child.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (child.wait().expect("it ends").code(), said)
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for (child, _) in &mut self.ranks {
            // Most have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Does something to one rank of four; each of the others must end within the time limit, and name
/// it.
fn survivors_name(victim: usize, signal: Signal, why: &str) {
    let mut run = Processes::start(4, 100_000, None);
    run.wait_for_step(0, 5);
    let begin = Instant::now();
    run.signal(victim, signal);
    for rank in (0..4).filter(|rank| *rank != victim) {
        let (code, said) = run.end(rank);
        assert_eq!(code, Some(8), "{said}");
        assert!(said.starts_with(&format!("error: rank {victim} on host ")), "{said}");
        assert!(said.contains(why) && said.contains(" was lost at step "), "{said}");
        assert!(said.contains(&format!(") while rank {rank} was waiting for rank ")), "{said}");
        assert!(said.contains(": the gradients of step "), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
    assert!(begin.elapsed() < TIMEOUT, "{:?}", begin.elapsed());
}

#[test]
fn a_rank_that_is_killed_is_named_at_once() {
    survivors_name(2, Signal::KILL, "(its connection closed");
}

#[test]
fn rank_0_that_is_killed_is_named_at_once() {
    survivors_name(0, Signal::KILL, "(its connection closed");
}

#[test]
fn a_rank_that_is_stopped_is_named_within_the_time_limit() {
    survivors_name(1, Signal::STOP, "(no sign of life for 2.");
}

#[test]
fn rank_0_that_is_stopped_is_named_within_the_time_limit() {
    survivors_name(0, Signal::STOP, "(no sign of life for 2.");
}

#[test]
fn a_rank_that_goes_on_after_it_was_given_up_is_told() {
    for victim in [1, 0] {
        let mut run = Processes::start(2, 100_000, None);
        run.wait_for_step(0, 5);
        run.signal(victim, Signal::STOP);
        run.end(1 - victim);
        run.signal(victim, Signal::CONT);
        let (code, said) = run.end(victim);
        assert_eq!(code, Some(8), "{said}");
        assert!(said.contains("was given up by the others at step "), "{said}");
        assert!(said.contains("no sign of life for 2."), "{said}");
    }
}

#[test]
fn an_error_of_one_rank_is_quoted_by_all() {
    let mut run = Processes::start(3, 50, Some(7));
    let (code, said) = run.end(2);
    assert_eq!((code, said.trim()), (Some(1), "error: the disk is full"));
    for rank in 0..2 {
        let (code, said) = run.end(rank);
        assert_eq!(code, Some(1), "the code of rank 2, also through rank 0: {said}");
        assert!(said.contains("was lost at step 7 (it ended with: the disk is full"), "{said}");
    }
}

#[test]
fn a_rank_that_dies_before_all_have_come_may_come_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let (own, lines) = logged(options(&folder, "faults"));
    let (first, third) = thread::scope(|scope| {
        let first = scope.spawn(|| Group::join(&launch(0, 3), own.clone()));
        let mut child = start(&folder, [1, 3, 1], None);
        let said = |text: &str| lines.lock().expect("no panic").iter().any(|line| line == text);
        // Until it has its place: another one that asks for it is refused.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !lines.lock().expect("no panic").iter().any(|line| line.contains("came twice")) {
            assert!(Instant::now() < deadline, "it does not come");
            let mut other = start(&folder, [1, 3, 1], None);
            thread::sleep(Duration::from_millis(50));
            other.kill().and_then(|()| other.wait()).expect("it ends");
        }
        child.kill().and_then(|()| child.wait()).expect("it is killed");
        while !said("rank 1 went away before all ranks had come") {
            assert!(Instant::now() < deadline, "nobody sees it: {lines:?}");
            thread::sleep(Duration::from_millis(10));
        }
        let again = scope.spawn(|| Group::join(&launch(1, 3), own.clone()));
        let third = Group::join(&launch(2, 3), own.clone());
        again.join().expect("no panic").expect("it has its place").leave(None);
        (first.join().expect("no panic"), third)
    });
    first.expect("all came").leave(None);
    third.expect("all came").leave(None);
}

#[test]
fn processes_that_end_in_order_lose_nobody() {
    let mut run = Processes::start(4, 20, None);
    for rank in 0..4 {
        assert_eq!(run.end(rank), (Some(0), String::new()));
    }
}

#[test]
fn who_leaves_in_order_is_no_loss_and_who_waits_for_it_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let results = run(3, &options(&folder, "job"), |group| {
        group.barrier("the start").expect("all are there");
        if group.rank() == 1 {
            group.leave(None);
            return None;
        }
        // Rank 0 comes last, and ends as it finds rank 1 gone.
        thread::sleep(Duration::from_millis(if group.is_first() { 400 } else { 100 }));
        assert_eq!(group.lost(), None);
        let result = group.barrier("the end");
        let error = result.expect_err("one has left").to_string();
        group.leave(Some((3, &error)));
        Some(error)
    });
    let error = results[0].as_ref().expect("rank 0 waited");
    assert!(error.starts_with("rank 1 on host ") && error.contains("has ended its run"), "{error}");
    let error = results[2].as_ref().expect("rank 2 waited");
    assert!(error.starts_with("rank 0 on host "), "{error}");
}

#[test]
fn a_loss_calls_back_once_with_what_both_were_doing() {
    let folder = tempfile::tempdir().expect("a folder");
    let options = JoinOptions { timeout: Duration::from_secs(1), ..options(&folder, "job") };
    run(2, &options, |group: Group| {
        if group.rank() == 1 {
            group.set_doing(4, "reading images");
            // Longer than the time between two signs of life; then it goes without a word.
            thread::sleep(Duration::from_millis(400));
            return;
        }
        group.set_doing(3, "computing");
        let (sender, called) = channel();
        let again = sender.clone();
        group.on_loss(Box::new(move |lost| sender.send(lost.to_string()).expect("heard")));
        let said = called.recv_timeout(Duration::from_secs(5)).expect("it is called");
        let host = &group.members()[1].host;
        let expected = format!(
            "rank 1 on host {host} was lost at step 4 (its connection closed; it was last reading \
             images) while rank 0 was computing"
        );
        assert_eq!(said, expected);
        assert_eq!(group.lost().map(|lost| lost.to_string()), Some(expected));
        // A callback set after the loss is called at once.
        group.on_loss(Box::new(move |lost| again.send(lost.host.clone()).expect("heard")));
        assert_eq!(&called.try_recv().expect("called already"), host);
        assert!(matches!(group.barrier("the end"), Err(RanksError::Lost(_))));
        assert!(matches!(group.broadcast("a", b"b"), Err(RanksError::Lost(_))));
    });
}

#[test]
fn child_processes_inherit_no_connection() {
    let folder = tempfile::tempdir().expect("a folder");
    run(2, &options(&folder, "job"), |group| {
        group.barrier("the start").expect("all are there");
        if group.is_first() {
            let mut command = Command::new("ls");
            command.args(["-l", "/proc/self/fd"]).stdin(Stdio::null()).stderr(Stdio::null());
            let listed = command.output().expect("ls is there").stdout;
            let listed = String::from_utf8_lossy(&listed);
            assert!(listed.contains("pipe:") && !listed.contains("socket:"), "{listed}");
        }
        group.barrier("the end").expect("all are there");
        group.leave(None);
    });
}
