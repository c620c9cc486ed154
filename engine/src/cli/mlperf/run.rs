//! `onegraph mlperf run`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum};
use configs::Config;
use configs::mlperf::Deviation;

use super::super::device::DeviceArgs;
use super::super::rank::{self, Rank, RankArgs};
use super::super::signals::Stop;
use crate::EngineError;
use crate::mlperf::{Cleared, RunLog, Score, Submission, System, Timer, clear_caches};
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::Team;
use crate::train::{Event, Observer, Outcome, Session, SessionOptions};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Config file, or the name of a preset (mlperf_r50, ..), with both targets.
    config: String,
    /// Override a config value, such as --set data.train_store=coco/train.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Folder that gets results/SYSTEM/maskrcnn/result_N.txt, systems/SYSTEM.json and the runs.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name of the system, such as 1xdgxa100.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    system: String,
    /// Who submits.
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    org: String,
    /// Whether the system is to be had.
    #[arg(long, value_enum, default_value = "onprem")]
    status: Status,
    /// Runs; a submission has 5.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Seed of the first run, the next ones count on; by default the clock's.
    #[arg(long, value_name = "SEED")]
    seed: Option<u32>,
    /// Do not clear the cache of files before each run; its log says so.
    #[arg(long)]
    keep_caches: bool,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Status {
    Onprem,
    Cloud,
    Preview,
    Research,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Status::Onprem => "onprem",
            Status::Cloud => "cloud",
            Status::Preview => "preview",
            Status::Research => "research",
        }
    }
}

fn parse_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.chars().all(plain) {
        true => Ok(text.to_string()),
        false => Err("it names files: letters, digits, and - _ . between them".into()),
    }
}

pub(super) fn run(args: &RunArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    let config = Config::load(&args.config, &args.set)?;
    check(&config)?;
    rank::in_ranks(&args.ranks, &args.device, &config, stop, |rank| {
        timed_runs(args, &config, rank, stop)
    })
}

/// A run that is timed to its targets has both, and is evaluated after each epoch.
fn check(config: &Config) -> Result<(), EngineError> {
    let (train, refuse) = (&config.train, |text: &str| Err(EngineError::Usage(text.into())));
    if train.target_box.is_none() || train.target_mask.is_none() {
        return refuse(
            "a timed run ends at its targets: set train.target_box and train.target_mask, or take \
             a preset of MLPerf (mlperf_r50)",
        );
    }
    if train.eval_every_epochs != 1 {
        return refuse("a timed run is evaluated after each epoch: set train.eval_every_epochs=1");
    }
    Ok(())
}

/// All runs, one after the other.
fn timed_runs(
    args: &RunArgs,
    config: &Config,
    rank: &Rank<'_>,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    let first_seed = args.seed.unwrap_or_else(|| {
        // Truncated: any number will do.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u32)
    });
    let mut submission = Submission {
        org: args.org.clone(),
        system: args.system.clone(),
        status: args.status.name().to_string(),
        is_closed: true,
    };
    let mut opened = None;
    let mut logs = Vec::new();
    for number in 0..usize::from(args.runs) {
        let seed = first_seed.wrapping_add(number as u32);
        // The seed of the clock is the first rank's.
        let seed = match rank.group().broadcast("the seed", &seed.to_le_bytes())?.try_into() {
            Ok(bytes) => u32::from_le_bytes(bytes),
            Err(_) => return Err(EngineError::RankLost("the first rank sent no seed".into())),
        };
        rank.progress.say(&format!("run {} of {}, seed {seed}", number + 1, args.runs));
        let mut config = config.clone();
        config.train.seed = u64::from(seed);
        config.train.run_dir = args.out.join("runs").display().to_string();
        submission.is_closed = config.mlperf_deviations(false)?.iter().all(|d| d.is_allowed);
        let cleared = clear(args, &config, rank);
        let path = submission.result(&args.out, number);
        let mut timer = match rank.group().is_first() {
            true => Some(Timer::begin(&path, &submission, cleared, &config)?),
            false => None,
        };
        // On the first run's clock of initialization.
        let (backend, team) = match &opened {
            Some(opened) => opened,
            None => opened.insert(rank.open(&args.device, &config)?),
        };
        if let Some(timer) = &mut timer {
            let is_device = matches!(backend, Backend::Device(_));
            let notes = notes(&config.mlperf_deviations(is_device)?, cleared);
            timer.note(&notes)?;
            if number == 0 {
                rank.progress.say(&notes);
                describe(args, &submission, rank, backend)?;
            }
        }
        let timer = timer.map(|timer| Arc::new(Mutex::new(timer)));
        let name = format!("result_{number}");
        let outcome = timed_run(config, &name, rank, (backend, team), timer, stop)?;
        if outcome == Outcome::Interrupted {
            return Ok(outcome);
        }
        logs.push(path);
    }
    if rank.group().is_first() {
        conclude(&logs)?;
    }
    Ok(Outcome::Done)
}

/// Clears the cache of this host's files, once for all of its ranks.
fn clear(args: &RunArgs, config: &Config, rank: &Rank<'_>) -> Cleared {
    if args.keep_caches || !rank.group().is_first_of_host() {
        return Cleared::Nothing;
    }
    let stores = [&config.data.train_store, &config.data.val_store];
    let stores: Vec<&Path> = stores.into_iter().flatten().map(Path::new).collect();
    clear_caches(&stores)
}

/// One run.
fn timed_run(
    config: Config,
    name: &str,
    rank: &Rank<'_>,
    (backend, team): (&Backend, &Team),
    timer: Option<Arc<Mutex<Timer>>>,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    let path = team.share("the run directory", || {
        let run = RunDir::create(Path::new(&config.train.run_dir), name)?;
        Ok(run.path().to_path_buf())
    })?;
    let run = match team.is_first() {
        true => RunDir::of_another(&path).locked()?,
        false => RunDir::of_another(&path),
    };
    let observer: Arc<Mutex<dyn Observer>> = match &timer {
        Some(timer) => timer.clone(),
        None => Arc::new(Mutex::new(Nobody)),
    };
    let options = SessionOptions {
        run,
        resume: false,
        accept_changes: false,
        interrupted: stop.flag(),
        progress: rank.progress,
        backend: backend.clone(),
        team: team.clone(),
        observer: Some(observer),
    };
    let ended = Session::new(config, options).and_then(|mut session| {
        stop.finish_first();
        let (outcome, _) = session.run()?;
        session.finish()?;
        Ok(outcome)
    });
    stop.end_at_once();
    if let (Err(_), Some(timer)) = (&ended, &timer) {
        // The fault of the run is told.
        let _ = timer.lock().unwrap_or_else(PoisonError::into_inner).abort();
    }
    ended
}

/// Watches on the ranks that write no log.
#[derive(Debug)]
struct Nobody;

impl Observer for Nobody {
    fn see(&mut self, _: &Event<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}

/// What the reader of a log should know: every deviation from the reference, with its clause.
fn notes(deviations: &[Deviation], cleared: Cleared) -> String {
    let mut text = String::from("deviations from the reference (training_rules.adoc):");
    for Deviation { what, clause, is_allowed } in deviations {
        let verdict = if *is_allowed { "allowed" } else { "NOT ALLOWED in the closed division" };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {what}\n  {verdict}: {clause}");
    }
    let _ = write!(text, "\n{}", cleared.describe());
    if cleared == Cleared::Nothing {
        text += ", which the rules ask for (Data State at Start of Run): run as root, or clear it \
                 before";
    }
    text
}

/// Writes the description of the system.
fn describe(
    args: &RunArgs,
    submission: &Submission,
    rank: &Rank<'_>,
    backend: &Backend,
) -> Result<(), EngineError> {
    let (group, nodes) = (rank.group(), rank.group().hosts().max(1));
    let accelerators = match backend {
        Backend::Cpu => 0,
        Backend::Device(_) => group.ranks() / nodes,
    };
    let (path, empty) = System::here(submission, nodes, accelerators).write(&args.out)?;
    let path = path.display();
    match empty.is_empty() {
        true => rank.progress.say(&format!("system: {path}")),
        false => rank.progress.say(&format!(
            "system: {path}; fill in what the machine does not tell: {}",
            empty.join(", ")
        )),
    }
    Ok(())
}

/// What the runs come to.
fn conclude(logs: &[PathBuf]) -> Result<(), EngineError> {
    let runs: Vec<RunLog> = logs.iter().map(|path| RunLog::read(path)).collect::<Result<_, _>>()?;
    if let Ok(score) = Score::new(runs.clone()) {
        return super::super::print(&score.to_string());
    }
    for run in &runs {
        super::super::print(&format!("{run}\n"))?;
    }
    Ok(())
}
