//! `onegraph eval`: COCO metrics of a results file, or of a trained model. Detection can be divided
//! among several ranks.

use std::path::PathBuf;

use crate::config::Config;
use clap::Args;
use dali::plain;
use score::{Analysis, IouType, class_table, report_files};

use super::device::DeviceArgs;
use super::model::ModelArgs;
use super::rank::{self, Rank, RankArgs};
use super::signals::Stop;
use super::train::{Target, parse_target};
use crate::EngineError;
use crate::classes::{are_same, describe_classes};
use crate::dataset::{DataSet, Split};
use crate::evaluate::{Evaluation, Evaluator, TrainedModel};
use crate::model::classes_of;
use crate::remote::local;
use crate::run_dir::make_dir;
use crate::train::{Outcome, check_config, check_model};

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// Annotations in COCO format, or LVIS v1 annotations, which are scored by LVIS's rules.
    #[arg(long, value_name = "FILE", requires = "detections")]
    #[arg(conflicts_with_all = ["run", "weights", "set", "out", "ranks"])]
    gt: Option<PathBuf>,
    /// Detections in COCO results format; masks are scored if the entries have any, else boxes.
    #[arg(long, value_name = "FILE", requires = "gt")]
    detections: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Write the model's detections to this directory in COCO results format: bbox.json, and
    /// segm.json if the model has masks.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Compare with these expected scores: box=0.410,mask=0.372 (or only one of them). Exit code 1
    /// if a score differs by more than 0.002.
    #[arg(long, value_name = "AP", value_parser = parse_target, conflicts_with = "gt")]
    expect: Option<Target>,
    #[command(flatten)]
    ranks: RankArgs,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &EvalArgs, stop: &Stop) -> Result<Outcome, EngineError> {
    if let (Some(gt), Some(detections)) = (&args.gt, &args.detections) {
        rank::refuse_ranks("onegraph eval --gt")?;
        super::print(&format!("{}\n", report_files(&local(gt)?, &local(detections)?)?))?;
        return Ok(Outcome::Done);
    }
    let config = args.model.config()?;
    rank::in_ranks(&args.ranks, &args.device, &config, stop, |rank| {
        evaluate(args, &config, rank).map(|()| Outcome::Done)
    })
}

/// Runs detection on this rank's share of the images; rank 0 scores the detections of all ranks.
fn evaluate(args: &EvalArgs, config: &Config, rank: &Rank<'_>) -> Result<(), EngineError> {
    let progress = rank.progress;
    let (backend, team) = rank.open(&args.device, config)?;
    check_config(&team, config)?;
    let model = args.model.open(&backend, &progress)?;
    let (expected, kind) = (args.expect.unwrap_or_default(), model.config.model.kind);
    let further = [
        ("mask", expected.mask, kind.has_masks()),
        ("keypoint", expected.keypoint, kind.has_keypoints()),
    ];
    if let Some((word, ..)) = further.iter().find(|(_, ap, has)| ap.is_some() && !has) {
        let text =
            format!("--expect {word}=..: the model has no {word}s to score; expect only box AP");
        return Err(EngineError::Usage(text));
    }
    let split = if model.config.eval.train_set { Split::Train } else { Split::Val };
    let mut data = team.first_of_host_first("the data of a host", || {
        DataSet::open(&model.config, split, &progress)
    })?;
    let stated = model.categories.as_ref().filter(|of| !are_same(of, &data.categories()));
    if !stated.is_some_and(|classes| data.take_classes(classes)) {
        model.check_classes(&data)?;
    }
    data.take_keypoints(&model.keypoints, "the model", &progress)?;
    let unnamed = data.keypoints_of_model(&model.config);
    if model.keypoints.is_empty() && !unnamed.is_empty() {
        let names = plain(&unnamed.join(", "));
        progress.say(&format!(
            "the weights have no keypoint names; the data's order is assumed: {names}"
        ));
    }
    data.warn_of_exif(model.exif, &progress);
    let classes = describe_classes(&data.categories());
    progress.say(&match model.categories {
        Some(_) => classes,
        None => format!("the weights have no class names; the data's order is assumed: {classes}"),
    });
    let TrainedModel { config, params, mut state, checkpoint, .. } = model;
    check_model(&team, &data, &mut state)?;
    let classes = classes_of(&params);
    let mut evaluator = Evaluator::new(&config, data, classes, &backend, &mut state)?;
    progress.say(&evaluator.set().describe(&config));
    if team.is_first() {
        // Invalid annotations and `--out` are reported before detection, which may take hours.
        let set = evaluator.set();
        set.truth()?;
        let other = checkpoint.filter(|_| !config.eval.train_set);
        other.and_then(|of| of.warn_of_shared(set)).iter().for_each(|text| progress.say(text));
        args.out.as_deref().map_or(Ok(()), make_dir)?;
    }
    team.set_doing(0, "evaluating");
    let found = evaluator.detect_in_ranks(&mut state, &team, &progress)?;
    if !team.is_first() {
        return Ok(());
    }
    let evaluation = evaluator.set().score(&found.images()?)?;
    if evaluation.detections.is_empty()
        && let Some(why) = evaluator.why_nothing(&mut state)?
    {
        progress.say(&why);
    }
    print_scores(&evaluation, &evaluator.set().analyze(&evaluation)?)?;
    args.out.as_deref().map_or(Ok(()), |out| evaluation.write(out))?;
    args.expect.map_or(Ok(()), |expected| compare(expected, &evaluation))
}

/// Prints the metrics of all IoU types, then a table of scores by class for each IoU type.
fn print_scores(evaluation: &Evaluation, analyses: &[Analysis]) -> Result<(), EngineError> {
    for (_, summary) in evaluation.summaries() {
        super::print(&format!("{summary}\n"))?;
    }
    for (name, value) in &evaluation.numbers {
        super::print(&format!("{name} {value:.4}\n"))?;
    }
    for ((name, summary), analysis) in evaluation.summaries().zip(analyses) {
        let classes = class_table(&analysis.classes, summary.iou_type);
        super::print(&format!("\n{name} by class\n{classes}\n"))?;
    }
    Ok(())
}

/// Maximum difference from an expected score: published scores have three digits, and
/// implementations round differently.
const TOLERANCE: f64 = 0.002;

/// Prints each score next to the expected one.
///
/// # Errors
/// [`EngineError::Unexpected`] if a score differs by more than [`TOLERANCE`].
fn compare(expected: Target, evaluation: &Evaluation) -> Result<(), EngineError> {
    let mut text = String::new();
    let mut differing = Vec::new();
    for (kind, want) in [
        (IouType::Bbox, expected.bbox),
        (IouType::Segm, expected.mask),
        (IouType::Keypoints, expected.keypoint),
    ] {
        let Some(want) = want else { continue };
        let name = kind.name();
        let found = evaluation.summaries().find(|(found, _)| *found == name);
        let ap = found.map(|(_, summary)| summary.ap()).filter(|ap| *ap >= 0.0);
        let Some(ap) = ap else {
            differing.push(format!("{name} AP is undefined, expected {want:.4}"));
            continue;
        };
        // A decimal difference of exactly 0.002 may be slightly larger in f64.
        let is_close = (ap - want).abs() <= TOLERANCE + 1e-9;
        let verdict = if is_close { "as expected" } else { "not as expected" };
        text += &format!("{name} AP {ap:.4}, expected {want:.4} within {TOLERANCE}: {verdict}\n");
        if !is_close {
            differing.push(format!("{name} AP is {ap:.4}, expected {want:.4}"));
        }
    }
    super::print(&text)?;
    match differing.is_empty() {
        true => Ok(()),
        false => Err(EngineError::Unexpected(differing.join("; "))),
    }
}
