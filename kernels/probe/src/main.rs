//! `probe`: measures the variants on this machine's GPU, each in its own process.

mod child;
mod journal;
mod list;

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::{Parser, Subcommand};
use device::architecture::Architecture;
use device::cuda::Installed;
use probe::identity::{CANDIDATES, Candidate};
use probe::measure::{self, Figures};
use probe::shapes::{STEP, Shape};
use probe::variants::{VARIANTS, Variant};

use journal::{Journal, Outcome};

/// Measures variants of the forward loop against today's; each is checked first.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Print variants, shapes, predictions and registers, and run nothing.
    #[arg(long)]
    list: bool,
    /// Write the figures to this file, anew after each variant.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Run only these variants: names from --list, or `identity` for the descriptor check.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    only: Vec<String>,
    /// Run only these shapes: names from --list.
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    shapes: Vec<String>,
    /// Seconds for everything; nothing starts after that.
    #[arg(long, default_value_t = 240)]
    seconds: u64,
    /// Seconds for one variant on one shape; it is stopped then.
    #[arg(long, default_value_t = 30)]
    each: u64,
    /// Number of runs per median.
    #[arg(long, default_value_t = 20)]
    repeats: usize,
    /// Number of the GPU.
    #[arg(long, default_value_t = 0)]
    gpu: usize,
    #[command(subcommand)]
    one: Option<One>,
}

/// One measurement in this process: how `probe` starts itself.
#[derive(Debug, Subcommand)]
enum One {
    /// A variant on a shape.
    #[command(hide = true)]
    Variant { variant: String, shape: String, repeats: usize, gpu: usize },
    /// A candidate for the descriptors.
    #[command(hide = true)]
    Identity { candidate: String, gpu: usize },
}

/// Prefix of the child's figures, as JSON.
const FIGURES: &str = "figures: ";
/// Prefix of the child's result for a candidate.
const READ: &str = "read: ";

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.one {
        Some(one) => run_one(one).map(|()| true),
        None if arguments.list => list::print().map(|()| true),
        None => run(&arguments),
    };
    match done {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("error: {fault:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_one(one: &One) -> anyhow::Result<()> {
    match one {
        One::Variant { variant, shape, repeats, gpu } => {
            let variant = Variant::named(variant).with_context(|| unknown(variant))?;
            let shape = Shape::named(shape).with_context(|| unknown(shape))?;
            let figures = measure::variant(*gpu, &variant, &shape, *repeats)?;
            println!("{FIGURES}{}", serde_json::to_string(&figures)?);
        }
        One::Identity { candidate, gpu } => {
            let candidate = Candidate::named(candidate).with_context(|| unknown(candidate))?;
            let fault = measure::identity(*gpu, &candidate)?;
            println!("{READ}{}", fault.as_deref().unwrap_or("as meant"));
        }
    }
    Ok(())
}

fn unknown(name: &str) -> String {
    format!("there is no `{name}`; --list names variants, shapes and candidates")
}

/// One measurement of the list.
#[derive(Debug, Clone, Copy)]
enum Work {
    Identity(Candidate),
    Variant(Variant, Shape),
}

impl Work {
    fn names(&self) -> [&'static str; 2] {
        match self {
            Work::Identity(candidate) => ["identity", candidate.name],
            Work::Variant(variant, shape) => [variant.name, shape.name],
        }
    }

    fn hopper(&self) -> bool {
        match self {
            Work::Identity(_) => true,
            Work::Variant(variant, _) => variant.hopper,
        }
    }

    /// The command that does it.
    fn arguments(&self, arguments: &Arguments) -> Vec<String> {
        let (gpu, repeats) = (arguments.gpu.to_string(), arguments.repeats.to_string());
        let [first, second] = self.names().map(String::from);
        match self {
            Work::Identity(_) => vec!["identity".into(), second, gpu],
            Work::Variant(..) => vec!["variant".into(), first, second, repeats, gpu],
        }
    }
}

/// The work, in order: the descriptors before the variants that depend on them, and shape by shape,
/// so that a run that is cut short still answers for the largest.
fn plan(arguments: &Arguments) -> anyhow::Result<Vec<Work>> {
    for name in &arguments.only {
        if name != "identity" && Variant::named(name).is_none() {
            bail!("{}", unknown(name));
        }
    }
    for name in &arguments.shapes {
        Shape::named(name).with_context(|| unknown(name))?;
    }
    let wanted = |list: &[String], name: &str| list.is_empty() || list.iter().any(|n| n == name);
    let mut work = Vec::new();
    if wanted(&arguments.only, "identity") {
        work.extend(CANDIDATES.map(Work::Identity));
    }
    for shape in STEP.into_iter().filter(|shape| wanted(&arguments.shapes, shape.name)) {
        let variants = VARIANTS.into_iter().filter(|v| wanted(&arguments.only, v.name));
        work.extend(variants.map(|variant| Work::Variant(variant, shape)));
    }
    Ok(work)
}

/// Runs everything; false if something was wrong, failed or was stopped.
fn run(arguments: &Arguments) -> anyhow::Result<bool> {
    let plan = plan(arguments)?;
    let installed = Installed::find()?;
    let gpu = installed.gpus.get(arguments.gpu).with_context(|| {
        format!("there is no GPU {}, only {}", arguments.gpu, installed.gpus.len())
    })?;
    if let Some(refused) = &gpu.refused {
        bail!("{refused}");
    }
    let mut journal = Journal::new(&gpu.name, &installed.cuda, arguments.json.clone())?;
    let hopper = Architecture::COMPUTE_90A.runs_on(gpu.capability);
    let program = std::env::current_exe().context("this program's own file")?;
    let began = Instant::now();
    let mut fine = true;
    for work in plan {
        let left = Duration::from_secs(arguments.seconds).saturating_sub(began.elapsed());
        let limit = left.min(Duration::from_secs(arguments.each));
        journal.begin(work.names());
        let outcome = if work.hopper() && !hopper {
            Outcome::Skipped("it is for H100 and H200 alone".into())
        } else if left.is_zero() {
            Outcome::Skipped(format!("the {} s are over", arguments.seconds))
        } else {
            let mut command = Command::new(&program);
            command.args(work.arguments(arguments));
            outcome(&work, child::run(&mut command, limit))
        };
        fine &= !outcome.is_fault();
        journal.end(work.names(), outcome)?;
    }
    Ok(fine)
}

/// Interprets a child's end.
fn outcome(work: &Work, ended: anyhow::Result<child::Ended>) -> Outcome {
    let ended = match ended {
        Ok(ended) => ended,
        Err(fault) => return Outcome::Failed(format!("{fault:#}")),
    };
    let Some(status) = ended.status else {
        return Outcome::Stopped(ended.seconds);
    };
    if !status.success() {
        return Outcome::Failed(format!("{} ({status})", ended.last_line()));
    }
    match work {
        Work::Variant(..) => match ended.line(FIGURES).map(serde_json::from_str::<Figures>) {
            Some(Ok(figures)) => Outcome::Measured(figures),
            _ => Outcome::Failed("it ended well and gave no figures".into()),
        },
        Work::Identity(candidate) => match ended.line(READ) {
            Some("as meant") => {
                Outcome::Read { holds: true, expected: candidate.holds, what: None }
            }
            Some(what) => {
                let what = Some(what.to_string());
                Outcome::Read { holds: false, expected: candidate.holds, what }
            }
            None => Outcome::Failed("it ended well and said nothing".into()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ended(code: i32, output: &str) -> child::Ended {
        let mut command = Command::new("sh");
        let script = format!("printf '%s\\n' '{output}'; exit {code}");
        child::run(command.args(["-c", &script]), Duration::from_secs(60)).expect("sh starts")
    }

    #[test]
    fn the_end_of_a_child_is_read() {
        let [variant, ..] = VARIANTS;
        let work = Work::Variant(variant, STEP[0]);
        let failed = |code, output: &str| match outcome(&work, Ok(ended(code, output))) {
            Outcome::Failed(why) => why,
            other => panic!("{other:?}"),
        };
        assert_eq!(failed(1, "error: illegal address"), "error: illegal address (exit status: 1)");
        assert_eq!(failed(0, "nothing"), "it ended well and gave no figures");
        let work = Work::Identity(CANDIDATES[0]);
        let read = outcome(&work, Ok(ended(0, "read: as meant")));
        assert!(matches!(read, Outcome::Read { holds: true, expected: true, what: None }));
        let read = outcome(&work, Ok(ended(0, "read: 3 of 8192 values are wrong")));
        assert!(read.is_fault());
    }

    #[test]
    fn names_are_checked_before_a_gpu_is_looked_for() {
        let with = |list: &[&str]| Arguments::parse_from(["probe"].iter().chain(list));
        assert_eq!(plan(&with(&[])).expect("all").len(), 8 + 4 * 12);
        let few = plan(&with(&["--only", "pointers,identity", "--shapes", "res2_c3"]));
        assert_eq!(few.expect("some").len(), 8 + 1);
        let fault = plan(&with(&["--only", "pointer"])).expect_err("no such variant");
        assert_eq!(
            fault.to_string(),
            "there is no `pointer`; --list names variants, shapes and candidates"
        );
    }
}
