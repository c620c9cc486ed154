//! `onegraph mlperf`: what runs timed by MLPerf's rules score.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::EngineError;
use crate::mlperf::{RunLog, Score};

#[derive(Debug, Args)]
pub(super) struct MlperfArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Score the logs of several runs (result_0.txt, ..): minutes and epochs of each, their mean
    /// without the fastest and the slowest, and whether they converged no faster than the
    /// reference.
    Score {
        /// Logs with lines `:::MLLOG`, whoever wrote them.
        #[arg(required = true, value_name = "FILE")]
        logs: Vec<PathBuf>,
    },
}

pub(super) fn run(args: &MlperfArgs) -> Result<(), EngineError> {
    let Command::Score { logs } = &args.command;
    let runs = logs.iter().map(|path| RunLog::read(path)).collect::<Result<_, _>>()?;
    super::print(&Score::new(runs)?.to_string())
}
