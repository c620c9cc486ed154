//! `onegraph predict`: COCO results and pictures for your own images.

mod inputs;
mod pictures;

use std::path::{Path, PathBuf};

use clap::Args;
use dali::score::Detection;

use super::device::DeviceArgs;
use super::model::ModelArgs;
use crate::EngineError;
use crate::classes::describe_classes;
use crate::draw::picture;
use crate::evaluate::{Image, ImageDetections};
use crate::predictor::Predictor;
use crate::progress::Progress;
use crate::run_dir::make_dir;
use inputs::Inputs;
use pictures::Pictures;

pub(super) use pictures::save_picture;

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Override a value of the model's config, such as --set model.detections.per_image=20.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Output directory for pictures and predictions.json. An image's id is the number in its file
    /// name, as in COCO; if a name is not a number, or two are equal, ids count from 0.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Minimum score of drawn detections; predictions.json contains all.
    #[arg(long, default_value_t = 0.5)]
    min_score: f32,
    /// Stop at the first image that cannot be read, instead of naming and skipping it.
    #[arg(long)]
    strict: bool,
    /// JPEG and PNG files, or folders, which are searched with their subfolders.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &PredictArgs) -> Result<(), EngineError> {
    let progress = Progress::loud();
    let inputs = Inputs::collect(&args.images, &args.out)?;
    let mut skips = Skips { strict: args.strict, ..Skips::default() };
    for (path, format) in &inputs.unsupported {
        let path = path.display();
        let reason = format!("{path} is {format}; only JPEG and PNG are read: convert it");
        skips.add(EngineError::Usage(reason), &progress)?;
    }
    make_dir(&args.out)?;
    let backend = args.device.open()?;
    let model = args.model.open(&args.set, &backend, &progress)?;
    let mut output = Output::new(args, &model.classes());
    progress.say(&describe_classes(&model.classes()));
    let mut predictor = Predictor::new(model, &backend);
    let mut last = None;
    let bar = progress.bar("predicting", inputs.files.len() as u64);
    for (i, (file, id)) in inputs.files.iter().zip(inputs.ids()).enumerate() {
        match predictor.read(file, id) {
            Ok(image) => {
                let found = predictor.detect(&image)?;
                output.add(i, file, &image, &found)?;
                last = Some(image);
            }
            Err(fault) => bar.suspend(|| skips.add(fault, &progress))?,
        }
        bar.inc(1);
    }
    bar.finish_and_clear();
    if output.results.is_empty()
        && let Some(image) = last
        && let Some(why) = predictor.why_nothing(&image)?
    {
        progress.say(&why);
    }
    match (output.images, skips.first) {
        (0, Some(fault)) => Err(fault),
        _ => output.finish(skips.count),
    }
}

/// Images that cannot be read.
#[derive(Default)]
struct Skips {
    strict: bool,
    count: usize,
    first: Option<EngineError>,
}

impl Skips {
    /// Names a fault and goes on; with `--strict` it ends the command.
    fn add(&mut self, fault: EngineError, progress: &Progress) -> Result<(), EngineError> {
        if self.strict {
            return Err(fault);
        }
        progress.say(&format!("skipped: {fault}"));
        self.count += 1;
        self.first.get_or_insert(fault);
        Ok(())
    }
}

/// What a prediction writes.
struct Output<'a> {
    args: &'a PredictArgs,
    names: Vec<String>,
    ids: Vec<u64>,
    /// The folder's pictures, from the first image on.
    pictures: Option<Pictures>,
    results: Vec<Detection>,
    /// Of each result, its image file.
    files: Vec<String>,
    images: usize,
}

impl<'a> Output<'a> {
    fn new(args: &'a PredictArgs, classes: &[(String, u64)]) -> Self {
        let (names, ids) = classes.iter().cloned().unzip();
        Self { args, names, ids, pictures: None, results: vec![], files: vec![], images: 0 }
    }

    /// Takes up the detections on an image, and draws them.
    fn add(
        &mut self,
        position: usize,
        file: &Path,
        image: &Image,
        found: &ImageDetections,
    ) -> Result<(), EngineError> {
        // Not earlier: a run that reads no image leaves the last one's pictures alone.
        let pictures = match &mut self.pictures {
            Some(pictures) => pictures,
            none => none.insert(Pictures::begin(&self.args.out)?),
        };
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned());
        let drawn = picture(image, found, &self.names, self.args.min_score);
        pictures.add(&format!("{position:04}_{}", stem.unwrap_or_default()), &drawn)?;
        self.results.extend(found.to_coco(&self.ids));
        self.files.resize(self.results.len(), file.display().to_string());
        self.images += 1;
        Ok(())
    }

    /// Writes `predictions.json`.
    fn finish(self, skipped: usize) -> Result<(), EngineError> {
        let path = self.args.out.join("predictions.json");
        dali::score::write_results_json_with_files(&path, &self.results, &self.files)?;
        let (objects, images, path) = (self.results.len(), self.images, path.display());
        let skipped = match skipped {
            0 => String::new(),
            count => format!(" ({count} skipped)"),
        };
        super::print(&format!("{objects} objects on {images} images{skipped}: {path}\n"))
    }
}
