//! Mistakes that CUDA engineers make, planted as a program would make them: through the driver's C
//! functions and PTX text. The driver must name each one, and must let its corrected twin pass.
//!
//! An error of the device lasts as long as its process, so each plant runs in one of its own.

mod behaviour;
mod captures;
mod cuda;
mod hopper;
mod host;
mod kernels;
mod maps;
mod products;
mod results;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, abort, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use cuda::Gpu;

/// A mistake.
struct Plant {
    name: &'static str,
    /// The driver's variables, as `NAME=VALUE`.
    variables: &'static [&'static str],
    program: Program,
    /// The error number that the program meets.
    code: i32,
    /// Parts of the report, with `|` between them; empty if the driver says nothing.
    says: &'static str,
}

/// The program that holds the mistake.
#[derive(Clone, Copy)]
enum Program {
    /// A launch of one kernel.
    Kernel(kernels::Launch),
    /// Calls, with the mistake if the argument says so.
    Calls(fn(&Gpu, bool) -> i32),
    /// The same, without a GPU that is open.
    Alone(fn(bool) -> i32),
}

impl Program {
    fn run(self, is_wrong: bool) -> i32 {
        if let Self::Alone(calls) = self {
            return calls(is_wrong);
        }
        let gpu = Gpu::open();
        let code = match self {
            Self::Kernel(launch) => launch.run(&gpu, is_wrong),
            Self::Calls(calls) => calls(&gpu, is_wrong),
            Self::Alone(_) => 0,
        };
        gpu.close();
        code
    }
}

/// Set in the process of a plant: its name, behind `wrong ` or `right `.
const CHILD: &str = "DRIVER_PLANTED_CHILD";
/// Begins the line of the report with the error number that the program met.
const CODE: &str = "code: ";
/// A process that takes longer hangs.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Mistakes of kernels, mistakes of hosts, and programs without one.
const TABLES: [&[&[Plant]]; 3] = [
    &[kernels::PLANTS, hopper::PLANTS],
    &[host::PLANTS, captures::PLANTS, maps::FIELDS, maps::OLDER],
    &[behaviour::PROMISES, results::PROMISES],
];

/// Runs a plant, adds its error number to the report, and ends the process.
fn child(task: &str) -> ! {
    thread::spawn(|| {
        thread::sleep(MAX_TIME);
        abort();
    });
    let (which, name) = task.split_once(' ').expect("which, and a name");
    let mut plants = TABLES.into_iter().flatten().copied().flatten();
    let plant = plants.find(|plant| plant.name == name).expect("a plant");
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
    let is_found = |part: &str| findings.iter().any(|line| line.contains(part));
    let is_said = match plant.says {
        "" => findings.is_empty(),
        says => says.split('|').all(is_found),
    };
    let has_place = |line: &String| {
        let begins = line.starts_with("fault: kernel `plant`, PTX line ");
        begins && line.contains(", block [") && line.contains(", thread ")
    };
    // A refusal has no place but its line.
    let is_executed = matches!(plant.program, Program::Kernel(_)) && plant.code != 218;
    let is_said = is_said && (!is_executed || findings.iter().any(has_place));
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

/// Checks all plants of some tables.
fn check_all(tables: &[&'static [Plant]]) {
    let plants: Vec<&Plant> = tables.iter().copied().flatten().collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = thread::available_parallelism().map_or(4, usize::from).min(16);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(plant) = plants.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let file = format!("planted.{}.{plant:p}", std::process::id());
                    let found = check(plant, &env::temp_dir().join(file));
                    faults.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each planted mistake of a host is met with the error number and the sentence of its table, and
/// each corrected program passes without a word.
#[test]
fn mistakes_are_found() {
    if let Ok(task) = env::var(CHILD) {
        child(&task);
    }
    check_all(TABLES[1]);
}

/// The same for kernels, whose sentence names kernel, line, block and thread.
#[test]
fn planted_faults_are_told_with_their_place() {
    check_all(TABLES[0]);
}

/// Programs without a mistake, in which the driver does what CUDA's documentation says.
#[test]
fn programs_without_a_mistake_get_what_cuda_promises() {
    check_all(TABLES[2]);
}
