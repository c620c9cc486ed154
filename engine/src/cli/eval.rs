//! `onegraph eval`: COCO's twelve numbers, for two files or a trained model.

use std::path::PathBuf;

use clap::Args;

use super::device::DeviceArgs;
use crate::EngineError;
use crate::dataset::{DataSet, Split};
use crate::evaluate::{Evaluator, TrainedModel};
use crate::model::classes_of;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(super) struct EvalArgs {
    /// COCO annotations.
    #[arg(long, value_name = "FILE", requires = "detections", conflicts_with = "run")]
    gt: Option<PathBuf>,
    /// COCO results; masks are scored if the entries hold any, else boxes.
    #[arg(long, value_name = "FILE", requires = "gt")]
    detections: Option<PathBuf>,
    /// Run directory: evaluates its last checkpoint on its validation data.
    #[arg(long, value_name = "RUN", required_unless_present = "gt")]
    run: Option<PathBuf>,
    /// Override a value of the run's config, such as --set data.val_store=DIR.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &EvalArgs) -> Result<(), EngineError> {
    if let (Some(gt), Some(detections)) = (&args.gt, &args.detections) {
        let summary = dali::score::evaluate_files(gt, detections, None)?;
        return super::print(&format!("{summary}\n"));
    }
    let Some(run) = &args.run else {
        return Err(EngineError::Usage("give --gt and --detections, or --run".into()));
    };
    let progress = Progress::loud();
    let backend = args.device.open()?;
    let model = TrainedModel::open(run, &args.set, &backend, &progress)?;
    let TrainedModel { config, params, mut state, categories } = model;
    let split = if config.eval.train_set { Split::Train } else { Split::Val };
    let data = DataSet::open(&config, split, &progress)?;
    if data.categories() != categories {
        return Err(EngineError::Usage(format!(
            "{} names other classes than the data that {} was trained on: evaluate on data with \
             the same categories",
            data.store.path().display(),
            run.display()
        )));
    }
    let classes = classes_of(&params);
    let mut evaluator = Evaluator::new(&config, data, classes, &backend, &mut state)?;
    let evaluation = evaluator.run(&mut state, &progress)?;
    let mut summaries = evaluation.summaries();
    summaries.try_for_each(|(_, summary)| super::print(&format!("{summary}\n")))
}
