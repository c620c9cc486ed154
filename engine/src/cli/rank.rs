//! A command as one of several processes, or as the one that starts them.

use std::time::Duration;

use crate::config::Config;
use clap::Args;
use dali::unfinished::Unfinished;
use ranks::{Group, JoinOptions, Launch};

use super::device::DeviceArgs;
use super::launch::{ending_together, join, open, watch, with_nccl_variables};
use super::local_ranks;
use super::signals::Stop;
use crate::EngineError;
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::Team;
use crate::train::{Outcome, Session, SessionOptions};

/// How a command runs as several processes.
#[derive(Debug, Args)]
pub struct RankArgs {
    /// Start this many processes on this machine, one per GPU, or on the CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
    /// Show the output of every rank, not only rank 0.
    #[arg(long)]
    log_all_ranks: bool,
}

/// This process among those of the run.
#[derive(Debug)]
pub struct Rank<'a> {
    launch: &'a Launch,
    group: &'a Group,
    /// Its terminal output.
    pub(super) progress: Progress,
}

impl Rank<'_> {
    /// The ranks of the run.
    pub fn group(&self) -> &Group {
        self.group
    }

    /// Its terminal output.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Opens its device, and joins it to the devices of the others.
    ///
    /// # Errors
    /// A device that cannot be opened or joined to the others.
    pub fn open(
        &self,
        device: &DeviceArgs,
        config: &Config,
    ) -> Result<(Backend, Team), EngineError> {
        let backend = open(device, self.launch, self.group, config)?;
        let team = Team::new(self.group.clone());
        watch(&team, config);
        Ok((backend, team))
    }

    /// The options of a new run that is not timed.
    pub(super) fn options(
        &self,
        run: RunDir,
        (backend, team): (&Backend, &Team),
        stop: &Stop,
    ) -> SessionOptions {
        SessionOptions {
            run,
            resume: false,
            accept_changes: false,
            interrupted: stop.flag(),
            progress: self.progress,
            backend: backend.clone(),
            team: team.clone(),
            observer: None,
        }
    }
}

/// Opens a session, which finishes its step when a signal arrives. If a new run ends before its
/// first step for any reason, it leaves no files.
///
/// # Errors
/// As for [`Session::new`].
pub(super) fn session(
    config: Config,
    options: SessionOptions,
    stop: &Stop,
) -> Result<Session, EngineError> {
    let (run, is_first) = (options.run.clone(), options.team.is_first());
    let mark = (is_first && !options.resume).then(|| Unfinished::mark(run.path()));
    let session = Session::new(config, options);
    if session.is_ok() {
        drop(mark);
        stop.finish_first();
    } else if is_first {
        run.discard_if_empty();
    }
    session
}

/// How long a rank whose command is rejected waits for the others.
const REFUSED_TOGETHER: Duration = Duration::from_secs(10);

/// Rejects the processes of a launcher for a `command` that each would execute completely.
///
/// # Errors
/// [`EngineError::OfAllRanks`] if a launcher has started more than one process.
pub fn refuse_ranks(command: &str) -> Result<(), EngineError> {
    let launch = Launch::from_env()?;
    if launch.ranks == 1 {
        return Ok(());
    }
    let Launch { ranks, launcher, .. } = &launch;
    let fault = EngineError::OfAllRanks(format!(
        "{launcher} has started {ranks} processes, and `{command}` is the work of one: start it \
         without a launcher, or {}",
        launcher.single_process_hint()
    ));
    // Only rank 0 prints the error, and a launcher may kill it as soon as another has exited.
    let options = JoinOptions { join_timeout: REFUSED_TOGETHER, ..JoinOptions::default() };
    match Group::join(&launch, options) {
        Ok(group) => ending_together(&group, || Err(fault)).map(drop),
        Err(_) => Err(fault),
    }
}

/// Runs `work` as one rank of those that a launcher has started, or starts them according to the
/// arguments.
///
/// # Errors
/// The errors of `work`; ranks that cannot be started or do not join.
pub(super) fn in_ranks(
    args: &RankArgs,
    device: &DeviceArgs,
    config: &Config,
    stop: &Stop,
    work: impl FnOnce(&Rank<'_>) -> Result<Outcome, EngineError>,
) -> Result<Outcome, EngineError> {
    let launch = Launch::from_env()?;
    if let Some(ranks) = args.ranks.filter(|ranks| *ranks > 1) {
        // Without a device, every rank would report it.
        device.open()?;
        let timeout = Duration::from_secs(config.ranks.timeout_seconds);
        return local_ranks::run(ranks.into(), timeout, &launch, stop);
    }
    let progress = match (launch.ranks, launch.rank) {
        (1, _) | (_, 0) => Progress::loud(),
        (_, rank) if args.log_all_ranks => Progress::of_rank(rank),
        _ => Progress::quiet(),
    };
    with_nccl_variables(device, &launch, config)?;
    let group = join(&launch, config, progress)?;
    stop.join(group.clone(), progress);
    ending_together(&group, || work(&Rank { launch: &launch, group: &group, progress }))
}

/// Runs `work` as one rank of those that a launcher has started, or starts them according to the
/// arguments; for a command that has nothing to finish when a signal comes.
///
/// # Errors
/// The errors of `work`; ranks that cannot be started or do not join.
pub fn in_group(
    args: &RankArgs,
    device: &DeviceArgs,
    config: &Config,
    work: impl FnOnce(&Rank<'_>) -> Result<(), EngineError>,
) -> Result<(), EngineError> {
    let stop = Stop::default();
    in_ranks(args, device, config, &stop, |rank| work(rank).map(|()| Outcome::Done)).map(drop)
}
