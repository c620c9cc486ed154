//! Runs a command as one of several ranks, or starts the ranks (`--ranks`).

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

/// Options of commands that can run as several processes.
#[derive(Debug, Args)]
pub struct RankArgs {
    /// Start this many processes on this machine, one per GPU, or all on the CPU.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    ranks: Option<u16>,
    /// Show the output of every rank, not only rank 0.
    #[arg(long)]
    log_all_ranks: bool,
}

/// This process as one rank of the run.
#[derive(Debug)]
pub struct Rank<'a> {
    launch: &'a Launch,
    group: &'a Group,
    /// Terminal output of this rank.
    pub(super) progress: Progress,
}

impl Rank<'_> {
    /// The ranks of the run.
    pub fn group(&self) -> &Group {
        self.group
    }

    /// Terminal output of this rank.
    pub fn progress(&self) -> Progress {
        self.progress
    }

    /// Opens this rank's device, and connects it to the devices of the other ranks.
    ///
    /// # Errors
    /// If the device cannot be opened or connected.
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

    /// Session options for a new run without an observer.
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

/// Opens a session. From then on, after a signal the session completes the current step before it
/// ends. If opening a new run fails, no files are left.
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

/// Time that a rank waits for the others when its command is rejected.
const REFUSED_TOGETHER: Duration = Duration::from_secs(10);

/// Fails if a launcher has started several processes for `command`, which only one process may run.
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
        "{launcher} has started {ranks} processes, but `{command}` must run as a single process: \
         start it without a launcher, or {}",
        launcher.single_process_hint()
    ));
    // The ranks join first, so that none exits before rank 0 has printed the error: a launcher may
    // kill it as soon as another rank has exited.
    let options = JoinOptions { join_timeout: REFUSED_TOGETHER, ..JoinOptions::default() };
    match Group::join(&launch, options) {
        Ok(group) => ending_together(&group, || Err(fault)).map(drop),
        Err(_) => Err(fault),
    }
}

/// Runs `work` as one rank if a launcher has started several, or starts the ranks if `--ranks`
/// requests it.
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
        // Checks the device once, so that not every rank reports a missing one.
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

/// Runs `work` as one rank if a launcher has started several, or starts the ranks if the arguments
/// request it. For commands that a signal may end at any time.
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
