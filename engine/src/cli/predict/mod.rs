//! `onegraph predict`: COCO results and pictures for your own images.

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
    /// Output directory for pictures and predictions.json. An image's id is the number that is its
    /// file's name, as in COCO; a file of another name, or whose number another file has too, gets
    /// an id above all these numbers.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Minimum score of drawn detections, 0 to 1; predictions.json contains all.
    #[arg(long, default_value_t = 0.5, value_parser = score)]
    min_score: f32,
    /// Stop at the first path that does not exist or image that cannot be read, instead of naming
    /// and skipping it.
    #[arg(long)]
    strict: bool,
    /// Image files, or folders, which are searched with their subfolders. Pictures that an
    /// earlier run drew there are left out.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

/// Images that are read, or not drawn yet, while the model runs.
const AHEAD: usize = 2;

/// The detections of all images.
const RESULTS: &str = "predictions.json";

fn score(text: &str) -> Result<f32, String> {
    let score = text.parse::<f32>().ok().filter(|score| (0.0..=1.0).contains(score));
    score.ok_or_else(|| "a score lies between 0 and 1".to_string())
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
        progress.say(&format!("left out: {drawn} that an earlier run drew"));
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
            "objects are found from a score of {found_from} on: --min-score {} draws no more; lower \
             it with --set model.detections.score_threshold=0",
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

/// Detects on the files, and returns the last image that was read. While the model runs on an
/// image, one thread reads the next, and another draws the previous one.
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
            // Until all are read, or the receiver is dropped.
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
                    // The thread receives every image, unless an error of a picture ends the
                    // command.
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

/// Rejects replacing detections that another program wrote: ours have the image's file name.
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
        "{} was not written by onegraph predict: move it away, or name another --out",
        path.display()
    )))
}

/// Images that cannot be read.
#[derive(Default)]
struct Skips {
    strict: bool,
    count: usize,
    first: Option<EngineError>,
}

impl Skips {
    /// Prints an error and continues; with `--strict` it ends the command.
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

/// The files that a prediction writes.
struct Output<'a> {
    args: &'a PredictArgs,
    names: Vec<String>,
    ids: Vec<u64>,
    /// The folder's pictures, from the first image on.
    pictures: Option<Pictures>,
    /// The first picture that could not be written; drawing stops there.
    undrawn: Option<EngineError>,
    /// The images that were read.
    files: Vec<PathBuf>,
    /// Each with its image's position in `files`: ids depend on which images can be read.
    results: Vec<(usize, Detection)>,
}

impl<'a> Output<'a> {
    fn new(args: &'a PredictArgs, classes: &[(String, u64)]) -> Self {
        let (names, ids) = classes.iter().cloned().unzip();
        Self { args, names, ids, pictures: None, undrawn: None, files: vec![], results: vec![] }
    }

    /// Adds the detections on an image, and draws them. A full disk only ends the drawing.
    ///
    /// # Errors
    /// An error of a picture, with `--strict`.
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
        // Not earlier: a run that reads no image keeps the last one's pictures.
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
