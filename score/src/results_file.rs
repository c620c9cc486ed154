//! Writing detections in COCO's results format.

use std::path::Path;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

use super::error::ScoreError;
use super::{Detection, IouType, Rle};

/// Writes boxes, masks and keypoints in one list, for people and tools that want both.
///
/// pycocotools (and so `evaluate_files`) takes an object's size off the box where a file has one;
/// for scores of masks or keypoints by size as they are published, write these alone, by
/// [`write_results_json_of`].
///
/// # Errors
/// As [`write_results_json_of`].
pub fn write_results_json(path: &Path, detections: &[Detection]) -> Result<(), ScoreError> {
    write_all(path, detections, None, |_| None)
}

/// Writes a COCO results file of one kind atomically: to a temporary file, synced, then renamed.
/// Masks are written as compressed RLE.
///
/// # Errors
/// [`ScoreError::Write`]; [`ScoreError::Detections`] for a score, box or keypoint that is not
/// finite, runs that make no mask, or a mask or keypoints that are missing.
pub fn write_results_json_of(
    path: &Path,
    detections: &[Detection],
    kind: IouType,
) -> Result<(), ScoreError> {
    write_all(path, detections, Some(kind), |_| None)
}

/// Like [`write_results_json`], with the image's file of each detection as its `file_name`.
///
/// # Panics
/// If `files` is not as long as `detections`.
///
/// # Errors
/// As for [`write_results_json_of`].
pub fn write_results_json_with_files(
    path: &Path,
    detections: &[Detection],
    files: &[String],
) -> Result<(), ScoreError> {
    assert_eq!(detections.len(), files.len(), "a file for each detection");
    write_all(path, detections, None, |i| Some(files[i].as_str()))
}

/// A detection as an entry of a results file, with the image's file as its `file_name`.
///
/// # Errors
/// Why it cannot be written, as [`write_results_json`] refuses it; completes a sentence that names
/// the detection.
pub fn result_json(detection: &Detection, file_name: Option<&str>) -> Result<String, String> {
    check(detection, None)?;
    let line = Line { detection, kind: None, file_name };
    serde_json::to_string(&line).map_err(|fault| fault.to_string())
}

/// Writes shapes of one kind, or of all.
fn write_all<'a>(
    path: &Path,
    detections: &'a [Detection],
    kind: Option<IouType>,
    file_name: impl Fn(usize) -> Option<&'a str>,
) -> Result<(), ScoreError> {
    for (i, detection) in detections.iter().enumerate() {
        check(detection, kind).map_err(|why| ScoreError::Detections {
            origin: format!("for {}", path.display()),
            reason: format!("detection {i} {why}"),
        })?;
    }
    dali::file::write(path, |out| {
        let mut separator = "[";
        for (i, detection) in detections.iter().enumerate() {
            out.write_all(separator.as_bytes())?;
            let file_name = file_name(i);
            serde_json::to_writer(&mut *out, &Line { detection, kind, file_name })?;
            separator = ",\n";
        }
        out.write_all(if detections.is_empty() { b"[]\n" } else { b"]\n" })
    })
    .map_err(|source| ScoreError::Write { file: path.to_owned(), source })
}

/// Why a detection cannot be written; completes a sentence that names it.
fn check(detection: &Detection, kind: Option<IouType>) -> Result<(), String> {
    if !detection.score.is_finite() {
        return Err(format!("has the score {}", detection.score));
    }
    let is_written = |one: IouType| kind.is_none_or(|kind| kind == one);
    if is_written(IouType::Bbox) {
        super::json::check_bbox(&detection.bbox_xywh)?;
    }
    match &detection.keypoints {
        None if kind == Some(IouType::Keypoints) => return Err("has no keypoints".into()),
        Some(keypoints) if is_written(IouType::Keypoints) => {
            super::keypoints::check_list(keypoints.as_flattened(), None)?;
        }
        _ => {}
    }
    match &detection.segmentation {
        None if kind == Some(IouType::Segm) => Err("has no segmentation".into()),
        Some(mask) if is_written(IouType::Segm) => {
            mask.fault().map_or(Ok(()), |why| Err(format!("has a broken segmentation ({why})")))
        }
        _ => Ok(()),
    }
}

/// A detection as one entry of the file.
struct Line<'a> {
    detection: &'a Detection,
    kind: Option<IouType>,
    file_name: Option<&'a str>,
}

impl Serialize for Line<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Line { detection: d, kind, file_name } = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("image_id", &d.image_id)?;
        if let Some(name) = file_name {
            map.serialize_entry("file_name", name)?;
        }
        map.serialize_entry("category_id", &d.category_id)?;
        let is_written = |one: IouType| kind.is_none_or(|kind| kind == one);
        if is_written(IouType::Bbox) {
            map.serialize_entry("bbox", &d.bbox_xywh)?;
        }
        if let Some(keypoints) = d.keypoints.as_ref().filter(|_| is_written(IouType::Keypoints)) {
            map.serialize_entry("keypoints", keypoints.as_flattened())?;
        }
        map.serialize_entry("score", &d.score)?;
        if let Some(mask) = d.segmentation.as_ref().filter(|_| is_written(IouType::Segm)) {
            map.serialize_entry("segmentation", &Compressed(mask))?;
        }
        for (name, values) in d.further.iter().filter(|_| kind.is_none()) {
            map.serialize_entry(name, values)?;
        }
        map.end()
    }
}

/// A mask as COCO writes it: its size and the string of its counts.
struct Compressed<'a>(&'a Rle);

impl Serialize for Compressed<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(2))?;
        map.serialize_entry("size", &[self.0.height, self.0.width])?;
        map.serialize_entry("counts", &self.0.to_leb())?;
        map.end()
    }
}
