//! `onegraph prep`: builds a store from COCO files or drawn shapes.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use dali::DaliError;
use dali::prep::{EmptyImages, Masks, PrepOptions, PrepReport};
use dali::store::PixelEncoding;
use dali::synthetic::SyntheticOptions;

use crate::EngineError;
use crate::progress::Progress;

#[derive(Debug, Args)]
pub(super) struct PrepArgs {
    /// Directory of the annotated images.
    #[arg(long, value_name = "DIR", requires = "annotations", conflicts_with = "synthetic")]
    images: Option<PathBuf>,
    /// COCO annotations.
    #[arg(long, value_name = "FILE", requires = "images")]
    annotations: Option<PathBuf>,
    /// The store to write; with --synthetic, the directory of images, annotations and store.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// How the store holds pixels.
    #[arg(long, value_enum, default_value_t = Pixels::Jpeg)]
    pixels: Pixels,
    /// Treatment of images without objects.
    #[arg(long, value_enum, default_value_t = Empty::Keep)]
    empty: Empty,
    /// Keep objects that have a box but no mask, for faster_rcnn.
    #[arg(long)]
    boxes: bool,
    /// Replace an existing store.
    #[arg(long)]
    overwrite: bool,
    /// Skip and report unreadable images instead of stopping.
    #[arg(long)]
    skip_bad_images: bool,
    /// Largest image that is decoded, in pixels.
    #[arg(long, default_value_t = dali::decode::MAX_PIXELS, value_name = "PIXELS")]
    max_image_pixels: usize,
    /// Draw a data set instead.
    #[arg(long, value_enum)]
    synthetic: Option<Kind>,
    /// Images to draw.
    #[arg(long, default_value_t = 1000, requires = "synthetic")]
    count: usize,
    /// Seed of the drawing.
    #[arg(long, default_value_t = 0, requires = "synthetic")]
    seed: u64,
    /// Height and width of the drawn images, in pixels.
    #[arg(long, default_value_t = 128, requires = "synthetic")]
    size: u32,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Pixels {
    /// The original files.
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
enum Kind {
    /// Squares, triangles, circles and crosses on noise.
    Shapes,
}

pub(super) fn run(args: &PrepArgs) -> Result<(), EngineError> {
    let progress = Progress::loud();
    if let Some(Kind::Shapes) = args.synthetic {
        let options = SyntheticOptions {
            count: args.count,
            seed: args.seed,
            height: args.size,
            width: args.size,
            out: args.out.clone(),
            overwrite: args.overwrite,
        };
        let title = format!("drawing {} images", args.count);
        return report(progress.during(&title, |p| dali::synthetic::generate(&options, p)));
    }
    let (Some(images), Some(annotations)) = (&args.images, &args.annotations) else {
        return Err(EngineError::Usage(
            "give --images and --annotations, or --synthetic shapes".into(),
        ));
    };
    let options = PrepOptions {
        pixels: match args.pixels {
            Pixels::Jpeg => PixelEncoding::Jpeg,
            Pixels::Raw => PixelEncoding::Raw,
        },
        empty: match args.empty {
            Empty::Keep => EmptyImages::Keep,
            Empty::Drop => EmptyImages::Drop,
        },
        masks: if args.boxes { Masks::Optional } else { Masks::Required },
        overwrite: args.overwrite,
        skip_bad_images: args.skip_bad_images,
        max_image_pixels: args.max_image_pixels,
        ..PrepOptions::new(images, annotations, &args.out)
    };
    report(progress.during("reading COCO files", |p| dali::prep::run(&options, p)))
}

fn report(result: Result<PrepReport, DaliError>) -> Result<(), EngineError> {
    match result {
        Err(made @ DaliError::AlreadyMade { .. }) => super::print(&format!("{made}\n")),
        result => super::print(&format!("{}\n", result?)),
    }
}
