//! A synthetic data set of shapes: images, COCO annotations and the store, for machines without
//! data.
//!
//! Squares, triangles, circles and crosses of random colour, size and position occlude one another
//! on a noisy, striped background. The colour is independent of the class. Each object has five
//! keypoints: the extreme points of its outline, and its centre. The set depends only on the seed,
//! and not on the number of threads.

mod files;
mod rng;
mod scene;
mod shapes;

use std::path::PathBuf;
use std::time::Instant;

use rayon::prelude::*;

pub use scene::MAX_OBJECTS;
pub use shapes::{CLASS_NAMES, KEYPOINT_NAMES};

use crate::error::DaliError;
use crate::place::{self, Claim};
use crate::prep::{self, PrepOptions, PrepReport};
use crate::progress::{Progress, Stage};
use crate::store;
use files::{Annotations, ImageFile};

/// Directory of the image files.
const IMAGES: &str = "images";
/// COCO annotation file.
const ANNOTATIONS: &str = "annotations.json";
/// Directory of the store.
const STORE: &str = "store";
/// Number of images generated between two progress reports.
const IMAGES_PER_CHUNK: usize = 128;
/// Maximum number of images: all annotations are held in memory, about 1.5 KiB per image.
const MAX_COUNT: usize = 10_000_000;
/// Minimum side of an image: in smaller images the smallest shapes would have only a few pixels.
const MIN_SIZE: u32 = 32;
/// Maximum side of an image: a JPEG's sides have 16 bits, and the run lengths of a mask must stay
/// far below 2^32.
const MAX_SIZE: u32 = 4096;

/// Options of [`generate`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyntheticOptions {
    /// Number of images.
    pub count: usize,
    /// Seed; sets with different seeds have no image in common.
    pub seed: u64,
    /// Rows of each image, in pixels; 128 is typical.
    pub height: u32,
    /// Columns of each image, in pixels.
    pub width: u32,
    /// Directory to write: `images/`, `annotations.json`, `store/`.
    pub out: PathBuf,
    /// Replace an existing data set at `out`.
    pub overwrite: bool,
}

impl SyntheticOptions {
    /// A description of the set, which is also in the annotation file. An existing set is only
    /// reused if its description is equal; sets of older versions, without keypoints, have a
    /// different one.
    fn drawing(&self) -> String {
        let Self { count, seed, height, width, .. } = self;
        format!("{count} images of {height}x{width}, seed {seed}, with keypoints")
    }
}

/// Generates the data set and prepares its store. If a different process is writing `out`, waits
/// for it.
///
/// # Errors
/// [`DaliError::AlreadyMade`] if this set exists already, perhaps written by that process;
/// [`DaliError::Option`] for a count outside 1 to 10,000,000 or a size outside 32 to 4096;
/// [`DaliError::Exists`] if `out` exists; [`DaliError::NotOurs`] if `out` is to be overwritten but
/// contains different data; [`DaliError::Io`] if writing fails. `out` is then unchanged.
pub fn generate(
    options: &SyntheticOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<PrepReport, DaliError> {
    let start = Instant::now();
    check(options)?;
    check_out(options)?;
    let claim = Claim::take(&options.out, files::manifest, progress)?;
    check_out(options)?;
    let temporary = claim.begin()?;
    let images_dir = temporary.path().join(IMAGES);
    std::fs::create_dir_all(&images_dir).map_err(DaliError::io("create", &images_dir))?;

    let mut annotations = Annotations::new(options.drawing());
    for first in (0..options.count).step_by(IMAGES_PER_CHUNK) {
        let chunk = first..options.count.min(first + IMAGES_PER_CHUNK);
        let drawn: Vec<Result<ImageFile, DaliError>> = chunk
            .into_par_iter()
            .map(|idx| {
                let scene = scene::draw(options.seed, idx as u64, options.height, options.width);
                files::write_image(&images_dir, idx, scene)
            })
            .collect();
        for image in drawn {
            annotations.push(image?);
        }
        let done = annotations.num_images();
        progress(Progress { stage: Stage::Drawing, done, total: options.count });
    }
    let annotations_file = temporary.path().join(ANNOTATIONS);
    annotations.write(&annotations_file)?;
    let mut prep = PrepOptions::new(images_dir, annotations_file, temporary.path().join(STORE));
    prep.min_size = options.height.min(options.width);
    prep.max_size = options.height.max(options.width);
    let mut report = prep::run(&prep, progress)?;
    temporary.place(options.overwrite)?;
    report.out = options.out.join(STORE);
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Rejects an `out` that must not be replaced, with a separate error if it is already the requested
/// set.
fn check_out(options: &SyntheticOptions) -> Result<(), DaliError> {
    match place::check_out(&options.out, options.overwrite, files::manifest) {
        Err(DaliError::Exists { path })
            if files::drawing_of(&path) == Some(options.drawing())
                && store::Store::open(&path.join(STORE)).is_ok() =>
        {
            Err(DaliError::AlreadyMade { path })
        }
        result => result,
    }
}

fn check(options: &SyntheticOptions) -> Result<(), DaliError> {
    let refuse = |option, got: u64, expected| {
        Err(DaliError::Option { option, got: got.to_string(), expected })
    };
    if !(1..=MAX_COUNT).contains(&options.count) {
        return refuse("--count", options.count as u64, "must be from 1 to 10000000");
    }
    for side in [options.height, options.width] {
        if !(MIN_SIZE..=MAX_SIZE).contains(&side) {
            return refuse("--size", side.into(), "must be from 32 to 4096");
        }
    }
    Ok(())
}
