//! Signals: answered in every phase, with nothing half-made left.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::common::driver::Gpus;
use crate::common::{self, INTERRUPTED, Place, micro, with_default_signals};

/// The answer must come within this, on a machine that runs other tests.
const ANSWER: Duration = Duration::from_secs(2);

/// A command that runs, and the lines that it says.
struct Running {
    child: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(command: &mut Command) -> Self {
        let mut command = with_default_signals(command);
        command.stdout(Stdio::null()).process_group(0);
        let mut child = command.stderr(Stdio::piped()).spawn().expect("the command starts");
        let pipe = BufReader::new(child.stderr.take().expect("a pipe"));
        let (send, lines) = channel();
        std::thread::spawn(move || {
            pipe.lines().map_while(Result::ok).for_each(|line| {
                let _ = send.send(line);
            });
        });
        Self { child, lines }
    }

    /// Waits for a line that contains `word`.
    fn until(&self, word: &str) {
        let since = Instant::now();
        loop {
            let left = Duration::from_secs(60).saturating_sub(since.elapsed());
            match self.lines.recv_timeout(left) {
                Ok(line) if line.contains(word) => return,
                Ok(_) => {}
                Err(_) => panic!("`{word}` was not said"),
            }
        }
    }

    fn send(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Sends a signal. Returns the time until it was acknowledged.
    fn acknowledged(&self, signal: &str) -> Duration {
        let since = Instant::now();
        self.send(signal);
        self.until(&format!("SIG{signal}: "));
        since.elapsed()
    }

    fn code(&mut self) -> Option<i32> {
        self.child.wait().expect("the command ends").code()
    }
}

/// The names of everything under a folder that looks half-made.
fn debris(place: &Place) -> Vec<String> {
    let said = Command::new("find")
        .args([".", "-name", "*.tmp*", "-o", "-name", "*.old*", "-o", "-name", "*.onegraph-*"])
        .current_dir(place.path())
        .output()
        .expect("find runs");
    String::from_utf8_lossy(&said.stdout).lines().map(str::to_string).collect()
}

#[test]
fn drawing_and_preparing_end_at_once_and_leave_nothing() {
    for signal in ["TERM", "INT", "HUP", "USR1"] {
        let place = Place::new();
        let many = "--set data.synthetic.train_images=100000";
        let mut running = Running::start(&mut place.command(&micro(many)));
        running.until("drawing");
        let took = running.acknowledged(signal);
        assert!(took < ANSWER, "SIG{signal} while drawing: {took:?}");
        assert_eq!(running.code(), Some(INTERRUPTED), "SIG{signal}");
        assert_eq!(debris(&place), Vec::<String>::new(), "SIG{signal}");
        assert!(!place.join("runs/micro").exists(), "a run that never began");
    }
    let place = Place::new();
    let prep = "prep --synthetic shapes --count 100000 --size 64 --out set";
    let mut running = Running::start(&mut place.command(prep));
    std::thread::sleep(Duration::from_millis(300));
    let took = running.acknowledged("TERM");
    assert!(took < ANSWER, "while preparing: {took:?}");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert_eq!(debris(&place), Vec::<String>::new());
    assert!(!place.join("set").exists());
}

#[test]
fn an_evaluation_ends_and_its_step_is_saved() {
    for signal in ["TERM", "HUP"] {
        let place = Place::new();
        let long = "--set train.steps=6 --set train.eval_every_steps=3 \
                    --set data.synthetic.val_images=3000";
        let mut command = place.command(&micro(long));
        let mut running = Running::start(command.env("ONEGRAPH_LOG", "info"));
        running.until("evaluates");
        let took = running.acknowledged(signal);
        assert!(took < ANSWER, "SIG{signal} while evaluating: {took:?}");
        assert_eq!(running.code(), Some(INTERRUPTED));
        assert_eq!(place.text("runs/micro/last_checkpoint"), "checkpoints/step_00000003\n");
        assert_eq!(debris(&place), Vec::<String>::new());
    }
}

#[test]
fn training_saves_after_the_first_signal_and_ends_at_the_second() {
    let place = Place::new();
    let endless = "--set train.steps=1000000 --set train.log_every_steps=1";
    let mut running = Running::start(&mut place.command(&micro(endless)));
    running.until("iter 3/");
    let took = running.acknowledged("HUP");
    assert!(took < ANSWER, "while training: {took:?}");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert!(place.join("runs/micro/last_checkpoint").exists());
    assert_eq!(debris(&place), Vec::<String>::new());

    // A step of a large model takes long; the second signal does not wait for it.
    let place = Place::new();
    let large = "train quickstart --set data.synthetic.train_images=600 \
                 --set train.batch_size=512 --set train.images_per_group=512 \
                 --set data.synthetic.val_images=2";
    let mut running = Running::start(&mut place.command(large));
    running.until("run directory");
    // The step has begun soon after.
    std::thread::sleep(Duration::from_millis(500));
    assert!(running.acknowledged("INT") < ANSWER);
    let since = Instant::now();
    running.send("INT");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert!(since.elapsed() < ANSWER, "the second signal: {:?}", since.elapsed());
}

/// The same on a device, whose step then never ends.
#[test]
fn training_on_a_device_saves_after_the_first_signal_and_ends_at_the_second() {
    let gpus = Gpus::new("A100");
    let endless = micro("--device cuda --set train.steps=1000000 --set train.log_every_steps=1");
    let mut running = Running::start(&mut gpus.command(&endless, &[]));
    running.until("iter 3/");
    running.acknowledged("TERM");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert!(gpus.place.join("runs/micro/last_checkpoint").exists());
    assert_eq!((debris(&gpus.place), gpus.findings()), (vec![], String::new()));

    let gpus = Gpus::new("A100");
    let hang = [("DRIVER_PLANT", "hang:finish_step:6")];
    let mut running = Running::start(&mut gpus.command(&endless, &hang));
    running.until("iter 3/");
    running.acknowledged("INT");
    running.send("INT");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert_eq!(debris(&gpus.place), Vec::<String>::new());
}

#[test]
fn a_signal_that_is_ignored_stays_ignored() {
    let place = Place::new();
    let endless = micro("--set train.steps=1000000 --set train.log_every_steps=1");
    let program = place.command(&endless);
    let mut nohup = Command::new("nohup");
    nohup.arg(program.get_program()).args(program.get_args()).current_dir(place.path());
    let mut running = Running::start(&mut nohup);
    running.until("iter 3/");
    running.send("HUP");
    running.until("iter 300/");
    assert!(running.child.try_wait().expect("a child of ours").is_none(), "SIGHUP ended it");
    running.acknowledged("TERM");
    assert_eq!(running.code(), Some(INTERRUPTED));
}

/// A pager that waits for a key does not read.
#[test]
fn a_second_signal_ends_a_run_whose_terminal_is_stuck() {
    let place = Place::new();
    let endless = micro("--set train.steps=1000000 --set train.log_every_steps=1");
    let mut command = with_default_signals(&place.command(&endless));
    command.stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let mut running = Running { child: command.spawn().expect("it starts"), lines: channel().1 };
    let metrics = place.join("runs/micro/metrics.jsonl");
    let length = || std::fs::metadata(&metrics).map_or(0, |meta| meta.len());
    let mut before = 0;
    // It stands still once the pipe is full.
    while length() == 0 || length() != before {
        before = length();
        std::thread::sleep(Duration::from_millis(500));
    }
    let since = Instant::now();
    running.send("TERM");
    std::thread::sleep(Duration::from_millis(200));
    running.send("TERM");
    assert_eq!(running.code(), Some(INTERRUPTED));
    assert!(since.elapsed() < ANSWER, "{:?}", since.elapsed());
}

#[test]
fn two_processes_do_not_train_one_run() {
    let place = Place::new();
    let endless = micro("--set train.steps=1000000 --set train.log_every_steps=1");
    let mut running = Running::start(&mut place.command(&endless));
    running.until("iter 3/");
    let host = "is the run directory of process";
    let pid = running.child.id().to_string();
    place.bad("train --resume runs/micro", common::BAD_CONFIG, &["runs/micro", host, &pid]);
    // A process that dies leaves no lock behind.
    running.child.kill().expect("kill -9");
    running.child.wait().expect("it ends");
    place.good(&micro("--set train.steps=1 --set train.name=other"));
    let after = place.run("train --resume runs/micro --set train.steps=1");
    assert!(!after.err.contains(host), "{}", after.err);
}
