//! `onegraph eval`: COCO's twelve numbers, for two files or a trained model.

use std::path::PathBuf;

use clap::Args;
use dali::score::{class_table, evaluate_files_by_class};

use super::device::DeviceArgs;
use super::model::ModelArgs;
use crate::EngineError;
use crate::classes::describe_classes;
use crate::dataset::{DataSet, Split};
use crate::evaluate::{Evaluator, TrainedModel};
use crate::model::classes_of;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// COCO annotations.
    #[arg(long, value_name = "FILE", requires = "detections")]
    #[arg(conflicts_with_all = ["run", "weights", "set"])]
    gt: Option<PathBuf>,
    /// COCO results; masks are scored if the entries hold any, else boxes.
    #[arg(long, value_name = "FILE", requires = "gt")]
    detections: Option<PathBuf>,
    #[command(flatten)]
    model: ModelArgs,
    /// Override a value of the model's config, such as --set data.val_store=DIR.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &EvalArgs) -> Result<(), EngineError> {
    if let (Some(gt), Some(detections)) = (&args.gt, &args.detections) {
        let (summary, classes) = evaluate_files_by_class(gt, detections)?;
        let (kind, classes) = (summary.iou_type, class_table(&classes));
        return super::print(&format!("{summary}\n\n{kind} by class\n{classes}\n"));
    }
    let progress = Progress::loud();
    let backend = args.device.open()?;
    let model = args.model.open_to_detect(&args.set, &backend, &progress)?;
    let split = if model.config.eval.train_set { Split::Train } else { Split::Val };
    let data = DataSet::open(&model.config, split, &progress)?;
    model.check_classes(&data)?;
    progress.say(&describe_classes(&data.categories()));
    let TrainedModel { config, params, mut state, .. } = model;
    let classes = classes_of(&params);
    let mut evaluator = Evaluator::new(&config, data, classes, &backend, &mut state)?;
    let evaluation = evaluator.run(&mut state, &progress)?;
    if evaluation.detections.is_empty()
        && let Some(why) = evaluator.why_nothing(&mut state)?
    {
        progress.say(&why);
    }
    for (_, summary) in evaluation.summaries() {
        super::print(&format!("{summary}\n"))?;
    }
    for ((name, _), analysis) in evaluation.summaries().zip(evaluator.set().analyze(&evaluation)?) {
        let classes = class_table(&analysis.classes);
        super::print(&format!("\n{name} by class\n{classes}\n"))?;
    }
    Ok(())
}
