//! The command `bench`: throughput of the training step, of detection, of single ops and of the
//! data pipeline, and the history of measurements. A library, so that tests can also run the
//! command.

/// Prints a line to standard output. A closed pipe (`| head`) is not an error, since the figures
/// may still be written to a file.
macro_rules! say {
    ($($text:tt)*) => {
        $crate::write_out(&format!("{}\n", format_args!($($text)*)))
    };
}

mod all_reduce;
mod clock;
mod cuda_ops;
mod curves;
mod data;
mod full_size;
mod group;
mod history;
mod infer;
mod nodes;
mod ops;
mod parts;
mod plan;
mod random_weights;
mod report;
mod step;
mod work;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use engine::EngineError;
use engine::cli::{failed, refuse_ranks, start_threads};
use kernels::isa::Isa;

pub use report::commit;

/// Measures onegraph. Without a subcommand: the training step of a preset.
#[derive(Debug, Parser)]
#[command(name = "bench", version, args_conflicts_with_subcommands = true)]
struct Cli {
    #[command(subcommand)]
    what: Option<What>,
    #[command(flatten)]
    step: step::StepArgs,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Check and time each op with fixed shapes, on the CPU or a GPU.
    Ops(ops::OpsArgs),
    /// Profile a training step on a GPU: check each op, time each launch, record a timeline.
    Nodes(nodes::NodesArgs),
    /// Measure detection as `onegraph eval` and `predict` run it; also `bench --infer`.
    #[command(long_flag = "infer")]
    Infer(infer::InferArgs),
    /// Predict the time of a training step, node by node, and its scaling; also `bench --plan`.
    #[command(long_flag = "plan")]
    Plan(plan::PlanArgs),
    /// Measure decoding and loading, without training.
    Data(data::DataArgs),
    /// Compare AP over the steps of several runs, as a table and a plot.
    Curves(curves::CurvesArgs),
    /// Compare the sessions in bench/history, or add one.
    History(history::HistoryArgs),
}

impl What {
    /// The subcommand's name on the command line.
    fn name(&self) -> &'static str {
        match self {
            What::Ops(_) => "ops",
            What::Nodes(_) => "nodes",
            What::Infer(_) => "infer",
            What::Plan(_) => "plan",
            What::Data(_) => "data",
            What::Curves(_) => "curves",
            What::History(_) => "history",
        }
    }
}

/// The command line as a clap command.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs the command given by this process's arguments.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = Isa::chosen()
        .map_err(Into::into)
        .and_then(|_| Ok(start_threads()?))
        .and_then(|()| run(&cli));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => match error.downcast_ref() {
            // An error that occurs on all ranks is reported only by rank 0.
            Some(fault @ (EngineError::OfAllRanks(_) | EngineError::Ranks { .. })) => failed(fault),
            _ => {
                eprintln!("error: {error:#}");
                ExitCode::FAILURE
            }
        },
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    if let Some(what) = &cli.what {
        refuse_ranks(&format!("bench {}", what.name()))?;
    }
    match &cli.what {
        None => step::run(&cli.step),
        Some(What::Ops(args)) => ops::run(args),
        Some(What::Nodes(args)) => nodes::run(args),
        Some(What::Infer(args)) => infer::run(args),
        Some(What::Plan(args)) => plan::run(args),
        Some(What::Data(args)) => data::run(args),
        Some(What::Curves(args)) => curves::run(args),
        Some(What::History(args)) => history::run(args),
    }
}

/// Writes to standard output, unless it is closed.
fn write_out(text: &str) {
    use std::io::Write;
    let mut out = std::io::stdout();
    // A closed pipe is ignored.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
