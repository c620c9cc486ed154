//! `bench infer`: images per second of detection, as `onegraph eval` and `predict` run it, with the
//! time of each stage.

mod figures;

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Context;
use clap::Args;
use dali::order::PaddedShape;
use device::Device;
use engine::cli::DeviceArgs;
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::evaluate::{DetectionModel, Evaluator, ImageDetections, Stages};
use engine::progress::Progress;
use engine::runtime::Backend;
use engine::weights::{Extent, WeightsFile};
use serde_json::{Value, json};

use crate::full_size;
use crate::random_weights::calm;
use crate::report::{commit, cpu, driver, percentile, processor_seconds, write_json};
use figures::{Case, Run, print_head};

#[derive(Debug, Args)]
pub(crate) struct InferArgs {
    /// Images per run; several values are measured one after another.
    #[arg(long, value_delimiter = ',', default_value = "1,8")]
    batch: Vec<usize>,
    /// Images to time at each batch size; the data repeats if it has fewer images.
    #[arg(long, default_value_t = 64)]
    images: usize,
    /// Warm-up runs.
    #[arg(long, default_value_t = 2)]
    warmup: usize,
    /// Measure each batch size for at most this many seconds.
    #[arg(long)]
    seconds: Option<f64>,
    /// Config file, or the name of a preset.
    #[arg(long, default_value = "quickstart")]
    preset: String,
    /// Override a config value.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Use synthetic images that fill this padded shape, instead of the config's data.
    #[arg(long, value_name = "HEIGHTxWIDTH")]
    padded: Option<PaddedShape>,
    /// Weights of the model (safetensors); default: model.weights or model.backbone.weights,
    /// otherwise random initial weights.
    #[arg(long, value_name = "FILE")]
    weights: Option<PathBuf>,
    /// Minimum score of a detection. The default is the config's, but 0 with partly random weights,
    /// whose scores are meaningless: each image then has the maximum number of detections.
    #[arg(long, value_name = "SCORE")]
    score_threshold: Option<f32>,
    /// Write the figures to this file, updated after each batch size.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(crate) fn run(args: &InferArgs) -> anyhow::Result<()> {
    anyhow::ensure!(args.images > 0, "--images must be at least 1");
    anyhow::ensure!(!args.batch.contains(&0), "--batch 0: a run takes at least one image");
    let mut config = Config::load(&args.preset, &args.set)?;
    let backend = args.device.open()?;
    let data = open_data(args, &mut config)?;
    let classes = config.model.num_classes.max(data.num_classes());
    let weights = args.weights.clone();
    let given = |path: &Option<String>| path.as_ref().map(PathBuf::from);
    let whole = weights.or_else(|| given(&config.model.weights));
    let extent = if whole.is_some() { Extent::Model } else { Extent::Backbone };
    let weights = whole.or_else(|| given(&config.model.backbone.weights));
    let file = weights.as_deref().map(WeightsFile::open).transpose()?;
    let of_file = file.as_ref().map(|file| (file, extent));
    let mut model = DetectionModel::new(&config, classes, of_file, &backend)?;
    let random = model.loaded.as_ref().map_or(model.params.len(), |r| r.initial().count());
    if random > 0 {
        let DetectionModel { params, state, loaded } = &mut model;
        calm(&config, params, loaded.as_ref(), state)?;
    }
    let chosen = args.score_threshold.or((random > 0).then_some(0.0));
    if let Some(score) = chosen {
        config.model.detections.score_threshold = score;
    }
    let told = match &weights {
        None => "random".to_string(),
        Some(path) if random == 0 => path.display().to_string(),
        Some(path) => format!("{}, {random} missing tensors are random", path.display()),
    };
    let threshold = config.model.detections.score_threshold;
    let (device, is_device) = match &backend {
        Backend::Cpu => (cpu(), false),
        Backend::Device(device) => (device.name(), true),
    };
    say!(
        "{device} | commit {} | preset {} | weights {told} | scores over {threshold}, {} an image \
         at most",
        commit(),
        args.preset,
        config.model.detections.per_image,
    );
    let mut value = json!({
        "kind": "infer", "device": device, "driver": driver().filter(|_| is_device),
        "commit": commit(), "preset": args.preset, "weights": told,
        "score_threshold": threshold, "most_detections": config.model.detections.per_image,
        "cases": [],
    });
    print_head();
    for batch in &args.batch {
        config.eval.batch_size = *batch;
        config.eval.max_images = args.images;
        let state = &mut model.state;
        let mut evaluator = Evaluator::new(&config, data.clone(), classes, &backend, state)?;
        let case = time(args, &mut evaluator, &mut model, &backend)?;
        case.print();
        let figures = case.json();
        if let Value::Array(cases) = &mut value["cases"] {
            cases.push(figures);
        }
        args.json.as_ref().map_or(Ok(()), |path| write_json(path, &value))?;
    }
    figures::print_foot(is_device);
    Ok(())
}

/// Synthetic images if a padded shape is given, otherwise the data that `onegraph eval` would use.
fn open_data(args: &InferArgs, config: &mut Config) -> anyhow::Result<DataSet> {
    let progress = Progress::loud();
    if let Some(shape) = args.padded {
        return full_size::open(config, shape, None, &progress);
    }
    let split = if config.eval.train_set { Split::Train } else { Split::Val };
    Ok(DataSet::open(config, split, &progress)?)
}

/// Runs full batches until the number of images or the time limit is reached; then scores the
/// detections.
fn time(
    args: &InferArgs,
    evaluator: &mut Evaluator,
    model: &mut DetectionModel,
    backend: &Backend,
) -> anyhow::Result<Case> {
    let images = evaluator.set().images().to_vec();
    let size = evaluator.detector_mut().batch_size();
    let mut batches = evaluator.batches(&images);
    for (_, batch) in &mut batches {
        let whole = batch.iter().copied().cycle().take(size).collect();
        *batch = whole;
    }
    let (shape, first) =
        batches.first().cloned().context("the data holds no image to detect on")?;
    let mut found: Vec<Option<ImageDetections>> = vec![None; images.len()];
    for _ in 0..args.warmup {
        one(evaluator, model, &images, (shape, &first))?;
    }
    let (mut runs, wanted) = (Vec::new(), args.images.div_ceil(size));
    let limit = args.seconds.unwrap_or(f64::INFINITY);
    let bar = Progress::loud().bar("runs", wanted as u64);
    let busy = processor_seconds();
    let started = Instant::now();
    for (shape, batch) in batches.iter().cycle().take(wanted) {
        if started.elapsed().as_secs_f64() > limit && !runs.is_empty() {
            break;
        }
        let (here, stages) = one(evaluator, model, &images, (*shape, batch))?;
        runs.push(Run::new(stages, &here));
        for (position, image) in batch.iter().zip(here) {
            found[*position] = Some(image);
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    let processor_ms = busy
        .zip(processor_seconds())
        .map(|(before, after)| 1e3 * (after - before) / runs.len() as f64);
    let found: Vec<ImageDetections> = found.into_iter().flatten().collect();
    let started = Instant::now();
    evaluator.set().score(&found)?;
    let score_ms = 1e3 * started.elapsed().as_secs_f64() / found.len() as f64;
    let mut shapes: Vec<usize> = batches.iter().take(wanted).map(|(shape, _)| *shape).collect();
    shapes.dedup();
    let padded = shapes.iter().map(|s| evaluator.set().data().shapes[*s].to_string()).collect();
    let input_bytes = evaluator.detector_mut().input_bytes(shape);
    let copy_ms = match backend {
        Backend::Cpu => None,
        Backend::Device(device) => Some(copy_ms(device.as_ref(), input_bytes)?),
    };
    let scored = found.len();
    Ok(Case { size, padded, runs, score_ms, scored, input_bytes, processor_ms, copy_ms })
}

/// Runs one batch; reading and decoding its images is not timed.
fn one(
    evaluator: &mut Evaluator,
    model: &mut DetectionModel,
    images: &[usize],
    (shape, batch): (usize, &[usize]),
) -> anyhow::Result<(Vec<ImageDetections>, Stages)> {
    let load = |position: &usize| evaluator.set().load(images[*position]);
    let batch = batch.iter().map(load).collect::<Result<Vec<_>, _>>()?;
    Ok(evaluator.detector_mut().run_timed(shape, &batch, &mut model.state)?)
}

/// Median milliseconds to copy `bytes` to the device, by the device's clock: the part of a
/// program's time spent on copying inputs.
fn copy_ms(device: &dyn Device, bytes: usize) -> anyhow::Result<f64> {
    let (stream, memory) = (device.stream()?, device.alloc(bytes)?);
    let (start, end) = (device.timing_event()?, device.timing_event()?);
    let pinned = device.alloc_pinned(bytes)?;
    let mut ms = Vec::new();
    for _ in 0..6 {
        device.record(start, stream)?;
        device.upload(stream, memory, pinned, 0, bytes)?;
        device.record(end, stream)?;
        ms.push(f64::from(device.elapsed_ms(start, end)?));
    }
    device.free(memory)?;
    device.free_pinned(pinned)?;
    Ok(percentile(&ms[1..], 0.5))
}
