//! `onegraph prep`: builds a store from annotated images or synthetic shapes.

use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use dali::DaliError;
use dali::formats::{FORMATS, Request, Source};
use dali::prep::{EmptyImages, Exif, Masks, PrepOptions, PrepReport};
use dali::store::PixelEncoding;
use dali::synthetic::SyntheticOptions;

use crate::EngineError;
use crate::model::roi_heads::columns;
use crate::progress::Progress;
use crate::remote::{is_remote, local, make_store};

#[derive(Debug, Args)]
pub(super) struct PrepArgs {
    /// Folder of annotated images, in a format of docs/formats.md.
    #[arg(value_name = "FOLDER", conflicts_with_all = ["images", "annotations", "synthetic"])]
    folder: Option<PathBuf>,
    /// The folder's format.
    #[arg(long, value_name = "FORMAT", default_value = AUTO, requires = "folder",
        conflicts_with_all = ["images", "synthetic"],
        value_parser = PossibleValuesParser::new(formats()))]
    from: String,
    /// The split of the folder to convert: train, val, test, or all.
    #[arg(long, value_name = "SPLIT", requires = "folder",
        conflicts_with_all = ["images", "synthetic"])]
    split: Option<String>,
    /// Directory of the annotated images.
    #[arg(long, value_name = "DIR", requires = "annotations", conflicts_with = "synthetic")]
    images: Option<PathBuf>,
    /// COCO annotations.
    #[arg(long, value_name = "FILE", requires = "images")]
    annotations: Option<PathBuf>,
    /// Directory of the store to write; with --synthetic, the directory for images, annotations and
    /// store.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Encoding of pixels in the store.
    #[arg(long, value_enum, default_value_t = Pixels::Jpeg)]
    pixels: Pixels,
    /// Treatment of images without objects.
    #[arg(long, value_enum, default_value_t = Empty::Keep)]
    empty: Empty,
    /// Keep objects that have a box but no mask, for faster_rcnn.
    #[arg(long)]
    boxes: bool,
    /// Treatment of the rotation in images' EXIF data.
    #[arg(long, value_enum, default_value_t = Rotation::Ignore)]
    exif: Rotation,
    /// Replace an existing store.
    #[arg(long)]
    overwrite: bool,
    /// Skip and report unreadable images instead of stopping.
    #[arg(long)]
    skip_bad_images: bool,
    /// Largest image that is decoded, in pixels.
    #[arg(long, default_value_t = dali::decode::MAX_PIXELS, value_name = "PIXELS")]
    max_image_pixels: usize,
    /// Generate a synthetic data set instead of converting images.
    #[arg(long, value_enum)]
    synthetic: Option<Kind>,
    /// Number of synthetic images.
    #[arg(long, default_value_t = 1000, requires = "synthetic")]
    count: usize,
    /// Seed of the synthetic images.
    #[arg(long, default_value_t = 0, requires = "synthetic")]
    seed: u64,
    /// Height and width of the synthetic images, in pixels.
    #[arg(long, default_value_t = 128, requires = "synthetic")]
    size: u32,
}

/// Value of --from that detects the format.
const AUTO: &str = "auto";

fn formats() -> impl Iterator<Item = &'static str> {
    [AUTO].into_iter().chain(FORMATS.iter().map(|format| format.name))
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pixels {
    /// The bytes of the original files.
    Jpeg,
    /// Decoded RGB.
    Raw,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Empty {
    Keep,
    Drop,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Rotation {
    /// Pixels are not rotated, as in COCO, whose annotations refer to unrotated pixels.
    Ignore,
    /// Pixels are rotated, for annotations that were made on rotated images.
    Apply,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Kind {
    /// Squares, triangles, circles and crosses on noise.
    Shapes,
}

pub(super) fn run(args: &PrepArgs) -> Result<(), EngineError> {
    let progress = Progress::loud();
    if let Some(Kind::Shapes) = args.synthetic {
        if is_remote(&args.out) {
            return Err(EngineError::Usage(format!(
                "{}: synthetic data needs a local directory",
                args.out.display()
            )));
        }
        let options = SyntheticOptions {
            count: args.count,
            seed: args.seed,
            height: args.size,
            width: args.size,
            out: args.out.clone(),
            overwrite: args.overwrite,
        };
        let title = format!("generating {} images", args.count);
        return report(progress.during(&title, |p| dali::synthetic::generate(&options, p)));
    }
    let inputs = [&args.folder, &args.images, &args.annotations];
    if is_remote(&args.out) && inputs.into_iter().flatten().any(|path| *path == args.out) {
        let out = args.out.display();
        return Err(EngineError::Usage(format!(
            "{out}: the store would overwrite its own input; use a different --out"
        )));
    }
    report(make_store(&args.out, args.overwrite, |out, overwrite| {
        let to = To { out, overwrite };
        store(args, to, &progress)
    }))
}

/// Destination of the store.
#[derive(Clone, Copy)]
struct To<'a> {
    out: &'a Path,
    overwrite: bool,
}

/// Builds a store from annotated images.
fn store(args: &PrepArgs, to: To<'_>, progress: &Progress) -> Result<PrepReport, EngineError> {
    if let Some(folder) = &args.folder {
        return from_folder(args, &local(folder)?, to, progress);
    }
    let (Some(images), Some(annotations)) = (&args.images, &args.annotations) else {
        return Err(EngineError::Usage(
            "give a folder, or --images and --annotations, or --synthetic shapes".into(),
        ));
    };
    let options = options(args, &local(images)?, &local(annotations)?, to);
    Ok(progress.during("reading COCO files", |p| dali::prep::run(&options, p))?)
}

fn from_folder(
    args: &PrepArgs,
    folder: &Path,
    to: To<'_>,
    progress: &Progress,
) -> Result<PrepReport, EngineError> {
    let mut request = Request::new(folder);
    request.format = (args.from != AUTO).then(|| args.from.clone());
    request.split.clone_from(&args.split);
    request.masks = masks(args);
    request.exif = exif(args);
    request.max_image_pixels = args.max_image_pixels;
    progress.say(&format!("reading {}", folder.display()));
    let Source { images, annotations, dataset, notes } = dali::formats::read(&request)?;
    let mut options = options(args, &images, &annotations, to);
    notes.iter().for_each(|note| progress.say(note));
    // The first note names the detected format, and is not recorded in the store.
    let kept = notes.iter().skip(1).map(|note| note.trim_start_matches("warning: ").to_string());
    options.notes = kept.collect();
    Ok(progress.during("storing images", |p| match dataset {
        Some(dataset) => dali::prep::run_dataset(&options, dataset, p),
        None => dali::prep::run(&options, p),
    })?)
}

fn masks(args: &PrepArgs) -> Masks {
    if args.boxes { Masks::Optional } else { Masks::Required }
}

fn exif(args: &PrepArgs) -> Exif {
    match args.exif {
        Rotation::Ignore => Exif::Ignore,
        Rotation::Apply => Exif::Apply,
    }
}

fn options(args: &PrepArgs, images: &Path, annotations: &Path, to: To<'_>) -> PrepOptions {
    PrepOptions {
        pixels: match args.pixels {
            Pixels::Jpeg => PixelEncoding::Jpeg,
            Pixels::Raw => PixelEncoding::Raw,
        },
        empty: match args.empty {
            Empty::Keep => EmptyImages::Keep,
            Empty::Drop => EmptyImages::Drop,
        },
        masks: masks(args),
        exif: exif(args),
        overwrite: to.overwrite,
        skip_bad_images: args.skip_bad_images,
        max_image_pixels: args.max_image_pixels,
        columns: columns(),
        ..PrepOptions::new(images, annotations, to.out)
    }
}

fn report<E>(result: Result<PrepReport, E>) -> Result<(), EngineError>
where
    EngineError: From<E>,
{
    match result.map_err(EngineError::from) {
        Err(EngineError::Data(made @ DaliError::AlreadyMade { .. })) => {
            super::print(&format!("{made}\n"))
        }
        result => super::print(&format!("{}\n", result?)),
    }
}
