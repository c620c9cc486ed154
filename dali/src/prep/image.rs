//! Prepares one image: reads it, checks it against the annotation file, decodes it once, and cleans
//! its annotations.

use std::collections::HashSet;
use std::io;
use std::path::Path;

use super::group::ImageTask;
use super::names::Names;
use super::options::PrepOptions;
use super::report::{DropReason, Finding};
use super::{annotation, keypoints};
use crate::decode::{self, DecodeFault, Exif, ImageFormat, ImageInfo};
use crate::error::DaliError;
use crate::store::{NewImage, NewObject, NewSegmentation, PixelEncoding, SourceRow};

/// The data to store for one image.
pub(super) struct Prepared {
    pub(super) image: NewImage,
    pub(super) dropped: Vec<(DropReason, u64)>,
    /// Each finding, with the id of its annotation.
    pub(super) findings: Vec<(Finding, u64)>,
    /// A message about levels lost in the conversion to 8 bits.
    pub(super) doubt: Option<String>,
}

/// Reads and checks one image; its objects have `num_keypoints` keypoints.
///
/// # Errors
/// [`DaliError::Image`].
pub(super) fn prepare(
    options: &PrepOptions,
    task: &ImageTask,
    num_keypoints: usize,
    names: &Names<'_>,
) -> Result<Prepared, DaliError> {
    let image = &task.image;
    let named = format!("image {}", image.id);
    let unread = |path: &Path, source: io::Error| {
        let path = path.display();
        let fault = format!("cannot read {path}: {source}; fix the file or the folder of images");
        DaliError::Image { image: named.clone(), fault }
    };
    let path = options.images.join(&image.file_name);
    let file_name = names.find(&image.file_name).map_err(|source| unread(&path, source))?;
    let path = options.images.join(&file_name);
    let (bytes, source) = read(&path, options).map_err(|source| unread(&path, source))?;
    let broken = |fault: DecodeFault| {
        let image = format!("{named} ({})", path.display());
        DaliError::Image { image, fault: format!("{fault}; fix the file") }
    };
    let info = decode::probe_within(&bytes, options.max_image_pixels).map_err(broken)?;
    let turn = info.exif_orientation.filter(|_| options.exif == Exif::Apply);
    let [height, width] = decode::turned_size([info.height, info.width], turn);
    if (height, width) != (image.height, image.width) {
        let (file, hint) = (path.display(), rotation_hint(&info, task));
        let fault = format!(
            "the annotations say {}x{} but {file} is {width}x{height}{hint}; fix one of them",
            image.width, image.height
        );
        return Err(DaliError::Image { image: named, fault });
    }
    // The image is decoded even if the JPEG itself is stored, so that a broken file is reported
    // here and not in training.
    let mut rgb = vec![0; info.height as usize * info.width as usize * 3];
    let doubt = decode::decode_rgb_into(&bytes, &mut rgb).map_err(broken)?;
    if let Some(turn) = turn {
        rgb = decode::turned(rgb, [info.height, info.width], turn);
    }
    let is_jpeg = info.format == ImageFormat::Jpeg && turn.is_none();
    let keeps_file = options.pixels == PixelEncoding::Jpeg && is_jpeg;
    let (encoding, pixels) =
        if keeps_file { (PixelEncoding::Jpeg, bytes) } else { (PixelEncoding::Raw, rgb) };
    let image = NewImage {
        image_id: image.id,
        file_name,
        height,
        width,
        encoding,
        pixels,
        source,
        exif: info.exif_orientation.map(|_| options.exif),
        objects: Vec::with_capacity(task.annotations.len()),
    };
    let mut prepared = Prepared { image, dropped: Vec::new(), findings: Vec::new(), doubt };
    prepared.take_annotations(options, task, num_keypoints);
    Ok(prepared)
}

impl Prepared {
    /// Adds the annotations of an image.
    fn take_annotations(&mut self, options: &PrepOptions, task: &ImageTask, num_keypoints: usize) {
        let seen = &mut HashSet::new();
        for (label, annotation) in &task.annotations {
            let size = [task.image.height, task.image.width];
            match annotation::clean(annotation, *label, size, options.masks) {
                Ok(annotation::Cleaned { mut object, mut findings }) => {
                    if !seen.insert(key_of(&object)) {
                        findings.push(Finding::Copy);
                    }
                    if num_keypoints > 0 {
                        let given = annotation.keypoints.as_deref();
                        let (own, finding) = keypoints::clean(given, num_keypoints);
                        object.keypoints = own;
                        findings.extend(finding);
                    }
                    self.findings.extend(findings.into_iter().map(|f| (f, annotation.id)));
                    self.image.objects.push(object);
                }
                Err(reason) => self.dropped.push((reason, annotation.id)),
            }
        }
    }
}

/// All values of an object except its ids, to detect duplicates.
fn key_of(object: &NewObject) -> (u32, bool, Vec<Vec<u32>>) {
    // -0 equals 0.
    let bits = |values: &[f32]| values.iter().map(|value| (value + 0.0).to_bits()).collect();
    let mut values: Vec<Vec<u32>> = match &object.segmentation {
        NewSegmentation::Polygons(rings) => rings.iter().map(|ring| bits(ring)).collect(),
        NewSegmentation::Runs(runs) => vec![vec![], runs.clone()],
    };
    values.push(bits(&object.bbox_xywh));
    (object.label, object.crowd, values)
}

/// Reads a regular file, up to the maximum size of an image.
fn read(path: &Path, options: &PrepOptions) -> io::Result<(Vec<u8>, SourceRow)> {
    let meta = crate::file::regular(path)?;
    // A 16-bit PNG with alpha has the most bytes per pixel (8); the remaining bytes are for
    // metadata.
    let limit = (options.max_image_pixels as u64).saturating_mul(8).saturating_add(64 << 20);
    if meta.len() > limit {
        return Err(io::Error::other(format!("{} bytes, more than any image has", meta.len())));
    }
    Ok((std::fs::read(path)?, SourceRow::of(&meta)))
}

/// A hint for an error about the size: if the sizes match after swapping height and width, the
/// annotations probably refer to the rotated image.
fn rotation_hint(info: &ImageInfo, task: &ImageTask) -> String {
    match info.exif_orientation {
        Some(turn) if (info.width, info.height) == (task.image.height, task.image.width) => {
            format!(
                " (the file has EXIF orientation {turn}, and the annotations seem to be made \
                 for the rotated picture: pass --exif apply)"
            )
        }
        _ => String::new(),
    }
}
