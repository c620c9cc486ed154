//! `compile-kernels`: compiles the CUDA sources into `ptx/`, or checks the files in `ptx/`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use compile::child;
use compile::sass::report;
use compile::toolkit::Toolkit;
use compile::{FOLDER, Fault, check, print, root, write};

/// Compiles kernels/src/**/*.cu with the pinned NVRTC into ptx/.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Task>,
    /// Compare with the checked-in files instead of writing; exit code 1 if they differ.
    #[arg(long)]
    check: bool,
    /// Print a report on the main loops: registers, stall cycles, waits for MMAs.
    #[arg(long, conflicts_with = "check")]
    sass: bool,
    /// Folder of the unpacked toolkit wheels (it contains `nvidia/cuda_nvrtc` and others).
    #[arg(long, value_name = "DIR", required_unless_present = "fetch")]
    toolkit: Option<PathBuf>,
    /// Download the wheels with pip into target/, unless they are already there.
    #[arg(long, conflicts_with = "toolkit")]
    fetch: bool,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Print the PTX of a kernel, or all PTX in an archive file.
    Print {
        /// The kernel's name, or a path that ends in .zst.
        name: String,
        /// Print only the PTX for this GPU: sm_80 or sm_90a.
        #[arg(long = "for", value_name = "GPU")]
        gpu: Option<String>,
        /// Print the PTX of this commit.
        #[arg(long)]
        commit: Option<String>,
    },
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
    if let Some(Task::Print { name, gpu, commit }) = &arguments.command {
        let text = match name.ends_with(".zst") {
            true => print::archive(Path::new(name)),
            false => print::kernel(&root, name, gpu.as_deref(), commit.as_deref()),
        };
        print!("{}", text?);
        return Ok(ExitCode::SUCCESS);
    }
    let toolkit = match &arguments.toolkit {
        Some(folder) => Toolkit::open(folder)?,
        None => Toolkit::fetch(&root)?,
    };
    if arguments.sass {
        print!("{}", report(&root, &toolkit)?);
        return Ok(ExitCode::SUCCESS);
    }
    let begin = Instant::now();
    if !arguments.check {
        write(&root, &toolkit)?;
        println!("{FOLDER}/: written ({:.1} s)", begin.elapsed().as_secs_f64());
        return Ok(ExitCode::SUCCESS);
    }
    let differences = check(&root, &toolkit)?;
    if differences.is_empty() {
        println!("{FOLDER}/: up to date ({:.1} s)", begin.elapsed().as_secs_f64());
        return Ok(ExitCode::SUCCESS);
    }
    differences.iter().for_each(|difference| eprintln!("{difference}"));
    eprintln!("run `cargo run --release -p compile -- --fetch` and commit {FOLDER}/");
    Ok(ExitCode::FAILURE)
}
