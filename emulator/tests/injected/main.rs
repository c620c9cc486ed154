//! Typical mistakes in CUDA programs, which use the driver's C functions and PTX text. The driver
//! must report each mistake, and accept the corrected program.
//!
//! A device error persists until the process ends, so each mistake runs in a separate process.

mod behaviour;
mod captures;
mod cuda;
mod hopper;
mod host;
mod kernels;
mod maps;
mod results;
mod wgmma;

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::process::{Command, abort, exit};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{env, thread};

use cuda::Gpu;

/// A program with a mistake, or, in the last table, a correct program.
struct FaultProgram {
    name: &'static str,
    /// The driver's variables, as `NAME=VALUE`.
    variables: &'static [&'static str],
    program: Program,
    /// The error code that the program gets.
    code: i32,
    /// Texts that the report must contain, separated by `|`; empty if no report is expected.
    says: &'static str,
}

/// The code of a program.
#[derive(Clone, Copy)]
enum Program {
    /// A launch of one kernel.
    Kernel(kernels::Launch),
    /// A function that makes the calls, with the mistake if its second argument is true.
    Calls(fn(&Gpu, bool) -> i32),
    /// Like `Calls`, without an open GPU.
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

/// Environment variable of a child process: `wrong` or `right`, and the name of the program.
const CHILD: &str = "DRIVER_INJECTED_CHILD";
/// Prefix of the report line that contains the program's error code.
const CODE: &str = "code: ";
/// Maximum duration of a process; longer ones are considered hung.
const MAX_TIME: Duration = Duration::from_secs(60);

/// Tables of mistakes in kernels, of mistakes on the host, and of correct programs.
const TABLES: [&[&[FaultProgram]]; 3] = [
    &[kernels::PROGRAMS, hopper::PROGRAMS],
    &[host::PROGRAMS, captures::PROGRAMS, maps::FIELDS, maps::OLDER],
    &[behaviour::PROMISES, results::PROMISES],
];

/// Runs a program, adds its error code to the report, and exits the process.
fn child(task: &str) -> ! {
    thread::spawn(|| {
        thread::sleep(MAX_TIME);
        abort();
    });
    let (which, name) = task.split_once(' ').expect("which, and a name");
    let mut programs = TABLES.into_iter().flatten().copied().flatten();
    let case = programs.find(|case| case.name == name).expect("a program");
    let code = case.program.run(which == "wrong");
    report(&format!("{CODE}{code}"));
    exit(0)
}

/// Adds a line to the report.
fn report(line: &str) {
    let path = env::var_os("DRIVER_REPORT").expect("a report");
    let mut file = OpenOptions::new().create(true).append(true).open(path).expect("a file");
    file.write_all(format!("{line}\n").as_bytes()).expect("space");
}

/// Runs a program in a process; returns its error code, if it completed, and the driver's findings.
fn process(case: &FaultProgram, is_wrong: bool, report: &Path) -> (Option<i32>, Vec<String>) {
    let mut command = Command::new(env::current_exe().expect("this test"));
    command.args(["every_host_mistake_is_detected", "--exact", "--nocapture", "--test-threads=1"]);
    for (name, _) in env::vars_os() {
        let is_ours = name.to_string_lossy().starts_with("DRIVER_");
        if is_ours || name == "CUDA_VISIBLE_DEVICES" {
            command.env_remove(name);
        }
    }
    command.envs(case.variables.iter().map(|text| text.split_once('=').expect("a variable")));
    let which = if is_wrong { "wrong" } else { "right" };
    command.env(CHILD, format!("{which} {}", case.name)).env("DRIVER_REPORT", report);
    command.output().expect("a process");
    let text = fs::read_to_string(report).unwrap_or_default();
    // The file is missing if the process failed before creating it.
    let _ = fs::remove_file(report);
    let code = text.lines().find_map(|line| line.strip_prefix(CODE)?.parse().ok());
    let findings = text.lines().filter(|line| !line.starts_with(CODE));
    (code, findings.map(str::to_owned).collect())
}

/// Runs a program and its corrected variant; returns the deviations from the expected results.
fn check(case: &FaultProgram, report: &Path) -> Vec<String> {
    let (code, findings) = process(case, true, report);
    let is_found = |part: &str| findings.iter().any(|line| line.contains(part));
    let is_said = match case.says {
        "" => findings.is_empty(),
        says => says.split('|').all(is_found),
    };
    let has_place = |line: &String| {
        let begins = line.starts_with("fault: kernel `plant`, PTX line ");
        begins && line.contains(", block [") && line.contains(", thread ")
    };
    // Code 218 is a rejected module, whose message has only a line as location.
    let is_executed = matches!(case.program, Program::Kernel(_)) && case.code != 218;
    let is_said = is_said && (!is_executed || findings.iter().any(has_place));
    let mut faults = vec![];
    if code != Some(case.code) || !is_said {
        let (number, says) = (case.code, case.says);
        faults.push(format!("{}: {code:?} {findings:#?}\nand not {number} `{says}`", case.name));
    }
    let (code, findings) = process(case, false, report);
    if code != Some(0) || !findings.is_empty() {
        faults.push(format!("{}, corrected: {code:?} {findings:#?}", case.name));
    }
    faults
}

/// Checks all programs of some tables.
fn check_all(tables: &[&'static [FaultProgram]]) {
    let programs: Vec<&FaultProgram> = tables.iter().copied().flatten().collect();
    let (next, faults) = (AtomicUsize::new(0), Mutex::new(vec![]));
    let threads = thread::available_parallelism().map_or(4, usize::from).min(16);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(case) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let file = format!("injected.{}.{case:p}", std::process::id());
                    let found = check(case, &env::temp_dir().join(file));
                    faults.lock().expect("no panic").extend(found);
                }
            });
        }
    });
    let faults = faults.into_inner().expect("no panic");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Each mistake on the host causes the expected error code and message, and each corrected program
/// passes without findings.
#[test]
fn every_host_mistake_is_detected() {
    if let Ok(task) = env::var(CHILD) {
        child(&task);
    }
    check_all(TABLES[1]);
}

/// Each mistake in a kernel causes the expected error code and a message with kernel, line, block
/// and thread.
#[test]
fn every_kernel_mistake_reports_its_location() {
    check_all(TABLES[0]);
}

/// Correct programs, for which the driver must behave as CUDA's documentation describes.
#[test]
fn correct_programs_behave_as_cuda_documents() {
    check_all(TABLES[2]);
}
