//! `compile-probe`: compiles the variants into `kernels/probe/ptx`, or checks what is there.
//!
//! Beside `compile-kernels`, whose compiler and assembler it uses: the variants are no part of what
//! training runs, and some of them are for one architecture alone.

mod output;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Parser;
use compile::output::{differences, present, write};
use compile::toolkit::Toolkit;
use compile::{Fault, root};

/// Compiles kernels/probe/cuda/*.cu with the pinned NVRTC into kernels/probe/ptx/, and assembles
/// the result into target/compile-probe/*.cubin.
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
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(fault) => {
            eprintln!("compile-probe: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode, Fault> {
    let root = root();
    let toolkit = match &arguments.toolkit {
        Some(folder) => Toolkit::open(folder)?,
        None => Toolkit::fetch(&root)?,
    };
    let begin = Instant::now();
    let files = output::compile(&root, &toolkit)?;
    let folder = root.join(output::FOLDER);
    let mut sentences = Vec::new();
    if arguments.check {
        sentences = differences(&files, &present(&folder)?);
    } else {
        write(&folder, &files)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    if sentences.is_empty() {
        let done = if arguments.check { "is as compiled" } else { "written" };
        println!("{}/: {done} ({seconds:.1} s)", output::FOLDER);
        return Ok(ExitCode::SUCCESS);
    }
    for sentence in &sentences {
        eprintln!("kernels/probe/{sentence}");
    }
    let folder = output::FOLDER;
    eprintln!(
        "run `cargo run --release -p probe --bin compile-probe -- --fetch`, commit {folder}/"
    );
    Ok(ExitCode::FAILURE)
}
