//! `compile-kernels`: compiles the CUDA sources into `ptx/`, or checks what is there.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use compile::toolkit::Toolkit;
use compile::{FOLDER, Fault, root, run};

/// Compiles kernels/src/**/*.cu with the pinned NVRTC into ptx/.
#[derive(Debug, Parser)]
struct Arguments {
    /// Compare with what is checked in instead of writing; exit code 1 if it differs.
    #[arg(long)]
    check: bool,
    /// Folder of the unpacked toolkit wheels (it holds `nvidia/cuda_nvrtc` and others).
    #[arg(long, value_name = "DIR", required_unless_present = "fetch")]
    toolkit: Option<PathBuf>,
    /// Download the wheels with pip into target/, unless they are there.
    #[arg(long, conflicts_with = "toolkit")]
    fetch: bool,
}

fn main() -> ExitCode {
    match compile(&Arguments::parse()) {
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
    let begin = Instant::now();
    let differences = run(&root, &toolkit, arguments.check)?;
    let seconds = begin.elapsed().as_secs_f64();
    if differences.is_empty() {
        let done = if arguments.check { "is as compiled" } else { "written" };
        println!("{FOLDER}/: {done} ({seconds:.1} s)");
        return Ok(ExitCode::SUCCESS);
    }
    for difference in &differences {
        eprintln!("{difference}");
    }
    eprintln!("run `cargo run --release -p compile -- --fetch` and commit {FOLDER}/");
    Ok(ExitCode::FAILURE)
}
