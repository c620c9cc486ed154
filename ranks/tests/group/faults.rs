//! A rank is lost: the other ranks detect this in time, and report rank, host and step. The
//! end-to-end tests of `tests/` kill and stop processes.

use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{launch, logged, options, run, wait_for};
use ranks::{Group, JoinOptions, RanksError};

/// How long a rank waits before it ends, so that other ranks can read its messages; after a loss,
/// operations fail even if the messages that they need have arrived.
const UNTIL_READ: Duration = Duration::from_millis(200);

/// Rank `victim` of four ends; each other rank is waiting for it, and reports the loss at once.
fn survivors_name(victim: usize, end: impl Fn(&Group) + Sync, why: &str, code: Option<u8>) {
    run(4, &options(), |group| {
        for step in 1..5 {
            group.set_doing(step, "computing");
            group.barrier("the gradients").expect("all are there");
        }
        if group.rank() == victim {
            thread::sleep(UNTIL_READ);
            return end(&group);
        }
        let begin = Instant::now();
        let Err(RanksError::Lost(lost)) = group.barrier("the gradients") else {
            panic!("rank {victim} is gone")
        };
        assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
        let (said, rank) = (lost.to_string(), group.rank());
        assert!(said.starts_with(&format!("rank {victim} on host ")), "{said}");
        assert!(said.contains(&format!(" was lost at step 4 ({why}")), "{said}");
        assert!(said.contains(&format!(") while rank {rank} was waiting for rank ")), "{said}");
        assert!(said.ends_with(": the gradients"), "{said}");
        assert_eq!(lost.code, code);
        group.leave(Some((8, &said)));
    });
}

#[test]
fn dead_or_failed_rank_is_reported_by_all_ranks() {
    for victim in [2, 0] {
        survivors_name(victim, |_| (), "its connection closed", None);
        // Control characters must be replaced, because the message is printed to terminals.
        let fails = |group: &Group| group.leave(Some((1, "the \u{1b}[31mdisk is full")));
        survivors_name(victim, fails, "it ended with: the ?[31mdisk is full", Some(1));
    }
}

#[test]
fn sum_adds_in_given_order_and_is_nan_after_a_loss() {
    // These sums depend on the order of f32 additions.
    let of_rank = |rank: usize| [[1e8f32, 1.0, -1e8][rank], rank as f32];
    let backwards = |all: &mut [f32]| {
        for at in [2, 0] {
            (all[at], all[at + 1]) = (all[at + 2] + all[at], all[at + 3] + all[at + 1]);
        }
    };
    run(3, &options(), |group| {
        for _ in 0..50 {
            let sum = group.sum(&of_rank(group.rank()), 2, backwards);
            assert_eq!(sum, [1e8 + (1.0 - 1e8), 3.0]);
        }
        if group.rank() == 1 {
            return thread::sleep(UNTIL_READ);
        }
        for _ in 0..2 {
            let sum = group.sum(&of_rank(group.rank()), 2, backwards);
            assert!(sum.len() == 2 && sum.iter().all(|sum| sum.is_nan()));
        }
        let fault = group.fault().expect("rank 1 is gone");
        assert!(fault.starts_with("rank 1 on host ") && fault.contains("all-reduce of"), "{fault}");
        group.leave(None);
    });
}

#[test]
fn rank_that_leaves_during_join_can_rejoin() {
    let (own, lines) = logged(options());
    thread::scope(|scope| {
        let join = |rank: usize, options: &JoinOptions| {
            let options = options.clone();
            scope.spawn(move || Group::join(&launch(rank, 3), options))
        };
        let first = join(0, &own);
        let hasty = JoinOptions { join_timeout: Duration::from_millis(100), ..own.clone() };
        let error = join(1, &hasty).join().expect("no panic").expect_err("rank 2 has not come");
        assert!(error.to_string().contains("rank 0 disconnected"), "{error}");
        wait_for(&lines, "rank 1 disconnected before all ranks joined");
        for thread in [first, join(1, &own), join(2, &own)] {
            thread.join().expect("no panic").expect("all came").leave(None);
        }
    });
}

#[test]
fn clean_exit_is_not_a_loss_and_is_reported_to_waiting_ranks() {
    let results = run(3, &options(), |group| {
        group.barrier("the start").expect("all are there");
        if group.rank() == 1 {
            group.leave(None);
            return None;
        }
        // Rank 0 is the last to call, and fails because rank 1 has left.
        thread::sleep(Duration::from_millis(if group.is_first() { 400 } else { 100 }));
        assert_eq!(group.lost(), None);
        let error = group.barrier("the end").expect_err("one has left").to_string();
        group.leave(Some((3, &error)));
        Some(error)
    });
    let error = results[0].as_ref().expect("rank 0 waited");
    assert!(error.starts_with("rank 1 on host ") && error.contains("has ended its run"), "{error}");
    let error = results[2].as_ref().expect("rank 2 waited");
    assert!(error.starts_with("rank 0 on host "), "{error}");
}

#[test]
fn loss_callback_runs_once_with_activities_of_both_ranks() {
    let options = JoinOptions { timeout: Duration::from_secs(1), ..options() };
    run(2, &options, |group: Group| {
        if group.rank() == 1 {
            group.set_doing(4, "reading images");
            // The rank works longer than the heartbeat interval, and then ends without a message.
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
fn child_process_inherits_no_connection() {
    run(2, &options(), |group| {
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
