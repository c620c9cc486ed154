//! The command line: `onegraph train | eval | runs | compare | predict | serve | export | prep`
//! and `inspect | mlperf | config | doctor`.

mod check_kernels;
mod compare;
mod config;
mod device;
mod doctor;
mod eval;
mod export;
mod inspect;
mod launch;
mod local_ranks;
mod log;
mod mlperf;
mod model;
mod options;
mod predict;
mod prep;
mod rank;
mod replay;
mod runs;
mod serve;
mod signals;
mod train;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::{CommandFactory, Parser, Subcommand};
use dali::plain;
use kernels::isa::Isa;

pub use device::DeviceArgs;
pub use launch::open_gpu_in_group;
pub use rank::{Rank, RankArgs, in_group, refuse_ranks};

use crate::EngineError;
use crate::gpu::checked_by;
use crate::train::Outcome;

use signals::Stop;

/// Trains Mask R-CNN on COCO and your own data, on the CPU or GPUs.
#[derive(Debug, Parser)]
#[command(name = "onegraph", version, arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Local directory for files that are downloaded from or uploaded to s3://BUCKET/KEY.
    #[arg(long, global = true, value_name = "DIR")]
    stage: Option<PathBuf>,
}

impl Cli {
    /// Applies the global options, and returns the command.
    fn begun(self) -> Command {
        if let Some(folder) = &self.stage {
            crate::remote::stage_into(folder);
        }
        self.command
    }
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Train a model from a config file.
    Train(train::TrainArgs),
    /// Score a file of detections against annotations, or a trained model on its validation data.
    Eval(eval::EvalArgs),
    /// List the runs in a folder: state, step, loss, scores, speed, time left.
    Runs(runs::RunsArgs),
    /// Compare runs that were scored on the same data: keys, scores with intervals, curves.
    Compare(compare::CompareArgs),
    /// Detect objects in images with a trained model; writes COCO results and annotated images.
    Predict(predict::PredictArgs),
    /// Serve a trained model over HTTP.
    Serve(serve::ServeArgs),
    /// Export a trained model to ONNX, or its weights for torchvision or detectron2.
    Export(export::ExportArgs),
    /// Repeat the step at which a run's losses became non-finite, and name the first non-finite
    /// tensor.
    Replay(replay::ReplayArgs),
    /// Convert images and annotations (COCO, or a folder in another tool's format) to a store, or
    /// generate synthetic data.
    Prep(prep::PrepArgs),
    /// Show the program, memory plan, parameters or training images of a config, or check a store.
    Inspect(inspect::InspectArgs),
    /// Time training runs by MLPerf's rules, and score them.
    Mlperf(mlperf::MlperfArgs),
    /// Explain a key of the config: values, unit, default, and where it is set; or list all keys.
    Config(config::ConfigArgs),
    /// Test a GPU's kernels. Started by commands that open a GPU for the first time.
    #[command(hide = true)]
    CheckKernels(check_kernels::CheckArgs),
    /// Show this machine's hardware for training: processor, memory, driver, GPUs, kernels.
    Doctor,
}

/// Environment variable with the number of threads of parallel loops.
const THREADS: &str = "RAYON_NUM_THREADS";
/// Maximum number of threads.
const MAX_THREADS: usize = 1024;

/// Exit codes, in addition to 0 (success) and 2 (clap could not parse the command line).
mod exit {
    pub(super) const FAILED: u8 = 1;
    pub(super) const BAD_CONFIG: u8 = 3;
    pub(super) const BAD_DATA: u8 = 4;
    pub(super) const DIVERGED: u8 = 5;
    pub(super) const INTERRUPTED: u8 = 6;
    pub(super) const NO_DEVICE: u8 = 7;
    pub(super) const RANK_LOST: u8 = 8;

    /// The exit code of a surviving rank; `code` is the exit code that the lost rank reported, if
    /// any. If a restart cannot fix that failure, all ranks end with `code`: a launcher that
    /// restarts jobs after [`RANK_LOST`] would otherwise restart forever.
    pub(super) fn of_survivor(code: Option<u8>) -> u8 {
        match code {
            Some(own @ (FAILED | BAD_CONFIG | BAD_DATA | DIVERGED)) => own,
            _ => RANK_LOST,
        }
    }
}

/// The definition of the command line.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Stack size of the command's thread in bytes, independent of `ulimit -s`.
const STACK: usize = 8 << 20;

/// Runs the command that this process's arguments describe.
pub fn main() -> ExitCode {
    let thread = std::thread::Builder::new().name("main".into()).stack_size(STACK);
    match thread.spawn(command_line) {
        // 101 is the exit code of a Rust program whose main thread panics.
        Ok(thread) => thread.join().unwrap_or(ExitCode::from(101)),
        Err(fault) => failed(&EngineError::Usage(format!("cannot start a thread: {fault}"))),
    }
}

/// Ends the process at once after a failed allocation of `bytes`.
pub fn out_of_memory(bytes: usize) -> ! {
    let _ = writeln!(
        std::io::stderr(),
        "error: out of memory: cannot allocate {bytes} bytes; free some memory, or lower \
         train.batch_size, eval.batch_size, model.detections.per_image or input.max_size"
    );
    signal_hook::low_level::exit(exit::BAD_CONFIG.into())
}

fn command_line() -> ExitCode {
    crate::train::start_clock();
    let words: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let command = Cli::try_parse().unwrap_or_else(|fault| options::advised(fault, &words).exit());
    let command = command.begun();
    if let Ok(program) = std::env::current_exe() {
        checked_by(vec![program.into(), "check-kernels".into()]);
    }
    let started = log::start()
        .and_then(|()| bus_errors())
        .and_then(|()| prepare())
        .and_then(|()| Stop::watch());
    let result = started.and_then(|stop| run(command, &stop));
    match result {
        Ok(Outcome::Interrupted) => ExitCode::from(exit::INTERRUPTED),
        Ok(_) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Prints the error of a command, and returns its exit code. An error that is common to all ranks
/// is printed only by rank 0.
pub fn failed(error: &EngineError) -> ExitCode {
    launch::print_error(error);
    launch::end_if_it_hangs(error);
    ExitCode::from(code(error))
}

/// Trains like `onegraph train ARGUMENTS`, for programs that handle signals themselves: when
/// `interrupted` is set, the run saves a checkpoint and ends. `begun` is called with the run
/// directory before the first step.
///
/// # Errors
/// The errors of the command; [`EngineError::Usage`] for arguments that do not parse.
pub fn train(
    arguments: &[String],
    interrupted: Arc<AtomicBool>,
    begun: &dyn Fn(&Path),
) -> Result<Outcome, EngineError> {
    crate::train::start_clock();
    let words = ["onegraph", "train"].into_iter().chain(arguments.iter().map(String::as_str));
    let parsed = Cli::try_parse_from(words).map_err(|fault| EngineError::Usage(fault.to_string()));
    match parsed?.begun() {
        Command::Train(args) => train::run(&args, &Stop::of_a_program(interrupted), begun),
        _ => unreachable!("the second word is `train`"),
    }
}

/// Prepares this process for training and detection: starts the threads of parallel loops, and
/// checks the instruction set for GEMMs.
///
/// # Errors
/// [`EngineError::Usage`] for an environment variable that is invalid or that this machine does not
/// support.
pub fn prepare() -> Result<(), EngineError> {
    start_threads().and_then(|()| gemm_settings())
}

/// If a memory-mapped store is truncated while in use (SIGBUS), the command ends with the exit code
/// for bad data.
fn bus_errors() -> Result<(), EngineError> {
    let io = crate::run_dir::io(Path::new("the handler of bus errors"));
    dali::store::exit_on_bus_errors(exit::BAD_DATA.into()).map_err(io)
}

fn run(command: Command, stop: &Stop) -> Result<Outcome, EngineError> {
    match command {
        Command::Train(args) => return train::run(&args, stop, &|_| ()),
        Command::Eval(args) => return eval::run(&args, stop),
        Command::Serve(args) => return serve::run(&args, stop),
        Command::Mlperf(args) => return mlperf::run(&args, stop),
        Command::Runs(args) => runs::run(&args),
        Command::Compare(args) => compare::run(&args),
        Command::Predict(args) => predict::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Replay(args) => replay::run(&args),
        Command::Prep(args) => prep::run(&args),
        Command::Inspect(args) => inspect::run(&args),
        Command::Config(args) => config::run(&args),
        Command::CheckKernels(args) => check_kernels::run(&args),
        Command::Doctor => doctor::run(),
    }
    .map(|()| Outcome::Done)
}

/// Starts the threads of parallel loops: as many as `RAYON_NUM_THREADS` requests, or else one per
/// core, divided among the ranks on this machine.
///
/// # Errors
/// [`EngineError::Usage`] if the variable is not a valid number, or if the threads cannot be
/// started.
pub fn start_threads() -> Result<(), EngineError> {
    let asked = std::env::var_os(THREADS).unwrap_or_default();
    let threads = match num_threads(&asked)? {
        0 => launch::threads_of_rank(),
        threads => threads,
    };
    let threads = rayon::ThreadPoolBuilder::new().num_threads(threads);
    threads.build_global().map_err(|fault| {
        EngineError::Usage(format!("cannot start threads: {fault}; set {THREADS} to fewer"))
    })
}

/// Checks that the processor has the instruction set that was selected for GEMMs.
fn gemm_settings() -> Result<(), EngineError> {
    let chosen = Isa::chosen().map_err(|fault| EngineError::Usage(fault.to_string()))?;
    tracing::debug!(isa = chosen.name(), "instruction set of GEMMs on the CPU");
    Ok(())
}

/// The number in the variable; if it is empty, 0, which means one per core.
fn num_threads(asked: &OsStr) -> Result<usize, EngineError> {
    let text = asked.to_string_lossy();
    if text.trim().is_empty() {
        return Ok(0);
    }
    let number = text.trim().parse().ok().filter(|number| *number <= MAX_THREADS);
    number.ok_or_else(|| {
        let range = format!("an integer from 1 to {MAX_THREADS}, or 0 for one per core");
        EngineError::Usage(format!("{THREADS} is `{text}`; it must be {range}"))
    })
}

/// Writes results to standard output. Control characters except line breaks are escaped. A closed
/// pipe (`| head`) is not an error.
fn print(text: &str) -> Result<(), EngineError> {
    let text = text.split('\n').map(plain).collect::<Vec<_>>().join("\n");
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(crate::run_dir::io(Path::new("standard output"))),
    }
}

/// The exit code for an error.
fn code(error: &EngineError) -> u8 {
    match error {
        EngineError::Config(_)
        | EngineError::Graph(_)
        | EngineError::Usage(_)
        | EngineError::OfAllRanks(_) => exit::BAD_CONFIG,
        EngineError::Data(_)
        | EngineError::Image { .. }
        | EngineError::Score(_)
        | EngineError::Order(_) => exit::BAD_DATA,
        EngineError::Diverged { .. } => exit::DIVERGED,
        EngineError::Interrupted => exit::INTERRUPTED,
        EngineError::Device(_) | EngineError::Node(_) | EngineError::Hangs(_) => exit::NO_DEVICE,
        EngineError::RankLost(_) => exit::RANK_LOST,
        EngineError::RankFailed { code, .. } => exit::of_survivor(Some(*code)),
        EngineError::Ranks { code } => *code,
        _ => exit::FAILED,
    }
}
