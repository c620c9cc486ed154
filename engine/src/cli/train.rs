//! `onegraph train`.

use std::path::PathBuf;

use clap::Args;
use configs::Config;
use dali::unfinished::Unfinished;

use super::device::DeviceArgs;
use super::signals::Stop;
use crate::EngineError;
use crate::draw::{picture, sheet};
use crate::progress::Progress;
use crate::run_dir::RunDir;
use crate::train::{Outcome, Session, SessionOptions};

/// Minimum score of drawn detections.
const DRAWN_SCORE: f32 = 0.5;

#[derive(Debug, Args)]
pub(super) struct TrainArgs {
    /// Config file, or the name of a preset; with --resume the run's own config is used.
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    config: Option<String>,
    /// Override a config value, such as --set solver.learning_rate=0.02.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Print the resolved config, every key with its meaning, and stop.
    #[arg(long)]
    print_config: bool,
    /// Resume the run in this directory from its last checkpoint.
    #[arg(long, value_name = "RUN")]
    resume: Option<PathBuf>,
    /// Resume even if config or data differ from the checkpoint's in what changes a step; the
    /// change is recorded in later checkpoints.
    #[arg(long = "override", requires = "resume")]
    accept_changes: bool,
    /// Stop when an evaluation reaches these scores: box=0.377,mask=0.339 (or only one of them).
    #[arg(long, value_name = "AP", value_parser = parse_target)]
    target: Option<Target>,
    /// Start although the weights file does not fill what it should: the rest keeps its initial
    /// values.
    #[arg(long, conflicts_with = "resume")]
    allow_partial: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

#[derive(Debug, Clone, Copy, Default)]
struct Target {
    bbox: Option<f64>,
    mask: Option<f64>,
}

fn parse_target(text: &str) -> Result<Target, String> {
    let mut target = Target::default();
    for item in text.split(',') {
        let (key, value) = item.split_once('=').ok_or("expected box=AP,mask=AP")?;
        let ap: f64 = value.parse().map_err(|_| format!("`{value}` is not a number"))?;
        if !(0.0..=1.0).contains(&ap) {
            return Err(format!("{ap} is not between 0 and 1"));
        }
        match key {
            "box" => target.bbox = Some(ap),
            "mask" => target.mask = Some(ap),
            other => return Err(format!("`{other}` is neither box nor mask")),
        }
    }
    Ok(target)
}

pub(super) fn run(args: &TrainArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    let mut config = load(args)?;
    if let Some(target) = args.target {
        config.train.target_box = target.bbox.or(config.train.target_box);
        config.train.target_mask = target.mask.or(config.train.target_mask);
    }
    config.model.allow_partial |= args.allow_partial;
    if args.print_config {
        super::print(&config.to_commented_toml()?)?;
        return Ok(Outcome::Done);
    }
    let backend = args.device.open()?;
    let progress = Progress::loud();
    let run = match &args.resume {
        Some(path) => RunDir::open(path)?.locked()?,
        None => RunDir::create(config.train.run_dir.as_ref(), &run_name(args, &config))?,
    };
    let options = SessionOptions {
        run: run.clone(),
        resume: args.resume.is_some(),
        accept_changes: args.accept_changes,
        interrupted: stop.flag(),
        progress,
        backend,
    };
    let draw_images = config.eval.draw_images;
    // Whatever ends a new run before its first step leaves no trace of it.
    let mark = args.resume.is_none().then(|| Unfinished::mark(run.path()));
    let mut session = match Session::new(config, options) {
        Ok(session) => session,
        Err(fault) => {
            run.discard_if_empty();
            return Err(fault);
        }
    };
    drop(mark);
    stop.finish_first();
    let (outcome, evaluation) = session.run()?;
    stop.end_at_once();
    if outcome == Outcome::Interrupted {
        let path = run.path().display();
        progress.say(&format!("interrupted; go on with: onegraph train --resume {path}"));
        return Ok(outcome);
    }
    // The scores come first: a full disk does not take them.
    for (_, summary) in evaluation.summaries() {
        super::print(&format!("{summary}\n"))?;
    }
    let written = evaluation.write(&run.join("inference"));
    let drawn = draw(&mut session, &run, draw_images, &progress);
    session.finish()?;
    written.and(drawn)?;
    for name in ["report.json", "report.html"] {
        super::print(&format!("report: {}\n", run.join(name).display()))?;
    }
    Ok(outcome)
}

fn load(args: &TrainArgs) -> Result<Config, EngineError> {
    let path = match (&args.resume, &args.config) {
        (Some(run), _) => RunDir::open(run)?.join("config.toml"),
        (None, Some(config)) => PathBuf::from(config),
        (None, None) => return Err(EngineError::Usage("name a config file".into())),
    };
    let config = Config::load(&path, &args.set)?;
    tracing::info!(from = %path.display(), set = ?args.set, "resolved the config");
    Ok(config)
}

/// The run name from the config, else the name of its file.
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
    let (evaluator, state) = session.evaluator();
    let count = count.min(evaluator.data().images.len());
    let positions: Vec<usize> = (0..count).collect();
    let found = evaluator.detect(state, &positions, &Progress::quiet())?;
    let names: Vec<String> =
        evaluator.data().categories().into_iter().map(|(name, _)| name).collect();
    let mut pictures = Vec::new();
    for (position, detections) in positions.iter().zip(&found) {
        let image = evaluator.load(*position)?;
        pictures.push(picture(&image, detections, &names, DRAWN_SCORE));
    }
    let path = run.join("predictions.png");
    super::predict::save_picture(&sheet(&pictures, 4), &path)?;
    progress.say(&format!("pictures: {}", path.display()));
    Ok(())
}
