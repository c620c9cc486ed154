//! `kill -9` at random moments in every phase: generating, preparing, training, saving, evaluating.
//! After a restart, the command's results are bit-identical.
//!
//! By default the tests kill a few times; `ONEGRAPH_KILLS=100 cargo test --release -p tests --test
//! kills -- --nocapture` kills more often, and prints one line per kill.

mod common;

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, micro};

const RUN: &str = "--set train.steps=40 --set train.eval_every_steps=10 \
                   --set train.checkpoint_every_steps=3 --set data.synthetic.train_images=60";
const PREP: &str = "prep --synthetic shapes --count 300 --size 64 --out set";

/// A fixed sequence of numbers from 0 to 1.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn kills() -> u64 {
    std::env::var("ONEGRAPH_KILLS").map_or(6, |text| text.parse().expect("a number"))
}

/// Starts a command and kills it after `moment`. True if it was still running.
fn kill_after(place: &Place, command: &str, moment: Duration) -> bool {
    let mut command = place.command(command);
    let started = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut child = started.expect("the command starts");
    std::thread::sleep(moment);
    let was_running = child.try_wait().expect("a child of ours").is_none();
    child.kill().expect("kill -9");
    child.wait().expect("it ends");
    was_running
}

/// Path and contents of every file under a folder, sorted; without the two files of a store that
/// record the modification times of its image files.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(&next).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if !path.ends_with("header.json") && !path.ends_with("sources.bin") {
                let name = path.strip_prefix(folder).expect("inside").display().to_string();
                found.push((name, std::fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn killed_run_resumes_bit_identically() {
    let whole = Place::new();
    let since = Instant::now();
    whole.good(&micro(RUN));
    let took = since.elapsed();
    let (state, metrics) = (whole.state("runs/micro", 40), whole.metrics("runs/micro"));
    let mut moments = Moments(1);
    for kill in 0..kills() {
        let place = Place::new();
        let moment = took.mul_f64(moments.next());
        let was_running = kill_after(&place, &micro(RUN), moment);
        let saved = place.join("runs/micro/last_checkpoint").exists();
        println!("kill {kill} after {moment:?}: running {was_running}, saved {saved}");
        if saved {
            // Kill it again while it resumes.
            kill_after(&place, "train --resume runs/micro", took.mul_f64(moments.next()));
            place.good("train --resume runs/micro");
        } else {
            place.good(&micro(&format!("{RUN} --set train.name=again")));
        }
        let run = if saved { "runs/micro" } else { "runs/again" };
        assert!(place.state(run, 40) == state, "kill {kill} after {moment:?}: other weights");
        assert!(place.metrics(run) == metrics, "kill {kill} after {moment:?}: other metrics");
    }
}

#[test]
fn killed_data_preparation_is_repeated() {
    let whole = Place::new();
    let since = Instant::now();
    whole.good(PREP);
    let took = since.elapsed();
    let expected = files(&whole.join("set"));
    assert!(expected.len() > 300, "images and a store");
    let mut moments = Moments(2);
    for kill in 0..kills() {
        let place = Place::new();
        let moment = took.mul_f64(moments.next());
        let was_running = kill_after(&place, PREP, moment);
        let placed = place.join("set").exists();
        println!("kill {kill} after {moment:?}: running {was_running}, placed {placed}");
        if !placed {
            place.good(PREP);
        }
        let got = files(&place.join("set"));
        let names = |files: &[(String, Vec<u8>)]| -> Vec<String> {
            files.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&got), names(&expected), "kill {kill} after {moment:?}");
        for (got, expected) in got.iter().zip(&expected) {
            assert!(got == expected, "kill {kill} after {moment:?}: other bytes in {}", got.0);
        }
        let left = place.names(".");
        let debris: Vec<_> = left.iter().filter(|name| name.contains(".tmp")).collect();
        assert!(placed || debris.is_empty(), "kill {kill} after {moment:?}: {left:?}");
    }
}
