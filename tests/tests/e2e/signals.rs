//! Signals are handled in every phase, without leaving incomplete files.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::driver::Gpus;
use crate::common::ranks::Running;
use crate::common::{self, INTERRUPTED, Place, micro, with_default_signals};

/// Time limit for the response to a signal, on a machine that runs other tests concurrently.
const ANSWER: Duration = Duration::from_secs(2);

const SIGNALS: [(&str, Signal); 4] =
    [("TERM", Signal::TERM), ("INT", Signal::INT), ("HUP", Signal::HUP), ("USR1", Signal::USR1)];

/// A run that never ends by itself.
fn endless() -> String {
    micro("--set train.steps=1000000 --set train.log_every_steps=1")
}

/// Starts a command with default signal handlers, so that each signal ends it.
fn start<'a>(place: &'a Place, command: &Command) -> Running<'a> {
    let mut command = with_default_signals(command);
    command.process_group(0);
    Running::by(place, command)
}

/// Waits for a line.
fn until(running: &mut Running<'_>, words: &str) {
    running.wait_within(words, Duration::from_secs(60));
}

/// Sends a signal by its name, and returns the time until the run acknowledged it.
fn acknowledged(running: &mut Running<'_>, name: &str) -> Duration {
    let since = Instant::now();
    let (_, signal) = SIGNALS.iter().find(|(of, _)| *of == name).expect("one of these");
    running.signal(0, *signal);
    until(running, &format!("SIG{name}: "));
    since.elapsed()
}

/// Waits for the end of an interrupted run.
fn assert_interrupted(running: Running<'_>) {
    let ended = running.end();
    assert_eq!(ended.codes, [INTERRUPTED], "{}", ended.said);
}

/// The names of all files in the place that look incomplete.
fn debris(place: &Place) -> Vec<String> {
    let said = Command::new("find")
        .args([".", "-name", "*.tmp*", "-o", "-name", "*.old*", "-o", "-name", "*.onegraph-*"])
        .current_dir(place.path())
        .output()
        .expect("find runs");
    String::from_utf8_lossy(&said.stdout).lines().map(str::to_string).collect()
}

#[test]
fn signal_during_data_generation_leaves_nothing() {
    for (signal, _) in SIGNALS {
        let place = Place::new();
        let many = "--set data.synthetic.train_images=100000";
        let mut running = start(&place, &place.command(&micro(many)));
        until(&mut running, "generating");
        let took = acknowledged(&mut running, signal);
        assert!(took < ANSWER, "SIG{signal} while drawing: {took:?}");
        assert_interrupted(running);
        assert_eq!(debris(&place), Vec::<String>::new(), "SIG{signal}");
        assert!(!place.join("runs/micro").exists(), "a run that never began");
    }
    let place = Place::new();
    let prep = "prep --synthetic shapes --count 100000 --size 64 --out set";
    let mut running = start(&place, &place.command(prep));
    std::thread::sleep(Duration::from_millis(300));
    let took = acknowledged(&mut running, "TERM");
    assert!(took < ANSWER, "while preparing: {took:?}");
    assert_interrupted(running);
    assert_eq!(debris(&place), Vec::<String>::new());
    assert!(!place.join("set").exists());
}

#[test]
fn signal_during_evaluation_saves_step() {
    for signal in ["TERM", "HUP"] {
        let place = Place::new();
        let long = "--set train.steps=6 --set train.eval_every_steps=3 \
                    --set data.synthetic.val_images=3000";
        let mut command = place.command(&micro(long));
        let mut running = start(&place, command.env("ONEGRAPH_LOG", "info"));
        until(&mut running, "evaluates");
        let took = acknowledged(&mut running, signal);
        assert!(took < ANSWER, "SIG{signal} while evaluating: {took:?}");
        assert_interrupted(running);
        assert_eq!(place.text("runs/micro/last_checkpoint"), "checkpoints/step_00000003\n");
        assert_eq!(debris(&place), Vec::<String>::new());
    }
}

/// After each signal, on the CPU and on a device, the run saves; when resumed, it is bit-identical
/// to an uninterrupted run.
#[test]
fn first_signal_saves_and_resume_is_bit_identical() {
    for (signal, device) in
        [("TERM", "cpu"), ("INT", "cpu"), ("HUP", "cpu"), ("USR1", "cpu"), ("TERM", "cuda")]
    {
        let gpus = Gpus::new("A100");
        let place = &gpus.place;
        let device = format!("--device {device}");
        let mut running = start(place, &gpus.command(&format!("{} {device}", endless()), &[]));
        until(&mut running, "iter 3/");
        let took = acknowledged(&mut running, signal);
        assert!(device.ends_with("cuda") || took < ANSWER, "SIG{signal} while training: {took:?}");
        assert_interrupted(running);
        assert_eq!((debris(place), gpus.findings()), (vec![], String::new()), "SIG{signal}");
        let last = place.text("runs/micro/last_checkpoint");
        let step = last.trim().trim_start_matches("checkpoints/step_");
        let step: u64 = step.parse().expect("a step");
        assert_eq!(place.steps("runs/micro").len() as u64, step);
        let report = place.report("micro");
        assert_eq!((&report["state"], &report["steps"]), (&"interrupted".into(), &step.into()));
        assert!(place.text("runs/micro/report.html").contains("interrupted by a signal"));

        let total = step + 3;
        gpus.good(&format!("train --resume runs/micro --set train.steps={total} {device}"));
        let whole = format!("--set train.steps={total} --set train.name=whole {device}");
        gpus.good(&micro(&whole));
        assert!(place.state("runs/micro", total) == place.state("runs/whole", total), "{signal}");
        assert_eq!(place.steps("runs/micro"), place.steps("runs/whole"), "SIG{signal}");
    }
}

/// A step of a large model takes long, and a step on a device may never end.
#[test]
fn second_signal_does_not_wait_for_step() {
    let place = Place::new();
    let large = "train quickstart --set data.synthetic.train_images=600 \
                 --set train.batch_size=512 --set train.images_per_group=512 \
                 --set data.synthetic.val_images=2";
    let mut running = start(&place, &place.command(large));
    until(&mut running, "run directory");
    // After this time the step has started.
    std::thread::sleep(Duration::from_millis(500));
    assert!(acknowledged(&mut running, "INT") < ANSWER);
    let since = Instant::now();
    running.signal(0, Signal::INT);
    assert_interrupted(running);
    assert!(since.elapsed() < ANSWER, "the second signal: {:?}", since.elapsed());

    let gpus = Gpus::new("A100");
    let hang = [("DRIVER_PLANT", "hang:finish_step:6")];
    let hanging = gpus.command(&format!("{} --device cuda", endless()), &hang);
    let mut running = start(&gpus.place, &hanging);
    until(&mut running, "iter 3/");
    acknowledged(&mut running, "INT");
    running.signal(0, Signal::INT);
    assert_interrupted(running);
    assert_eq!(debris(&gpus.place), Vec::<String>::new());
}

#[test]
fn ignored_signal_stays_ignored() {
    let place = Place::new();
    let program = place.command(&endless());
    let mut nohup = Command::new("nohup");
    nohup.arg(program.get_program()).args(program.get_args()).current_dir(place.path());
    let mut running = start(&place, &nohup);
    until(&mut running, "iter 3/");
    running.signal(0, Signal::HUP);
    until(&mut running, "iter 300/");
    acknowledged(&mut running, "TERM");
    assert_interrupted(running);
}

/// A pager that waits for a key does not read its input.
#[test]
fn second_signal_ends_run_with_blocked_terminal() {
    let place = Place::new();
    let mut command = with_default_signals(&place.command(&endless()));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().expect("it starts");
    let metrics = place.join("runs/micro/metrics.jsonl");
    let length = || std::fs::metadata(&metrics).map_or(0, |meta| meta.len());
    let mut before = 0;
    // The command blocks once the pipe is full.
    while length() == 0 || length() != before {
        before = length();
        std::thread::sleep(Duration::from_millis(500));
    }
    let since = Instant::now();
    let ask = || kill_process(Pid::from_child(&child), Signal::TERM).expect("it runs");
    ask();
    std::thread::sleep(Duration::from_millis(200));
    ask();
    assert_eq!(child.wait().expect("it ends").code(), Some(INTERRUPTED));
    assert!(since.elapsed() < ANSWER, "{:?}", since.elapsed());
}

#[test]
fn second_process_cannot_train_same_run() {
    let place = Place::new();
    let mut running = start(&place, &place.command(&endless()));
    until(&mut running, "iter 3/");
    let host = "is in use by process";
    let pid = running.pid(0).to_string();
    place.bad("train --resume runs/micro", common::BAD_CONFIG, &["runs/micro", host, &pid]);
    // A killed process leaves no lock behind.
    running.signal(0, Signal::KILL);
    assert_eq!(running.end().codes, [128 + 9]);
    place.good(&micro("--set train.steps=1 --set train.name=other"));
    let after = place.run("train --resume runs/micro --set train.steps=1");
    assert!(!after.err.contains(host), "{}", after.err);
}
