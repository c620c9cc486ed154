//! The GPU kit's runner: stages, each in a process of its own with a time limit, and a table.
//!
//! A stage that crashes, hangs or takes the GPU down with it ends as a row of the table, and the
//! others still run.

mod child;
mod report;
mod stages;
mod work;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::{Args, Parser, Subcommand};
use kernels::device::{Device, DeviceError};

/// A device, or the sentence that says why there is none.
pub type Opened = Result<Arc<dyn Device>, DeviceError>;

/// The device that a kit is for.
#[derive(Debug, Clone, Copy)]
pub struct Kit {
    /// Opens it. A seed asks a device that can for an odd order of work.
    pub open: fn(Option<u64>) -> Opened,
    /// It is the emulated one: what only a GPU can show is left out.
    pub emulated: bool,
}

/// Checks and measures onegraph on the GPU of this machine.
#[derive(Debug, Parser)]
#[command(name = "gpu-kit", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// All stages, a table, and a JSON file.
    Run(Box<RunArgs>),
    /// One stage's own work, in this process.
    #[command(hide = true)]
    Work(work::WorkArgs),
}

#[derive(Debug, Args)]
struct RunArgs {
    /// Folder for logs, figures and the report.
    #[arg(long, default_value = "gpu-kit-out")]
    out: PathBuf,
    /// Folder with the commands onegraph and bench.
    #[arg(long)]
    bin: Option<PathBuf>,
    /// The command onegraph. Default: in the folder of commands, which is this program's own.
    #[arg(long)]
    onegraph: Option<PathBuf>,
    /// The command bench.
    #[arg(long)]
    bench: Option<PathBuf>,
    /// Folder with the training images of coco-open.
    #[arg(long, default_value = "data/train2017")]
    images: PathBuf,
    /// Their annotations.
    #[arg(long, default_value = "data/annotations/instances_train2017.json")]
    annotations: PathBuf,
    /// The tool compute-sanitizer. Default: looked for in PATH.
    #[arg(long)]
    sanitizer: Option<PathBuf>,
    /// Only stages whose name holds one of these.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds for each bench.
    #[arg(long, default_value_t = 45)]
    bench_seconds: u64,
    /// Seconds for everything; what has no time left fails.
    #[arg(long, default_value_t = 470)]
    total_seconds: u64,
    /// Small versions of all stages, for the test of the runner.
    #[arg(long, hide = true)]
    quick: bool,
    /// A stage that hangs, for the test of the runner.
    #[arg(long, hide = true)]
    hang: bool,
}

/// Runs the command of this process's arguments. Exit code 1 if any stage failed.
pub fn main(kit: Kit) -> ExitCode {
    match Cli::parse().command {
        Command::Work(args) => work::run(&kit, &args),
        Command::Run(args) => match run(&kit, &args) {
            Ok(true) => ExitCode::SUCCESS,
            Ok(false) => ExitCode::FAILURE,
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

/// All stages; true if none failed.
fn run(kit: &Kit, args: &RunArgs) -> Result<bool, String> {
    let io = |e: std::io::Error| format!("{}: {e}", args.out.display());
    std::fs::create_dir_all(&args.out).map_err(io)?;
    let out = args.out.canonicalize().map_err(io)?;
    let started = Instant::now();
    let total = Duration::from_secs(args.total_seconds);
    let mut rows = Vec::new();
    for stage in stages::all(kit, args)? {
        let left = total.saturating_sub(started.elapsed());
        eprintln!("{} ...", stage.name);
        let row = stage.run(&out, left);
        eprintln!("{row}");
        rows.push(row);
    }
    if rows.is_empty() {
        return Err("no stage's name holds what --only asks for".into());
    }
    let report = report::Report { rows, seconds: started.elapsed().as_secs_f64() };
    print!("{report}");
    let path = out.join("report.json");
    std::fs::write(&path, report.json()).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("report: {}", path.display());
    Ok(report.failed() == 0)
}
