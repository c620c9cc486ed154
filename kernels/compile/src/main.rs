//! `compile-kernels`: compiles the CUDA sources into `ptx/`, or checks that folder.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use compile::child;
use compile::sass::ratchet::reason;
use compile::toolkit::Toolkit;
use compile::{FOLDER, Fault, Outcome, Task, root, run, sass_table};

/// Compiles kernels/src/**/*.cu with the pinned NVRTC into ptx/.
#[derive(Debug, Parser)]
struct Arguments {
    /// Compare with the checked-in files instead of writing; exit code 1 if they differ.
    #[arg(long)]
    check: bool,
    /// Print the machine-code figures of the hot kernels as a table, instead of writing.
    #[arg(long, conflicts_with = "check")]
    sass: bool,
    /// Record regressions of hot kernels, with the reason.
    #[arg(long, value_name = "REASON", value_parser = reason)]
    #[arg(conflicts_with_all = ["check", "sass"])]
    accept_worse: Option<String>,
    /// Folder of the unpacked toolkit wheels (it contains `nvidia/cuda_nvrtc` and others).
    #[arg(long, value_name = "DIR", required_unless_present = "fetch")]
    toolkit: Option<PathBuf>,
    /// Download the wheels with pip into target/, unless they are already there.
    #[arg(long, conflicts_with = "toolkit")]
    fetch: bool,
}

fn main() -> ExitCode {
    let is_child = std::env::args().nth(1).is_some_and(|first| first == child::ARGUMENT);
    let done = if is_child {
        child::run().map(|()| ExitCode::SUCCESS)
    } else {
        compile(&Arguments::parse())
    };
    match done {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("compile-kernels: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn compile(arguments: &Arguments) -> Result<ExitCode, Fault> {
    let root = root();
    let toolkit = match &arguments.toolkit {
        Some(folder) => Toolkit::open(folder)?,
        None => Toolkit::fetch(&root)?,
    };
    if arguments.sass {
        print!("{}", sass_table(&root, &toolkit)?);
        return Ok(ExitCode::SUCCESS);
    }
    let task = match &arguments.accept_worse {
        Some(reason) => Task::WriteWorse(reason),
        None if arguments.check => Task::Check,
        None => Task::Write,
    };
    let begin = Instant::now();
    let outcome = run(&root, &toolkit, task)?;
    let is_well = report(&outcome, arguments.check, begin.elapsed().as_secs_f64());
    Ok(if is_well { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints the result; true if it matches the sources.
fn report(outcome: &Outcome, check: bool, seconds: f64) -> bool {
    let Outcome { worse, unrecorded, differences, written } = outcome;
    for sentence in worse.iter().chain(unrecorded) {
        eprintln!("{sentence}");
    }
    if *written {
        println!("{FOLDER}/: written ({seconds:.1} s)");
        return true;
    }
    if !check {
        eprintln!("{FOLDER}/: not written, since figures are worse than recorded");
        return false;
    }
    for sentence in differences {
        eprintln!("{sentence}");
    }
    if !(unrecorded.is_empty() && differences.is_empty()) {
        eprintln!("run `cargo run --release -p compile -- --fetch` and commit {FOLDER}/");
    } else if worse.is_empty() {
        println!("{FOLDER}/: is as compiled ({seconds:.1} s)");
        return true;
    }
    false
}
