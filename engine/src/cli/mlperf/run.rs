//! `onegraph mlperf run`.

use std::fmt::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::config::{Config, Data, Set};
use crate::mlperf::Deviation;
use clap::Args;
use clap::builder::PossibleValuesParser;

use super::super::device::DeviceArgs;
use super::super::rank::{self, Rank, RankArgs};
use super::super::signals::Stop;
use crate::EngineError;
use crate::mlperf::{
    Cleared, RunLog, Score, Submission, System, Timer, UNVERIFIED, clear_caches,
    write_implementation,
};
use crate::remote;
use crate::run_dir::RunDir;
use crate::runtime::Backend;
use crate::team::{self, Team};
use crate::train::{Event, Observer, Outcome, SessionOptions};

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// Config file, or the name of a preset (mlperf_r50, ..). It must set train.target_box and
    /// train.target_mask.
    config: String,
    /// Override a config value, such as --set data.train_store=coco/train.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Output folder, for results/SYSTEM/maskrcnn/result_N.txt, systems/SYSTEM.json,
    /// benchmarks/maskrcnn/implementations/SYSTEM, and the run directories in runs/.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Name of the system under test, such as 1xdgxa100.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    system: String,
    /// Name of the submitting organization.
    #[arg(long, value_name = "NAME")]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    org: String,
    /// Availability of the system.
    #[arg(long, default_value = "onprem")]
    #[arg(value_parser = PossibleValuesParser::new(["onprem", "cloud", "preview", "research"]))]
    status: String,
    /// Number of runs; a submission needs 5.
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=100))]
    runs: u16,
    /// Number of the first run, to continue with the missing runs after an interruption.
    #[arg(long, value_name = "N", default_value_t = 0)]
    #[arg(value_parser = clap::value_parser!(u16).range(0..=99))]
    first: u16,
    /// Seed of run 0; run N has this seed plus N. Default: taken from the clock.
    #[arg(long, value_name = "SEED")]
    seed: Option<u32>,
    /// Do not clear the page cache before each run. The log notes this.
    #[arg(long)]
    keep_caches: bool,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

fn parse_name(text: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    match !text.is_empty() && !text.starts_with('.') && text.chars().all(plain) {
        true => Ok(text.to_string()),
        false => {
            Err("it becomes part of file names: use letters, digits and - _ . (not as the first)"
                .into())
        }
    }
}

impl RunArgs {
    /// The numbers of the runs.
    fn numbers(&self) -> Range<usize> {
        let first = usize::from(self.first);
        first..first + usize::from(self.runs)
    }

    /// The directory of run `number`.
    fn run_folder(&self, number: usize) -> PathBuf {
        self.out.join("runs").join(run_name(number))
    }
}

fn run_name(number: usize) -> String {
    format!("result_{number}")
}

pub(super) fn run(args: &RunArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    // Unlike [`Config::load`], this never shortens the warm-up, which MLPerf's rules prescribe.
    let (config, _) = Config::load_as_written(&args.config, &args.set)?;
    check(&config)?;
    rank::in_ranks(&args.ranks, &args.device, &config, stop, |rank| {
        timed_runs(args, &config, rank, stop)
    })
}

/// Checks that the config of a timed run has both target scores, an evaluation after each epoch,
/// and a schedule in steps.
fn check(config: &Config) -> Result<(), EngineError> {
    let (train, refuse) = (&config.train, |text: &str| Err(EngineError::Usage(text.into())));
    if train.target_box.is_none() || train.target_mask.is_none() {
        return refuse(
            "a timed run needs both target scores: set train.target_box and train.target_mask, or \
             use an MLPerf preset (mlperf_r50)",
        );
    }
    if train.eval_every_epochs != 1 {
        return refuse("a timed run is evaluated after each epoch: set train.eval_every_epochs=1");
    }
    if config.counts_epochs() {
        return refuse(
            "a timed run needs a schedule in steps, not epochs: set train.steps, \
             solver.warmup_steps and solver.milestones",
        );
    }
    check_data(&config.data)
}

/// Rejects configs that would read annotated objects before the clock starts, which MLPerf's rules
/// forbid.
fn check_data(data: &Data) -> Result<(), EngineError> {
    let needs = |sets: &[Set]| sets.len() > 1 || sets.iter().any(|set| set.annotations.is_some());
    let early = [
        ("data.train_annotations", data.train_annotations.is_some()),
        ("data.val_annotations", data.val_annotations.is_some()),
        ("data.train", needs(&data.train)),
        ("data.val", needs(&data.val)),
        ("data.classes", !data.classes.is_empty()),
        ("data.min_keypoints", data.min_keypoints > 0),
        ("data.repeat_threshold", data.repeat_threshold > 0.0),
    ];
    if let Some((key, _)) = early.iter().find(|(_, is_set)| *is_set) {
        return Err(EngineError::Usage(format!(
            "{key} would read annotated objects before the clock of a timed run starts, which the \
             rules forbid: make one store of each split with `onegraph prep`, and leave {key} out"
        )));
    }
    stores(data)
        .iter()
        .try_for_each(|store| remote::require_local(store, "the store of a timed run"))
}

/// The stores that are named in the config.
fn stores(data: &Data) -> Vec<&Path> {
    let listed = data.train.iter().chain(&data.val).map(|set| &set.store);
    let stores = [&data.train_store, &data.val_store].into_iter().chain(listed);
    stores.flatten().map(Path::new).collect()
}

/// The runs of one command. They share the devices, which are opened once.
struct Series<'a> {
    args: &'a RunArgs,
    config: &'a Config,
    rank: &'a Rank<'a>,
    stop: &'a Stop,
    seed: u32,
    submission: Submission,
    opened: Option<(Backend, Team)>,
}

/// Executes all runs in sequence.
fn timed_runs(
    args: &RunArgs,
    config: &Config,
    rank: &Rank<'_>,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    let submission = Submission {
        org: args.org.clone(),
        system: args.system.clone(),
        status: args.status.clone(),
        is_closed: true,
    };
    if rank.group().is_first() {
        refuse_earlier(args, &submission)?;
    }
    // Without `--seed`, rank 0's clock is the seed.
    let seed = args.seed.unwrap_or_else(|| {
        // Truncation is harmless: any number is a valid seed.
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_nanos() as u32)
    });
    let seed = match rank.group().broadcast("the seed", &seed.to_le_bytes())?.try_into() {
        Ok(bytes) => u32::from_le_bytes(bytes),
        Err(_) => return Err(EngineError::RankLost("rank 0 sent no seed".into())),
    };
    let mut series = Series { args, config, rank, stop, seed, submission, opened: None };
    let (mut logs, mut diverged, mut outcome) = (Vec::new(), None, Outcome::Done);
    for number in args.numbers() {
        let log = series.submission.result(&args.out, number);
        let ended = match series.run(number) {
            Err(fault @ EngineError::Diverged { .. }) => {
                rank.progress.say(&format!("{fault}\n{} missed its targets", log.display()));
                diverged = Some(fault);
                Outcome::Done
            }
            ended => ended?,
        };
        if ended == Outcome::Interrupted {
            rank.progress.say(&format!(
                "interrupted: {} is marked as aborted, and a timed run cannot be resumed; move it \
                 and {} away, and continue with --first {number}",
                log.display(),
                args.run_folder(number).display()
            ));
            outcome = ended;
            break;
        }
        logs.push(log);
        if number + 1 < args.numbers().end && series.is_interrupted()? {
            let next = number + 1;
            rank.progress.say(&format!("interrupted; continue with --first {next}"));
            outcome = Outcome::Interrupted;
            break;
        }
    }
    if rank.group().is_first() {
        conclude(&logs)?;
    }
    diverged.map_or(Ok(outcome), Err)
}

/// Checks before the first run that no earlier run would be overwritten.
fn refuse_earlier(args: &RunArgs, submission: &Submission) -> Result<(), EngineError> {
    for number in args.numbers() {
        for earlier in [submission.result(&args.out, number), args.run_folder(number)] {
            if earlier.exists() {
                return Err(EngineError::Usage(format!(
                    "{} belongs to an earlier run: use a different --out, move it away, or start \
                     numbering at a different --first",
                    earlier.display()
                )));
            }
        }
    }
    Ok(())
}

impl Series<'_> {
    /// Executes one run. If it fails before its clock starts, no log is kept.
    fn run(&mut self, number: usize) -> Result<Outcome, EngineError> {
        let (args, rank) = (self.args, self.rank);
        let seed = self.seed.wrapping_add(number as u32);
        let place = number - args.numbers().start + 1;
        rank.progress.say(&format!("run {place} of {}, seed {seed}", args.runs));
        let mut config = self.config.clone();
        config.train.seed = u64::from(seed);
        config.train.run_dir = args.out.join("runs").display().to_string();
        let deviations = config.mlperf_deviations(false)?;
        self.submission.is_closed = deviations.iter().all(|deviation| deviation.is_allowed);
        let cleared = clear(args, &config, rank)?;
        let path = self.submission.result(&args.out, number);
        let timer = match rank.group().is_first() {
            true => Some(Timer::begin(&path, &self.submission, &cleared, &config)?),
            false => None,
        };
        let timer = timer.map(|timer| Arc::new(Mutex::new(timer)));
        let ended = self.timed(number, config, &cleared, timer.as_ref());
        self.stop.end_at_once();
        if let (Err(_), Some(timer)) = (&ended, &timer) {
            // A second error is ignored: the caller gets the run's error.
            let _ = lock(timer).abort();
        }
        ended
    }

    /// The timed part: the rest of the initialization, and training.
    fn timed(
        &mut self,
        number: usize,
        config: Config,
        cleared: &[(String, Cleared)],
        timer: Option<&Arc<Mutex<Timer>>>,
    ) -> Result<Outcome, EngineError> {
        let (args, rank) = (self.args, self.rank);
        let (backend, team) = match &self.opened {
            Some(opened) => opened,
            None => self.opened.insert(rank.open(&args.device, &config)?),
        };
        if let Some(timer) = timer {
            let is_device = matches!(backend, Backend::Device(_));
            let notes = notes(&config.mlperf_deviations(is_device)?, cleared, args.keep_caches);
            lock(timer).note(&notes)?;
            if number == args.numbers().start {
                rank.progress.say(&notes);
                describe(args, &self.submission, rank, backend, &config)?;
            }
        }
        timed_run(config, number, rank, (backend, team), timer.cloned(), self.stop)
    }

    /// True if a signal has requested the end of this process or, once the ranks have joined, of
    /// rank 0.
    fn is_interrupted(&self) -> Result<bool, EngineError> {
        let here = self.stop.flag().load(Ordering::SeqCst);
        let Some((_, team)) = &self.opened else { return Ok(here) };
        team.share("whether to go on", || Ok(here))
    }
}

fn lock(timer: &Mutex<Timer>) -> MutexGuard<'_, Timer> {
    timer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Clears the page cache of every host, on the first rank of each. Rank 0 gets the result of each
/// host.
fn clear(
    args: &RunArgs,
    config: &Config,
    rank: &Rank<'_>,
) -> Result<Vec<(String, Cleared)>, EngineError> {
    let group = rank.group();
    // With synthetic data, no cache needs to be cleared.
    let own = match group.is_first_of_host() {
        true if args.keep_caches || config.data.synthetic.is_some() => Some(Cleared::Nothing),
        true => Some(clear_caches(&stores(&config.data))),
        false => None,
    };
    let all = group.gather("the cleared caches", &team::encode(&own)?)?;
    let mut by_host = Vec::new();
    for (member, bytes) in group.members().iter().zip(&all) {
        let done: Option<Cleared> = team::decode(bytes)?;
        by_host.extend(done.map(|done| (member.host.clone(), done)));
    }
    Ok(by_host)
}

/// Trains one run in its run directory.
fn timed_run(
    config: Config,
    number: usize,
    rank: &Rank<'_>,
    (backend, team): (&Backend, &Team),
    timer: Option<Arc<Mutex<Timer>>>,
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    let path = team.share("the run directory", || {
        let parent = Path::new(&config.train.run_dir);
        remote::require_local(parent, "train.run_dir")?;
        let run = RunDir::create(parent, &run_name(number))?;
        Ok(run.path().to_path_buf())
    })?;
    let run = match team.is_first() {
        true => RunDir::of_another(&path).locked()?,
        false => RunDir::of_another(&path),
    };
    let observer: Arc<Mutex<dyn Observer>> = match &timer {
        Some(timer) => timer.clone(),
        None => Arc::new(Mutex::new(NullObserver)),
    };
    let options = rank.options(run, (backend, team), stop);
    let options = SessionOptions { observer: Some(observer), ..options };
    let mut session = rank::session(config, options, stop)?;
    let (outcome, _) = session.run()?;
    session.finish()?;
    Ok(outcome)
}

/// The observer of ranks that write no log.
#[derive(Debug)]
struct NullObserver;

impl Observer for NullObserver {
    fn see(&mut self, _: &Event<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Notes for the reader of a log: each deviation from the reference with the rule that allows or
/// forbids it, and the cleared caches.
fn notes(deviations: &[Deviation], cleared: &[(String, Cleared)], keeps_caches: bool) -> String {
    let mut text = String::from("deviations from the reference (training_rules.adoc):");
    for Deviation { what, clause, is_allowed } in deviations {
        let verdict = if *is_allowed { "allowed" } else { "NOT ALLOWED in the closed division" };
        // Writing to a string cannot fail.
        let _ = write!(text, "\n- {what}\n  {verdict}: {clause}");
    }
    for (host, done) in cleared {
        let _ = write!(text, "\n{host}: {}", done.describe());
    }
    if cleared.iter().any(|(_, done)| *done != Cleared::Machine) {
        let fix = match keeps_caches {
            true => "leave out --keep-caches",
            false => "run as root with stores, or clear the page cache before",
        };
        let _ =
            write!(text, "\nthe rules require cleared caches (Data State at Start of Run): {fix}");
    }
    text
}

/// Writes the system description, and the files that describe how to repeat the run.
fn describe(
    args: &RunArgs,
    submission: &Submission,
    rank: &Rank<'_>,
    backend: &Backend,
    config: &Config,
) -> Result<(), EngineError> {
    let (group, nodes) = (rank.group(), rank.group().hosts().max(1));
    let accelerators = match backend {
        Backend::Cpu => 0,
        Backend::Device(_) => group.ranks() / nodes,
    };
    write_implementation(&args.out, submission, config)?;
    let (path, empty) = System::here(submission, nodes, accelerators).write(&args.out)?;
    let path = path.display();
    match empty.is_empty() {
        true => rank.progress.say(&format!("system: {path}")),
        false => rank.progress.say(&format!(
            "system: {path}; fill in what could not be detected: {}",
            empty.join(", ")
        )),
    }
    Ok(())
}

/// Prints the score of the runs or, if they have no score, the result of each run.
fn conclude(logs: &[PathBuf]) -> Result<(), EngineError> {
    let runs: Vec<RunLog> = logs.iter().map(|path| RunLog::read(path)).collect::<Result<_, _>>()?;
    if let Ok(score) = Score::new(runs.clone()) {
        return super::super::print(&score.to_string());
    }
    for run in &runs {
        super::super::print(&format!("{run}\n"))?;
    }
    super::super::print(&format!("{UNVERIFIED}\n"))
}
