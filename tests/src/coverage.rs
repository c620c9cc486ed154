//! Lists the PTX instructions of a training step's kernels that neither the op cases nor the step
//! checks execute on the emulated driver.
//!
//! This binary runs `onegraph` and `gpu-checks`, which must be in the same folder. `--driver` is a
//! folder with the emulated driver's libraries under NVIDIA's names; the arguments after `--` are
//! those of `inspect plan` for a step.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use clap::Parser;

/// The checks to run, and their GPU; on a GPU with one SM, small GEMMs use large tiles.
const RUNS: [(&str, &str); 3] = [("ops", "A100"), ("ops", "A100:1"), ("step", "A100")];
/// The kernels at the start and end of a step, which are not part of a plan.
const ENDS: [&str; 2] = ["take_inputs", "finish_step"];
/// A step whose kernels have large and small tiles.
const STEP: [&str; 7] =
    ["torchvision_r50", "--set", "train.batch_size=2", "--height", "320", "--width", "512"];

#[derive(Debug, Parser)]
struct Args {
    /// Folder with libcuda.so.1 and libnccl.so.2.
    #[arg(long)]
    driver: PathBuf,
    /// The step: arguments of `onegraph inspect plan`.
    #[arg(last = true, default_values = STEP)]
    step: Vec<String>,
}

/// By kernel and PTX line with an instruction: true if the instruction was executed.
type Lines = BTreeMap<String, BTreeMap<usize, bool>>;

fn main() -> ExitCode {
    match covered(&Args::parse()) {
        Ok(lines) => {
            report(&lines);
            ExitCode::SUCCESS
        }
        Err(fault) => {
            eprintln!("error: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// A program in the same folder as this one.
fn sibling(name: &str) -> std::io::Result<Command> {
    Ok(Command::new(std::env::current_exe()?.with_file_name(name)))
}

/// The kernels that the step launches, as `onegraph inspect plan` lists them.
fn launched(step: &[String]) -> Result<Vec<String>, Box<dyn Error>> {
    let mut inspect = sibling("onegraph")?;
    let told = inspect.args(["inspect", "plan", "--device", "cuda"]).args(step).output();
    let told = told.map_err(|fault| format!("cannot start onegraph: {fault}"))?;
    let text = String::from_utf8_lossy(&told.stdout);
    let Some((_, list)) = text.split_once(" different kernels:\n") else {
        return Err(format!("inspect plan: {}", String::from_utf8_lossy(&told.stderr)).into());
    };
    let kernel = |line: &str| line.split_whitespace().nth(1).map(String::from);
    let listed = list.lines().map_while(kernel);
    Ok(listed.chain(ENDS.map(String::from)).collect())
}

fn covered(args: &Args) -> Result<Lines, Box<dyn Error>> {
    let mut lines: Lines =
        launched(&args.step)?.into_iter().map(|kernel| (kernel, BTreeMap::new())).collect();
    let folder = tempfile::tempdir()?;
    let raw = folder.path().join("covered");
    for (what, gpu) in RUNS {
        let mut command = sibling("gpu-checks")?;
        command.args([what, "--each", "600"]).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("LD_LIBRARY_PATH", &args.driver).env("DRIVER_GPUS", gpu);
        let status = command.env("DRIVER_COVERAGE", &raw).status();
        let status = status.map_err(|fault| format!("cannot start gpu-checks: {fault}"))?;
        if !status.success() {
            return Err(format!("gpu-checks {what} on {gpu}: {status}").into());
        }
    }
    for line in fs::read_to_string(&raw)?.lines() {
        let mut words = line.split(' ');
        let (kernel, at) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
        if let (Some(lines), Ok(at)) = (lines.get_mut(kernel), at.parse()) {
            *lines.entry(at).or_default() |= words.next() != Some("0");
        }
    }
    Ok(lines)
}

/// Prints the number and the line ranges of each kernel's instructions that are never executed.
fn report(kernels: &Lines) {
    let (mut all, mut missing) = (0, 0);
    for (kernel, lines) in kernels {
        let left = lines.values().filter(|executed| !**executed).count();
        let lines: Vec<(&usize, &bool)> = lines.iter().collect();
        let runs = lines.chunk_by(|a, b| a.1 == b.1).filter(|run| !run[0].1);
        let ranges = runs.map(|run| match run {
            [(first, _), .., (last, _)] => format!(" {first}-{last}"),
            _ => format!(" {}", run[0].0),
        });
        match (lines.len(), ranges.collect::<String>()) {
            (0, _) => println!("{kernel} is not launched"),
            (_, ranges) if ranges.is_empty() => {}
            (of, ranges) => println!("{kernel}: {left} of {of}, lines{ranges}"),
        }
        (all, missing) = (all + lines.len(), missing + left);
    }
    let share = 100.0 * (all - missing) as f64 / all.max(1) as f64;
    println!("{missing} of {all} instructions are not executed; {share:.1} % are");
}
