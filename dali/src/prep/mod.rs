//! Converts COCO JSON and images to a store, and reports findings, dropped data and padding.
//!
//! All errors in the data are found here, so that training cannot encounter them: an invalid file
//! or image is an error, and an invalid annotation is dropped and counted.

mod annotation;
mod columns;
mod group;
mod image;
mod keypoints;
mod names;
mod options;
pub mod padding;
mod report;
mod source;

use std::time::Instant;

use rayon::prelude::*;

pub use choices::EmptyImages;

pub use crate::decode::Exif;
pub use options::{Masks, PrepOptions};
pub use report::{DropReason, Finding, Noted, PrepReport, ShapeSpan};
pub use source::source_key;

use crate::coco::{self, Dataset};
use crate::error::DaliError;
use crate::place::{self, Claim};
use crate::progress::{Progress, Stage};
use crate::store::{self, Column, Store, StoreWriter};
use group::{Groups, ImageTask};
use image::Prepared;
use names::Names;

/// Number of images decoded at a time: limits memory use, and is the step of the progress bar.
const IMAGES_PER_CHUNK: usize = 64;

/// Reads, checks and stores a data set. If a different process is writing `out`, waits for it.
///
/// # Errors
/// [`DaliError::AlreadyMade`] if `out` is already a store of these sources, perhaps written by that
/// process; [`DaliError`] with the file and the reason: an unreadable annotation file, an image
/// that is missing, broken or has a different size (unless `skip_bad_images`), an existing `out`, a
/// full disk, or a data set without any image left. `out` is then not created.
pub fn run(
    options: &PrepOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<PrepReport, DaliError> {
    options.check()?;
    // The file is read once, so that the key is computed from the bytes that are parsed.
    let annotations = coco::bytes_of(&options.annotations)?;
    let source = source::key_of_bytes(options, &annotations);
    let read = || {
        let mut dataset = coco::parse(&options.annotations, &annotations)?;
        let (path, objects) = (&options.annotations, &mut dataset.annotations);
        let columns = columns::read(path, &annotations, &options.columns, objects)?;
        Ok((dataset, columns))
    };
    store(options, (source, false), read, progress)
}

/// [`run`] for a data set in memory, whose image ids are derived from the paths;
/// `options.annotations` is the name in errors.
///
/// # Errors
/// As for [`run`].
pub fn run_dataset(
    options: &PrepOptions,
    dataset: Dataset,
    progress: &mut dyn FnMut(Progress),
) -> Result<PrepReport, DaliError> {
    options.check()?;
    let source = source::key_of_dataset(options, &dataset);
    store(options, (source, true), || Ok((dataset, vec![])), progress)
}

/// Checks and stores a data set with the given source key; `ids_by_path` is true if its image ids
/// are derived from paths.
fn store(
    options: &PrepOptions,
    (source, ids_by_path): (String, bool),
    read: impl FnOnce() -> Result<(Dataset, Vec<Column>), DaliError>,
    progress: &mut dyn FnMut(Progress),
) -> Result<PrepReport, DaliError> {
    let start = Instant::now();
    check_out(options, &source)?;
    let claim = Claim::take(&options.out, store::manifest, progress)?;
    check_out(options, &source)?;
    progress(Progress { stage: Stage::Annotations, done: 0, total: 1 });
    let (dataset, columns) = read()?;
    if dataset.categories.is_empty() {
        let fault = "has no category: `categories` is empty, so there is nothing to learn";
        return Err(DaliError::annotations(&options.annotations, fault));
    }
    progress(Progress { stage: Stage::Annotations, done: 1, total: 1 });
    let Groups { categories, keypoints, tasks, mut report } = group::group(dataset);
    report.notes.clone_from(&options.notes);
    let num_keypoints = report.num_keypoints;
    let (overwrite, pixels) = (options.overwrite, options.pixels);
    let beside = (keypoints, columns);
    let mut writer =
        StoreWriter::create(claim, overwrite, categories, beside, pixels, source, ids_by_path)?;
    let mut sizes = Vec::with_capacity(tasks.len());
    let names = Names::new(&options.images, &tasks);
    for (chunk_idx, chunk) in tasks.chunks(IMAGES_PER_CHUNK).enumerate() {
        let prepared: Vec<_> =
            chunk.par_iter().map(|t| image::prepare(options, t, num_keypoints, &names)).collect();
        for (task, result) in chunk.iter().zip(prepared) {
            match result {
                Ok(prepared) => {
                    if store_image(options, task, &prepared, &mut writer, &mut report)? {
                        sizes.push((task.image.height, task.image.width));
                    }
                }
                Err(error) if options.skip_bad_images => {
                    let ids = task.annotations.iter().map(|(_, annotation)| annotation.id);
                    report.skip_image(task.image.id, ids, &error);
                }
                Err(error) => return Err(error),
            }
        }
        let done = chunk_idx * IMAGES_PER_CHUNK + chunk.len();
        progress(Progress { stage: Stage::Images, done, total: tasks.len() });
    }
    let num_images = [tasks.len(), sizes.len()];
    check_something_left(options, &report, num_images, writer.num_annotations())?;

    progress(Progress { stage: Stage::Finishing, done: 0, total: 1 });
    report.bytes = writer.bytes();
    writer.finish(|header| {
        report.count(header);
        report.doubts()
    })?;
    progress(Progress { stage: Stage::Finishing, done: 1, total: 1 });
    report.out = options.out.clone();
    report.shapes = ShapeSpan::of(&sizes);
    report.padding = padding::plans(&sizes, options.min_size, options.max_size);
    report.seconds = start.elapsed().as_secs_f64();
    Ok(report)
}

/// Rejects an `out` that must not be replaced, with a separate error if it is already the requested
/// store.
fn check_out(options: &PrepOptions, source: &str) -> Result<(), DaliError> {
    match place::check_out(&options.out, options.overwrite, store::manifest) {
        Err(DaliError::Exists { path }) if store::source_of(&path).as_deref() == Some(source) => {
            // A damaged store is treated like any other existing path.
            let is_current = Store::open(&path)
                .is_ok_and(|store| store.changed_source(&options.images).is_none());
            Err(if is_current {
                DaliError::AlreadyMade { path }
            } else {
                DaliError::Exists { path }
            })
        }
        result => result,
    }
}

/// Stores one image and counts its findings; false if it was dropped because it has no objects.
fn store_image(
    options: &PrepOptions,
    task: &ImageTask,
    prepared: &Prepared,
    writer: &mut StoreWriter,
    report: &mut PrepReport,
) -> Result<bool, DaliError> {
    for &(reason, annotation_id) in &prepared.dropped {
        report.dropped.entry(reason).or_default().note(annotation_id);
    }
    for &(finding, annotation_id) in &prepared.findings {
        report.findings.entry(finding).or_default().note(annotation_id);
    }
    let image = &prepared.image;
    if image.exif == Some(Exif::Ignore) {
        report.exif_rotated.note(image.image_id);
    }
    if image.file_name != task.image.file_name {
        report.renamed.note(image.image_id);
    }
    let named = |doubt| format!("{} {doubt}", image.file_name);
    report.lossy.extend(prepared.doubt.as_ref().map(named));
    if image.objects.is_empty() && options.empty == EmptyImages::Drop {
        report.num_dropped_empty_images += 1;
        return Ok(false);
    }
    writer.push(image)?;
    Ok(true)
}

/// Rejects a data set if no images are left, or if all of its objects were dropped. A data set
/// without any annotations is accepted, for detection.
fn check_something_left(
    options: &PrepOptions,
    report: &PrepReport,
    num_images: [usize; 2],
    num_stored: usize,
) -> Result<(), DaliError> {
    let (dropped, reasons) = (report.num_dropped(), report.dropped_by_reason());
    let without = report.dropped.get(&DropReason::NoSegmentation).map_or(0, |noted| noted.count);
    let [of_file, left] = num_images;
    let fault = if num_stored == 0 && without > 0 {
        format!(
            "none of its {without} objects has a segmentation, which mask_rcnn needs; to train \
             model.kind=faster_rcnn, keep their boxes (prep --boxes)"
        )
    } else if left == 0 {
        format!(
            "of {of_file} images {} were unreadable and {} had no objects; {dropped} annotations \
             were dropped{reasons}",
            report.bad_images.len(),
            report.num_dropped_empty_images,
        )
    } else if num_stored == 0 && dropped > 0 {
        format!("all {dropped} annotations were dropped{reasons}")
    } else {
        return Ok(());
    };
    let fault = format!("nothing left to store: {fault}");
    Err(DaliError::annotations(&options.annotations, fault))
}
