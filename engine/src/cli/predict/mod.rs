//! `onegraph predict`: detects objects on the user's images, and writes COCO results and pictures.

mod ids;
mod inputs;
mod pictures;

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;

use clap::Args;
use dali::plain;
use score::Detection;

use super::device::DeviceArgs;
use super::model::ModelArgs;
use crate::EngineError;
use crate::classes::describe_classes;
use crate::draw::picture;
use crate::evaluate::{Image, ImageDetections};
use crate::predictor::Predictor;
use crate::progress::{Progress, counted};
use crate::run_dir::{io, make_dir};
use ids::{image_ids, remark};
use inputs::Inputs;
use pictures::Pictures;

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Output directory for pictures and predictions.json. An image's id is its file name if that
    /// is a number, as in COCO. Files with other names, or with a number that several files share,
    /// get ids above these numbers.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Minimum score of drawn detections, 0 to 1. predictions.json contains all detections.
    #[arg(long, default_value_t = 0.5, value_parser = score)]
    min_score: f32,
    /// Stop at the first path that does not exist or image that cannot be read, instead of
    /// reporting and skipping it.
    #[arg(long)]
    strict: bool,
    /// Image files, or folders, which are searched recursively. Pictures that an earlier run wrote
    /// there are skipped.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Maximum number of images that are queued between reading and the model, and between the model
/// and drawing.
const AHEAD: usize = 2;

/// File with the detections of all images.
const RESULTS: &str = "predictions.json";

fn score(text: &str) -> Result<f32, String> {
    let score = text.parse::<f32>().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| "a score must be between 0 and 1".to_string())
}

pub(super) fn run(args: &PredictArgs) -> Result<(), EngineError> {
    super::rank::refuse_ranks("onegraph predict")?;
    let progress = Progress::loud();
    let inputs = Inputs::collect(&args.images, &args.out)?;
    let mut skips = Skips { strict: args.strict, ..Skips::default() };
    for fault in inputs.faults {
        skips.add(fault, &progress)?;
    }
    if inputs.drawn > 0 {
        let drawn = counted(inputs.drawn, "picture");
        progress.say(&format!("skipped: {drawn} that an earlier run wrote"));
    }
    make_dir(&args.out)?;
    check_ours(&args.out.join(RESULTS))?;
    let backend = args.device.open()?;
    let model = args.model.open(&backend, &progress)?;
    let mut output = Output::new(args, &model.classes());
    model.remarks().iter().for_each(|remark| progress.say(remark));
    progress.say(&describe_classes(&model.classes()));
    let found_from = model.config.model.detections.score_threshold;
    if args.min_score < found_from {
        progress.say(&format!(
            "only detections with scores of at least {found_from} are kept, so --min-score {} \
             draws no additional ones; to draw more, add --set model.detections.score_threshold=0",
            args.min_score
        ));
    }
    let mut predictor = Predictor::new(model, &backend);
    let last = detect(&mut predictor, inputs.files, (&mut output, &mut skips), &progress)?;
    if output.results.is_empty()
        && let Some(image) = last
        && let Some(why) = predictor.why_nothing(&image)?
    {
        progress.say(&why);
    }
    match (output.files.len(), skips.first) {
        (0, Some(fault)) => Err(fault),
        _ => output.finish(skips.count, &progress),
    }
}

/// Runs detection on the files, and returns the last image that could be read. While the model
/// processes an image, one thread reads the next, and another draws the previous one.
fn detect(
    predictor: &mut Predictor,
    files: Vec<PathBuf>,
    (output, skips): (&mut Output<'_>, &mut Skips),
    progress: &Progress,
) -> Result<Option<Image>, EngineError> {
    let bar = progress.bar("predicting", files.len() as u64);
    let (most, exif) = (predictor.max_image_pixels(), predictor.exif());
    let last = std::thread::scope(|scope| {
        let (hand, read) = sync_channel(AHEAD);
        scope.spawn(move || {
            // Stops early if the receiver was dropped.
            files.into_iter().all(|file| {
                let image = Image::read(&file, 0, most, exif);
                hand.send((file, image)).is_ok()
            })
        });
        let (give, take) = sync_channel::<(PathBuf, Image, ImageDetections)>(AHEAD);
        let drawing = scope.spawn({
            let bar = &bar;
            move || -> Result<_, EngineError> {
                let mut last = None;
                for (file, image, found) in take {
                    bar.suspend(|| output.add(file, &image, &found, progress))?;
                    last = Some(image);
                }
                Ok(last)
            }
        });
        for (file, image) in read {
            match image {
                Ok((image, doubt)) => {
                    if let Some(doubt) = doubt {
                        let text = format!("warning: {} {doubt}", file.display());
                        bar.suspend(|| progress.say(&text));
                    }
                    let found = predictor.detect(&image)?;
                    // Sending fails only if the drawing thread has ended with an error.
                    if give.send((file, image, found)).is_err() {
                        break;
                    }
                }
                Err(fault) => bar.suspend(|| skips.add(fault, progress))?,
            }
            bar.inc(1);
        }
        drop(give);
        match drawing.join() {
            Ok(last) => last,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })?;
    bar.finish_and_clear();
    Ok(last)
}

/// Rejects an existing results file that a different program wrote: only files that onegraph wrote
/// contain each image's file name.
fn check_ours(path: &Path) -> Result<(), EngineError> {
    if dali::file::regular(path).is_err() {
        return Ok(());
    }
    let (mut head, mut file) = (Vec::new(), File::open(path).map_err(io(path))?);
    file.by_ref().take(100).read_to_end(&mut head).map_err(io(path))?;
    let head = String::from_utf8_lossy(&head);
    if head.is_empty() || head == "[]\n" || head.contains(",\"file_name\":") {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{} was not written by onegraph predict: move it away, or use a different --out",
        path.display()
    )))
}

/// Images that could not be read.
#[derive(Default)]
struct Skips {
    strict: bool,
    count: usize,
    first: Option<EngineError>,
}

impl Skips {
    /// Prints an error and counts it; with `--strict`, returns it instead.
    fn add(&mut self, fault: EngineError, progress: &Progress) -> Result<(), EngineError> {
        if self.strict {
            return Err(fault);
        }
        progress.say(&format!("skipped: {}", plain(&fault.to_string())));
        self.count += 1;
        self.first.get_or_insert(fault);
        Ok(())
    }
}

/// Writes the output files of a prediction.
struct Output<'a> {
    args: &'a PredictArgs,
    names: Vec<String>,
    ids: Vec<u64>,
    /// The pictures in the output folder; `None` before the first image.
    pictures: Option<Pictures>,
    /// The error of the first picture that could not be written; no more are drawn afterwards.
    undrawn: Option<EngineError>,
    /// Files of the images that were read.
    files: Vec<PathBuf>,
    /// Detections, each with the index of its image in `files`. Image ids are assigned at the end,
    /// since they depend on which images can be read.
    results: Vec<(usize, Detection)>,
}

impl<'a> Output<'a> {
    fn new(args: &'a PredictArgs, classes: &[(String, u64)]) -> Self {
        let (names, ids) = classes.iter().cloned().unzip();
        Self { args, names, ids, pictures: None, undrawn: None, files: vec![], results: vec![] }
    }

    /// Adds the detections on an image, and draws them. If a picture cannot be written, no more are
    /// drawn.
    ///
    /// # Errors
    /// With `--strict`, if a picture cannot be written.
    fn add(
        &mut self,
        file: PathBuf,
        image: &Image,
        found: &ImageDetections,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let position = self.files.len();
        if self.undrawn.is_none()
            && let Err(fault) = self.draw(position, &file, image, found)
        {
            if self.args.strict {
                return Err(fault);
            }
            progress.say(&format!("warning: {fault}; no more pictures are drawn"));
            self.undrawn = Some(fault);
        }
        self.results.extend(found.to_coco(&self.ids).map(|result| (position, result)));
        self.files.push(file);
        Ok(())
    }

    fn draw(
        &mut self,
        position: usize,
        file: &Path,
        image: &Image,
        found: &ImageDetections,
    ) -> Result<(), EngineError> {
        // Created at the first image, so that the pictures of an earlier run are kept if no image
        // can be read.
        let pictures = match &mut self.pictures {
            Some(pictures) => pictures,
            none => none.insert(Pictures::begin(&self.args.out)?),
        };
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned());
        let drawn = picture(image, found, &self.names, self.args.min_score);
        pictures.add(&format!("{position:04}_{}", stem.unwrap_or_default()), &drawn)
    }

    /// Writes `predictions.json`.
    fn finish(self, skipped: usize, progress: &Progress) -> Result<(), EngineError> {
        let ids = image_ids(&self.files);
        if let Some(remark) = remark(&self.files, &ids) {
            progress.say(&remark);
        }
        let (mut results, mut files) = (vec![], vec![]);
        for (position, result) in self.results {
            results.push(Detection { image_id: ids[position], ..result });
            files.push(self.files[position].display().to_string());
        }
        let path = self.args.out.join(RESULTS);
        score::write_results_json_with_files(&path, &results, &files)?;
        let (objects, images) =
            (counted(results.len(), "object"), counted(self.files.len(), "image"));
        let skipped = match skipped {
            0 => String::new(),
            count => format!(" ({count} skipped)"),
        };
        super::print(&format!("{objects} on {images}{skipped}: {}\n", path.display()))?;
        self.undrawn.map_or(Ok(()), Err)
    }
}
