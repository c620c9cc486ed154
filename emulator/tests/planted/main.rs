//! Mistakes that CUDA engineers make, planted as a program would make them: through the driver's C
//! functions and PTX text. The driver must name each one, and must let its corrected twin pass.
//!
//! An error of the device lasts as long as its process, so each plant runs in one of its own.

mod cuda;
mod graphs;
mod hopper;
mod host;
mod kernels;
mod shared;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, abort, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

/// A mistake.
struct Plant {
    name: &'static str,
    /// The driver's variables, as `NAME=VALUE`.
    variables: &'static [&'static str],
    program: Program,
    /// The error number that the program meets.
    code: i32,
    /// A part of what the report says; empty if the driver says nothing.
    says: &'static str,
}

/// The program that holds the mistake.
#[derive(Clone, Copy)]
enum Program {
    /// A launch of one kernel.
    Kernel(kernels::Launch),
    /// Calls, with the mistake if the argument says so.
    Calls(fn(bool) -> i32),
}

impl Program {
    fn run(self, is_wrong: bool) -> i32 {
        match self {
            Self::Kernel(launch) => launch.run(is_wrong),
            Self::Calls(calls) => calls(is_wrong),
        }
    }
}

/// Set in the process of a plant: its name, behind `wrong ` or `right `.
const CHILD: &str = "DRIVER_PLANTED_CHILD";
/// Begins the line of the report with the error number that the program met.
const CODE: &str = "code: ";
/// A process that takes longer hangs.
const MAX_TIME: Duration = Duration::from_secs(20);

fn plants() -> Vec<&'static Plant> {
    let tables = [
        kernels::PLANTS,
        shared::PLANTS,
        host::PLANTS,
        graphs::PLANTS,
        hopper::PLANTS,
        hopper::MAPS,
    ];
    tables.into_iter().flatten().collect()
}

/// Runs a plant, adds its error number to the report, and ends the process.
fn child(task: &str) -> ! {
    thread::spawn(|| {
        thread::sleep(MAX_TIME);
        abort();
    });
    let (which, name) = task.split_once(' ').expect("which, and a name");
    let plant = plants().into_iter().find(|plant| plant.name == name).expect("a plant");
    let code = plant.program.run(which == "wrong");
    report(&format!("{CODE}{code}"));
    exit(0)
}

/// Adds a line to the report.
fn report(line: &str) {
    let path = env::var_os("DRIVER_REPORT").expect("a report");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("space");
}

/// The error number that a program met, if it came to its end, and the driver's findings.
fn process(plant: &Plant, is_wrong: bool, report: &Path) -> (Option<i32>, Vec<String>) {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args(["mistakes_are_found", "--exact", "--nocapture", "--test-threads=1"]);
    for (name, _) in env::vars_os() {
        let is_ours = name.to_string_lossy().starts_with("DRIVER_");
        if is_ours || name == "CUDA_VISIBLE_DEVICES" {
            command.env_remove(name);
        }
    }
    command.envs(plant.variables.iter().map(|text| text.split_once('=').expect("a variable")));
    let which = if is_wrong { "wrong" } else { "right" };
    command.env(CHILD, format!("{which} {}", plant.name)).env("DRIVER_REPORT", report);
    command.output().expect("a process");
    let text = fs::read_to_string(report).unwrap_or_default();
    // There is none if the process failed before it made one.
    let _ = fs::remove_file(report);
    let code = text.lines().find_map(|line| line.strip_prefix(CODE)?.parse().ok());
    let findings = text.lines().filter(|line| !line.starts_with(CODE));
    (code, findings.map(str::to_owned).collect())
}

/// Runs a plant and its twin: what is not as it must be.
fn check(plant: &Plant, report: &Path) -> Vec<String> {
    let (code, findings) = process(plant, true, report);
    let is_said = if plant.says.is_empty() {
        findings.is_empty()
    } else {
        findings.iter().any(|line| line.contains(plant.says))
    };
    let mut faults = vec![];
    if code != Some(plant.code) || !is_said {
        let (number, says) = (plant.code, plant.says);
        faults.push(format!("{}: {code:?} {findings:#?}\nand not {number} `{says}`", plant.name));
    }
    let (code, findings) = process(plant, false, report);
    if code != Some(0) || !findings.is_empty() {
        faults.push(format!("{}, corrected: {code:?} {findings:#?}", plant.name));
    }
    faults
}

/// Each planted mistake is met with the error number and the sentence of its table, and each
/// corrected program passes without a word.
#[test]
fn mistakes_are_found() {
    if let Ok(task) = env::var(CHILD) {
        child(&task);
    }
    let plants = plants();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = thread::available_parallelism().map_or(4, usize::from).min(16);
    thread::scope(|scope| {
        for number in 0..threads {
            let file = format!("planted.{}.{number}", std::process::id());
            let report = env::temp_dir().join(file);
            let (plants, next, faults) = (&plants, &next, &faults);
            scope.spawn(move || {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check(plant, &report);
                    faults.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
