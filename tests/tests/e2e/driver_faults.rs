//! Failures of a run with several processes on the emulated driver: a rank that dies, hangs or
//! cannot continue, requests to stop, and NCCL failures.

use std::time::{Duration, Instant};

use crate::common::driver::Gpus;
use crate::common::ranks::{Ended, Running};
use crate::common::{INTERRUPTED, NO_DEVICE, RANK_LOST, micro, said};
use rustix::process::Signal;

/// Default of `ranks.timeout_seconds`, within which surviving ranks must end after a loss.
const LIMIT: Duration = Duration::from_secs(10);

/// Exit code of a process that has aborted, as a shell reports it.
const ABORTED: i32 = 134;

/// The message for a killed rank.
const CLOSED: &str = "its connection closed";

const ENDLESS: &str = "--device cuda --set train.images_per_group=1 --set train.log_every_steps=1 \
                       --set train.steps=4000";

/// Two ranks with one GPU each.
fn start<'a>(gpus: &'a Gpus, more: &str) -> Running<'a> {
    let command = || gpus.command(&micro(&format!("{ENDLESS} {more}")), &[]);
    Running::of(&gpus.place, vec![command(), command()])
}

/// Sends a signal to one of two ranks once a line contains these words.
fn after(words: &str, more: &str, victim: usize, signal: Signal) -> Ended {
    let gpus = Gpus::new("A100,A100");
    let mut run = start(&gpus, more);
    run.wait_for(words);
    run.signal(victim, signal);
    run.end_within(LIMIT)
}

#[test]
fn killed_or_stopped_gpu_rank_is_reported() {
    let long = "--set train.eval_every_steps=2 --set data.synthetic.val_images=400";
    for (words, more) in [("iter 3/", ""), ("iter 2/", long)] {
        for victim in [1, 0] {
            after(words, more, victim, Signal::KILL).assert_names(2, victim, CLOSED);
        }
    }
    for victim in [1, 0] {
        let ended = after("iter 3/", "", victim, Signal::STOP);
        ended.assert_names(2, victim, "no heartbeat for ");
    }
}

#[test]
fn signal_to_one_gpu_rank_saves_and_stops_all() {
    let ended = after("iter 2/", "", 1, Signal::USR1);
    assert_eq!(ended.codes, [INTERRUPTED; 2], "{}", ended.said);
    assert_eq!(ended.said.matches("interrupted; continue with").count(), 1, "{}", ended.said);
}

/// NCCL failures: the injected fault, additional config, words of the message, and the possible
/// exit codes of the rank that reports first.
const OF_NCCL: &[(&str, &str, &str, &[i32])] = &[
    ("1/sum:5=die,abort:hang", "", "rank 0: error: rank 1 on host ", &[ABORTED]),
    ("sum:9=error", "", "error: all-reduce: ", &[NO_DEVICE, RANK_LOST]),
    ("1/sum:9=hang", "--set ranks.stall_seconds=5", "error: no progress for 5 s", &[RANK_LOST]),
    (
        "init:never",
        "--set ranks.join_timeout_seconds=5",
        "of 2: not all ranks joined within 5 s",
        &[NO_DEVICE, RANK_LOST],
    ),
];

/// Each fault ends both ranks in bounded time, even if NCCL does not release a group that is used
/// by graphs.
#[test]
fn nccl_fault_stops_all_ranks() {
    let gpus = Gpus::new("H100,H100");
    for (plant, more, words, codes) in OF_NCCL {
        let arguments = micro(&format!("{ENDLESS} {more} --ranks 2"));
        let since = Instant::now();
        let said = said(&mut gpus.command(&arguments, &[("NCCL_TEST_PLANT", plant)]));
        assert!(since.elapsed() < Duration::from_secs(60), "{plant}: {:?}", since.elapsed());
        assert!(codes.contains(&said.code), "{plant}: {}\n{}", said.code, said.err);
        assert!(said.err.contains(words), "{plant}: {}", said.err);
        assert!(!said.err.contains("panicked"), "{plant}: {}", said.err);
        // Some faults end the ranks before the run directory exists.
        let _ = std::fs::remove_dir_all(gpus.place.join("runs/micro"));
    }
}
