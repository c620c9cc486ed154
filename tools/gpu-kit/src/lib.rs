//! The GPU kit's runner: stages, each in its own process with a time limit, and a table.
//!
//! A stage that crashes, hangs or breaks the GPU ends as a row of the table, and the others still
//! run. Results are written as they come.

mod archive;
mod calls;
mod child;
mod clocks;
mod items;
mod program;
mod protocol;
mod reading;
mod report;
mod runner;
mod stage;
mod tools;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, CommandFactory, Parser, Subcommand};
use device::{Device, DeviceError};

use archive::Archive;
use calls::Call;
use clocks::Clocks;
use report::{Outcome, Report, Row};
use runner::Runner;
use stage::Stage;
use tools::Tools;
pub use work::{bits, steps};

/// A device, or the sentence that says why there is none.
pub type Opened = Result<Arc<dyn Device>, DeviceError>;

/// A device in a group of one rank.
pub struct InGroup {
    /// The device.
    pub device: Arc<dyn Device>,
    /// The library that sums over the group, with its version.
    pub through: String,
    /// Leaves the group.
    pub leave: Leave,
}

/// Leaves a group.
pub type Leave = Box<dyn Fn() -> Result<(), DeviceError>>;

/// Major and minor version of a library, or the sentence that says why it is not there.
pub type Version = Result<(u32, u32), DeviceError>;

/// Opens the device. A seed requests an unusual order of work, if the device supports it.
pub type Open<'a> = dyn Fn(Option<u64>) -> Arc<dyn Device> + 'a;

/// A check of the whole step, which panics with what it found wrong, and its name.
pub type Check = (&'static str, fn(&Open<'_>));

/// The device that a kit is for.
#[derive(Debug, Clone, Copy)]
pub struct Kit {
    /// Opens it. A seed requests an unusual order of work, if the device supports it.
    pub open: fn(Option<u64>) -> Opened,
    /// Opens it in a group of one rank.
    pub join: fn() -> Result<InGroup, DeviceError>,
    /// The NCCL that is installed.
    pub nccl: fn() -> Version,
    /// The checks of the stage `step`.
    pub checks: &'static [Check],
}

/// Checks and measures onegraph on this machine's GPU.
#[derive(Debug, Parser)]
#[command(name = "gpu-kit", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

/// The kit's command line.
pub fn command() -> clap::Command {
    Cli::command()
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The stages of a call, a table, and a folder of at most seven files.
    Run(Box<RunArgs>),
    /// The work of one stage, in this process.
    #[command(hide = true)]
    Work(work::WorkArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Which stages: those of call a, b, c or d, or all.
    #[arg(long, value_enum, default_value = "all")]
    call: Call,
    /// Folder for the report, the log and the figures.
    #[arg(long, default_value = "gpu-kit-out", overrides_with = "out")]
    out: PathBuf,
    /// Folder with the commands onegraph and bench. Default: that of this program.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// The command onegraph. Default: in the folder of commands.
    #[arg(long)]
    onegraph: Option<PathBuf>,
    /// The command bench.
    #[arg(long)]
    bench: Option<PathBuf>,
    /// Python, for baselines on the same GPU.
    #[arg(long, default_value = "python3")]
    python: PathBuf,
    /// Folder with the baseline scripts.
    #[arg(long, default_value = "peers")]
    peers: PathBuf,
    /// Folder with the training images of coco-open.
    #[arg(long, default_value = "data/train2017")]
    images: PathBuf,
    /// Their annotations.
    #[arg(long, default_value = "data/annotations/instances_train2017.json")]
    annotations: PathBuf,
    /// The tool compute-sanitizer. Default: searched in PATH.
    #[arg(long)]
    sanitizer: Option<PathBuf>,
    /// The tool ncu. Default: searched in PATH.
    #[arg(long)]
    ncu: Option<PathBuf>,
    /// Only these stages: a name, or a part of one.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds for everything; every stage is cut to the remaining time. Default: 400, for all
    /// 1400.
    #[arg(long)]
    total_seconds: Option<u64>,
    /// Scaled-down versions of all stages, for testing the runner.
    #[arg(long, hide = true)]
    quick: bool,
    /// Seconds per item of a stage, for testing the runner.
    #[arg(long, hide = true)]
    item_seconds: Option<u64>,
    /// How many times longer stages may take, for testing the runner.
    #[arg(long, hide = true, default_value_t = 1)]
    slower: u32,
    /// A stage that hangs, for testing the runner.
    #[arg(long, hide = true)]
    hang: bool,
}

/// Runs the command that this process's arguments describe. Exit code 1 if any stage failed.
pub fn main(kit: Kit) -> ExitCode {
    match Cli::parse().command {
        Command::Work(args) => work::run(&kit, &args),
        Command::Run(args) => match run(&args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// The selected stages, with their limits.
fn stages(args: &RunArgs, tools: &Tools) -> Result<Vec<Stage>, String> {
    let mut stages = calls::stages(args.call, tools);
    if args.slower > 1 {
        stages.iter_mut().for_each(|stage| stage.slower(args.slower));
    }
    if let Some(seconds) = args.item_seconds {
        stages.iter_mut().for_each(|stage| stage.bound_items(seconds));
    }
    if args.hang {
        stages.push(tools.hang());
    }
    let names: Vec<String> = stages.iter().map(|stage| stage.name.clone()).collect();
    stages.retain(|stage| calls::wanted(&stage.name, &args.only, &names));
    if stages.is_empty() {
        let names = names.join(", ");
        return Err(format!("no stage's name holds what --only asks for; there are {names}"));
    }
    Ok(stages)
}

/// All stages; true if none failed.
fn run(args: &RunArgs) -> Result<bool, String> {
    let scratch = tempfile::tempdir().map_err(|e| format!("a folder to work in: {e}"))?;
    let tools = Tools::new(args, scratch.path())?;
    let stages = stages(args, &tools)?;
    let total = Duration::from_secs(args.total_seconds.unwrap_or(args.call.seconds()));
    let archive = Archive::new(&args.out, scratch.path())?;
    let scratch = scratch.path().to_path_buf();
    let mut runner = Runner::new(archive, scratch, total, Clocks::start())?;
    let (call, count) = (args.call.name().to_string(), stages.len());
    let mut report = Report { call, stages: count, rows: Vec::new(), seconds: 0.0 };
    // Why no device opens, once that is known.
    let mut absent: Option<String> = None;
    for stage in &stages {
        if runner.interrupted() {
            break;
        }
        eprintln!("{} ...", stage.name);
        let row = match absent.as_ref().filter(|_| stage.needs_device) {
            Some(why) => Row::new(&stage.name, Outcome::Failed, 0.0, why),
            None => stage.run(&mut runner),
        };
        // A device that completed no item did not open.
        if stage.name == "device" && row.outcome == Outcome::Failed && row.details["passed"] == 0 {
            absent = Some(row.figure.clone());
        }
        eprintln!("{row}");
        report.rows.push(row);
        report.seconds = runner.seconds();
        runner.archive.write(archive::REPORT, report.json().into_bytes())?;
    }
    print!("{report}");
    println!("report: {}", runner.archive.path(archive::REPORT).display());
    Ok(report.failed() == 0 && report.rows.len() == report.stages)
}
