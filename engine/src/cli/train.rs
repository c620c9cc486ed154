//! `onegraph train`.

use std::path::{Path, PathBuf};

use crate::config::{Config, ConfigError, Origins};
use clap::Args;
use clap::error::ErrorKind;

use super::device::DeviceArgs;
use super::rank::{self, Rank, RankArgs};
use super::signals::Stop;
use crate::EngineError;
use crate::checkpoint;
use crate::draw::{picture, png, sheet};
use crate::progress::Progress;
use crate::remote::{self, Kept};
use crate::run_dir::{Choice, RunDir};
use crate::team::Team;
use crate::train::{Outcome, Session, SessionOptions};
use crate::weights::WeightsFile;

const CONFIG: &str = "config.toml";
/// Minimum score of drawn detections.
const DRAWN_SCORE: f32 = 0.5;

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    /// Config file, or the name of a preset. Without it, --resume RUN uses the run's config.
    #[arg(required_unless_present = "resume")]
    config: Option<String>,
    /// Override a config value, such as --set solver.learning_rate=0.02.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the resolved config, each key with its meaning, and exit.
    #[arg(long)]
    print_config: bool,
    /// Resume the run in this directory from its last checkpoint. With `auto` and a config: resume
    /// the last run with the config's name that has a checkpoint, or else start a new run.
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    #[command(flatten)]
    ranks: RankArgs,
    /// Resume even if config or data have changed since the checkpoint in a way that affects
    /// training. The change is recorded in later checkpoints.
    #[arg(long = "override", requires = "resume")]
    accept_changes: bool,
    /// Stop when an evaluation reaches these scores: box=0.377,mask=0.339 (or only one of them).
    #[arg(long, value_name = "AP", value_parser = parse_target)]
    target: Option<Target>,
    /// Start even if the weights file lacks parameters that it should contain. They keep their
    /// initial values.
    #[arg(long, conflicts_with = "resume")]
    allow_partial: bool,
    /// Initialize from a weights file of a detector or backbone (safetensors, .pth, .pkl or .npz;
    /// tensor names used by torchvision, detectron2, Detectron, maskrcnn-benchmark or Tensorpack),
    /// or from a run. docs/weights.md lists published files.
    #[arg(long, value_name = "FILE", conflicts_with = "resume")]
    init: Option<PathBuf>,
    /// Checkpoint to use if --init is a run.
    #[arg(long, value_enum, default_value = "best", requires = "init", conflicts_with = "resume")]
    checkpoint: Choice,
    /// Keep the predictors' weights of each class whose name is also in the weights file. Only the
    /// weights of other classes are reinitialised.
    #[arg(long, conflicts_with = "resume")]
    finetune: bool,
    /// Load weights of another project even if its model computes something different from the same
    /// tensors. The differences are listed.
    #[arg(long, conflicts_with = "resume")]
    names_only: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

/// AP of boxes, masks and keypoints from the command line.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Target {
    pub(super) bbox: Option<f64>,
    pub(super) mask: Option<f64>,
    pub(super) keypoint: Option<f64>,
}

/// Parses `box=AP,mask=AP,keypoint=AP`, or only some of these.
pub(super) fn parse_target(text: &str) -> Result<Target, String> {
    let mut target = Target::default();
    for item in text.split(',') {
        let (key, value) =
            item.split_once('=').ok_or("expected box=AP,mask=AP or box=AP,keypoint=AP")?;
        let key = key.trim();
        let ap: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
        if !(0.0..=1.0).contains(&ap) {
            return Err(format!("{ap} is not between 0 and 1"));
        }
        let earlier = match key {
            "box" => target.bbox.replace(ap),
            "mask" => target.mask.replace(ap),
            "keypoint" => target.keypoint.replace(ap),
            other => return Err(format!("`{other}` is not box, mask or keypoint")),
        };
        if earlier.is_some() {
            return Err(format!("{key} is given twice"));
        }
    }
    Ok(target)
}

/// Trains. `begun` is called with the run directory before the first step.
pub(super) fn run(
    args: &TrainArgs,
    stop: &Stop,
    begun: &dyn Fn(&Path),
) -> Result<Outcome, EngineError> {
    let start = Start::of(args)?;
    let (mut config, origins) = load(args, &start)?;
    if let Some(target) = args.target {
        config.train.target_box = target.bbox.or(config.train.target_box);
        config.train.target_mask = target.mask.or(config.train.target_mask);
        config.train.target_keypoint = target.keypoint.or(config.train.target_keypoint);
    }
    config.model.allow_partial |= args.allow_partial;
    config.model.names_only |= args.names_only;
    let from = begin_from(args, &mut config)?;
    if args.print_config {
        super::print(&config.to_commented_toml()?)?;
        let removed = crate::config::schema().removed(&origins);
        let advice = removed.into_iter().chain(config.advice(&origins).unwrap_or_default());
        advice.for_each(|text| Progress::loud().say(&format!("warning: {text}")));
        return Ok(Outcome::Done);
    }
    let advice = match start {
        Start::Resumed(_) => Vec::new(),
        Start::New | Start::Auto => config.advice(&origins)?,
    };
    // Also printed when a run is resumed, since its config may have been written by an earlier
    // version.
    let removed = crate::config::schema().removed(&origins).map(|text| format!("warning: {text}"));
    let said: Vec<String> = from.into_iter().chain(removed).collect();
    rank::in_ranks(&args.ranks, &args.device, &config, stop, |rank| {
        said.iter().for_each(|line| rank.progress.say(line));
        train(args, &start, config.clone(), &advice, rank, (stop, begun))
    })
    .map_err(|error| with_file(error, &origins))
}

/// Adds the file that sets the key to a config error that was detected only after the data or the
/// model was opened.
fn with_file(error: EngineError, origins: &Origins) -> EngineError {
    let EngineError::Config(ConfigError::Invalid { file, key, problem }) = error else {
        return error;
    };
    let set = key.split_once('[').map_or(key.as_str(), |(list, _)| list);
    let file = origins.get(set).map_or(file, |origin| origin.file.clone());
    ConfigError::Invalid { file, key, problem }.into()
}

/// Applies --init and --finetune. If --init is a run, returns a message that names the chosen
/// checkpoint.
fn begin_from(args: &TrainArgs, config: &mut Config) -> Result<Option<String>, EngineError> {
    let model = &mut config.model;
    let mut line = None;
    if let Some(path) = &args.init {
        let mut path = remote::local(path)?;
        if path.is_dir() {
            let (chosen, why) = checkpoint::choose(&path, args.checkpoint)?;
            (path, line) = (checkpoint::weights_path(&chosen), Some(why));
        } else if args.checkpoint == Choice::Last {
            let text = format!(
                "--checkpoint only applies to a run, but {} is a file; remove --checkpoint",
                path.display()
            );
            return Err(EngineError::Usage(text));
        }
        let file = WeightsFile::open(&path)?;
        let path = path.to_string_lossy().into_owned();
        let is_backbone = file.is_backbone();
        let (whole, body) = if is_backbone { (None, Some(path)) } else { (Some(path), None) };
        (model.weights, model.backbone.weights) = (whole, body);
    }
    model.finetune |= args.finetune;
    match (&model.weights, &model.backbone.weights) {
        (None, Some(body)) if model.finetune => Err(EngineError::Usage(format!(
            "--finetune needs the weights of a detector, but {body} contains only a backbone: \
             remove --finetune"
        ))),
        (None, None) if model.finetune => Err(EngineError::Usage(
            "--finetune needs the weights of a detector: give --init FILE".into(),
        )),
        _ => Ok(line),
    }
}

/// The starting point of a run.
enum Start {
    /// A new run.
    New,
    /// The last checkpoint of the run in this local directory.
    Resumed(PathBuf),
    /// The last checkpoint of the last run with the config's name, or else a new run.
    Auto,
}

impl Start {
    /// The starting point that the arguments select. Conflicting arguments end the process with an
    /// error message of clap.
    ///
    /// # Errors
    /// The errors of staging a run in S3.
    fn of(args: &TrainArgs) -> Result<Self, EngineError> {
        let conflict = |text: String| -> ! {
            clap::Error::raw(ErrorKind::ArgumentConflict, text + "\n").exit()
        };
        Ok(match (args.resume.as_deref(), &args.config) {
            (None, _) => Start::New,
            (Some(path), Some(_)) if path == Path::new(AUTO) => Start::Auto,
            (Some(path), None) if path == Path::new(AUTO) => conflict(
                "--resume auto needs the config of the run: onegraph train CONFIG --resume auto"
                    .into(),
            ),
            (Some(_), Some(config)) => conflict(format!(
                "--resume continues a run with its own config: leave out {config}, or give --resume \
                 auto"
            )),
            (Some(path), None) => Start::Resumed(remote::resumed(path)?),
        })
    }
}

/// Value of --resume that selects the last run with the config's name.
const AUTO: &str = "auto";

fn train(
    args: &TrainArgs,
    start: &Start,
    config: Config,
    advice: &[String],
    rank: &Rank<'_>,
    (stop, begun): (&Stop, &dyn Fn(&Path)),
) -> Result<Outcome, EngineError> {
    let (backend, team) = rank.open(&args.device, &config)?;
    let (run, resume) = directory(args, start, &config, &team)?;
    let kept = match team.is_first() {
        true => remote::keep(&run, rank.progress)?,
        false => None,
    };
    let path = run.path().to_path_buf();
    let options = SessionOptions {
        resume,
        accept_changes: args.accept_changes,
        ..rank.options(run, (&backend, &team), stop)
    };
    let draw_images = config.eval.draw_images;
    let outcome = rank::session(config, options, stop).and_then(|mut session| {
        begun(&path);
        if !resume {
            advice.iter().for_each(|text| session.warn(text));
        }
        finish(session, draw_images, (rank.progress, team.is_first()), stop)
    });
    end(kept, outcome, &path, rank.progress)
}

/// Ends the synchronization with S3, if the run is stored there.
fn end(
    kept: Option<Kept>,
    outcome: Result<Outcome, EngineError>,
    run: &Path,
    progress: Progress,
) -> Result<Outcome, EngineError> {
    let Some(kept) = kept else { return outcome };
    if RunDir::open(run).is_err() {
        kept.discard();
        return outcome;
    }
    match (kept.end(), outcome) {
        (Err(fault), Ok(_)) => Err(fault),
        (Err(fault), Err(ended)) => {
            progress.say(&format!("warning: {fault}"));
            Err(ended)
        }
        (Ok(()), outcome) => outcome,
    }
}

/// Trains to the end, and writes the results.
fn finish(
    mut session: Session,
    draw_images: usize,
    (progress, is_first): (Progress, bool),
    stop: &Stop,
) -> Result<Outcome, EngineError> {
    let run = session.run_dir().clone();
    let (outcome, evaluation) = session.run()?;
    if !is_first {
        // The other ranks later wait until rank 0 has written the results; on these ranks, a signal
        // still only sets the flag of [`Stop::flag`].
        return Ok(outcome);
    }
    stop.end_at_once();
    if outcome == Outcome::Interrupted {
        let run = remote::name_of(run.path());
        progress.say(&format!("interrupted; continue with: onegraph train --resume {run}"));
        return Ok(outcome);
    }
    // The scores are printed first, so that a full disk does not lose them.
    for (_, summary) in evaluation.summaries() {
        super::print(&format!("{summary}\n"))?;
    }
    let written = run.folder("inference").and_then(|folder| evaluation.write(&folder));
    let drawn = match draw(&mut session, &run, draw_images, &progress) {
        // Only the drawing was interrupted.
        Err(EngineError::Interrupted) => {
            progress.say("interrupted: no pictures were drawn; the run is complete");
            Ok(())
        }
        drawn => drawn,
    };
    session.finish()?;
    written.and(drawn)?;
    for name in ["report.json", "report.html"] {
        super::print(&format!("report: {}\n", remote::name_of(&run.join(name))))?;
    }
    Ok(outcome)
}

/// The run directory, and true if the run is resumed. Rank 0 creates or locks the directory.
fn directory(
    args: &TrainArgs,
    start: &Start,
    config: &Config,
    team: &Team,
) -> Result<(RunDir, bool), EngineError> {
    let mut own = None;
    let (path, resume) = team.share("the run directory", || {
        let parent = Path::new(&config.train.run_dir);
        let name = run_name(args, config);
        let earlier = match start {
            Start::New => None,
            Start::Resumed(path) => Some(path.clone()),
            Start::Auto => remote::last_run(parent, &name)?,
        };
        let run = match &earlier {
            Some(path) => RunDir::open(path)?.locked()?,
            None => remote::new_run(parent, &name)?,
        };
        let path = run.path().to_path_buf();
        if earlier.is_some() {
            checkpoint::tidy(&path);
        }
        own = Some(run);
        Ok((path, earlier.is_some()))
    })?;
    let run = match own {
        Some(own) => own,
        None => remote::of_another(&path, resume)?,
    };
    Ok((run, resume))
}

fn load(args: &TrainArgs, start: &Start) -> Result<(Config, Origins), EngineError> {
    let path = match (start, &args.config) {
        (Start::Resumed(run), _) => config_of(&RunDir::open(run)?)?,
        (_, Some(config)) => PathBuf::from(config),
        (_, None) => {
            return Err(EngineError::Usage("no config given: onegraph train CONFIG".into()));
        }
    };
    let loaded = match start {
        Start::Resumed(_) => Config::load_as_written(&path, &args.set)?,
        Start::New | Start::Auto => Config::load_with_origins(&path, &args.set)?,
    };
    tracing::info!(from = %path.display(), set = ?args.set, "resolved the config");
    Ok(loaded)
}

/// The config file of a run, or of its last checkpoint if the run's is missing.
fn config_of(run: &RunDir) -> Result<PathBuf, EngineError> {
    match run.join(CONFIG) {
        own if own.is_file() => Ok(own),
        _ => Ok(checkpoint::last(run.path())?.join(CONFIG)),
    }
}

/// The run name: `train.name`, or else the name of the config file.
fn run_name(args: &TrainArgs, config: &Config) -> String {
    let file = args.config.as_deref().map(std::path::Path::new);
    let stem = file.and_then(|f| f.file_stem()).map(|s| s.to_string_lossy().into_owned());
    config.train.name.clone().or(stem).unwrap_or_else(|| "run".into())
}

/// Draws the model's detections on the first images of the evaluation set.
fn draw(
    session: &mut Session,
    run: &RunDir,
    count: usize,
    progress: &Progress,
) -> Result<(), EngineError> {
    if count == 0 {
        return Ok(());
    }
    let Some(set) = session.evaluation_set() else { return Ok(()) };
    let positions: Vec<usize> = (0..count.min(set.data().images.len())).collect();
    let found = session.detect(&positions)?;
    let names: Vec<String> = set.data().categories().into_iter().map(|(name, _)| name).collect();
    let mut pictures = Vec::new();
    for (position, detections) in positions.iter().zip(&found) {
        let image = set.load(*position)?;
        pictures.push(picture(&image, detections, &names, DRAWN_SCORE));
    }
    let path = run.write("predictions.png", &png(&sheet(&pictures, 4))?)?;
    progress.say(&format!("pictures: {}", path.display()));
    Ok(())
}
