//! `onegraph mlperf`: runs timed by MLPerf's rules, and their score.

mod run;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::signals::Stop;
use crate::EngineError;
use crate::mlperf::{Compared, RunLog, Score};
use crate::train::Outcome;

#[derive(Debug, Args)]
pub(super) struct MlperfArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time runs from their initialization to the targets; writes their logs (result_0.txt, ..)
    /// and the description of the system.
    Run(run::RunArgs),
    /// Compare a run's AP after each epoch with the published run of its global batch (96 or 256),
    /// during the run or afterwards.
    Curve {
        /// A log with lines `:::MLLOG`.
        #[arg(value_name = "FILE")]
        log: PathBuf,
    },
    /// Score the logs of several runs (result_0.txt, ..): minutes and epochs of each, their mean
    /// without the fastest and the slowest, and whether they converged no faster than the
    /// reference. Exit code 1 if a run is unfinished, or if they make no score.
    Score {
        /// Logs with lines `:::MLLOG`, from any program.
        #[arg(required = true, value_name = "FILE")]
        logs: Vec<PathBuf>,
    },
}

pub(super) fn run(args: &MlperfArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    match &args.command {
        Command::Run(args) => run::run(args, stop),
        Command::Curve { log } => {
            super::print(&Compared::new(RunLog::read(log)?)?.to_string())?;
            Ok(Outcome::Done)
        }
        Command::Score { logs } => {
            let runs = logs.iter().map(|path| RunLog::read(path)).collect::<Result<_, _>>()?;
            let score = Score::new(runs)?;
            super::print(&score.to_string())?;
            score.why_none().map_or(Ok(Outcome::Done), |why| Err(EngineError::NoScore(why)))
        }
    }
}
