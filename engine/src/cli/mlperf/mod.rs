//! `onegraph mlperf`: runs that are timed by MLPerf's rules, and their score.

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
    /// Train runs until they reach the targets, and time them by MLPerf's rules. Writes a log per
    /// run (result_0.txt, ..) and the system description.
    Run(run::RunArgs),
    /// Compare a run's AP after each epoch with a published run of the same global batch size (96
    /// or 256), during the run or afterwards.
    Curve {
        /// A run's log, with lines that begin with `:::MLLOG`.
        #[arg(value_name = "FILE")]
        log: PathBuf,
    },
    /// Score the logs of several runs (result_0.txt, ..): minutes and epochs of each run, the mean
    /// without the fastest and the slowest, and a check that they did not converge faster than the
    /// reference. Exit code 1 if a run did not finish, or if the runs give no valid score.
    Score {
        /// Logs with lines that begin with `:::MLLOG`, written by any program.
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
