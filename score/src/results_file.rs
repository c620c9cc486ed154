//! Writing detections in COCO's results format.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Serialize, Serializer};

use super::error::ScoreError;
use super::{Detection, IouType, Rle};

/// Writes boxes, masks and keypoints in one list, for users and tools that need more than one
/// shape.
///
/// If a file has boxes, pycocotools (and so `evaluate_files`) uses them for the sizes of objects.
/// To get mask or keypoint scores by size as published, write only masks or keypoints, with
/// [`write_results_json_of`].
///
/// # Errors
/// As [`write_results_json_of`].
pub fn write_results_json(path: &Path, detections: &[Detection]) -> Result<(), ScoreError> {
    write_all(path, detections, None, |_| None)
}

/// Writes a COCO results file with only the boxes, the masks or the keypoints, atomically: writes
/// and syncs a temporary file, then renames it. Masks are written as compressed RLE.
///
/// # Errors
/// [`ScoreError::Write`]; [`ScoreError::Detections`] for a non-finite score, box or keypoint, runs
/// that are not a mask, or missing masks or keypoints.
pub fn write_results_json_of(
    path: &Path,
    detections: &[Detection],
    kind: IouType,
) -> Result<(), ScoreError> {
    write_all(path, detections, Some(kind), |_| None)
}

/// Like [`write_results_json`], with the image file of each detection as its `file_name`.
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
/// The reason why [`write_results_json`] would reject the detection, to be printed after the
/// detection.
pub fn result_json(detection: &Detection, file_name: Option<&str>) -> Result<String, String> {
    let line = Line::new(detection, None, file_name)?;
    serde_json::to_string(&line).map_err(|fault| fault.to_string())
}

/// Writes the boxes, the masks or the keypoints, or all of them if `kind` is `None`.
fn write_all<'a>(
    path: &Path,
    detections: &'a [Detection],
    kind: Option<IouType>,
    file_name: impl Fn(usize) -> Option<&'a str>,
) -> Result<(), ScoreError> {
    let line = |i: usize| {
        Line::new(&detections[i], kind, file_name(i)).map_err(|why| ScoreError::Detections {
            origin: format!("for {}", path.display()),
            reason: format!("detection {i} {why}"),
        })
    };
    (0..detections.len()).try_for_each(|i| line(i).map(drop))?;
    dali::file::write(path, |out| {
        let mut separator = "[";
        for i in 0..detections.len() {
            out.write_all(separator.as_bytes())?;
            serde_json::to_writer(&mut *out, &line(i).map_err(std::io::Error::other)?)?;
            separator = ",\n";
        }
        out.write_all(if detections.is_empty() { b"[]\n" } else { b"]\n" })
    })
    .map_err(|source| ScoreError::Write { file: path.to_owned(), source })
}

/// A detection as one entry of the file.
#[derive(Serialize)]
struct Line<'a> {
    image_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_name: Option<&'a str>,
    category_id: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    bbox: Option<&'a [f64; 4]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keypoints: Option<&'a [f64]>,
    score: f64,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "compressed")]
    segmentation: Option<&'a Rle>,
    /// Predictions of custom models.
    #[serde(flatten)]
    further: Option<&'a BTreeMap<String, Vec<f64>>>,
}

/// A mask in COCO's format: its size and the compressed string of its counts.
fn compressed<S: Serializer>(mask: &Option<&Rle>, serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Mask {
        size: [u32; 2],
        counts: String,
    }
    let mask = mask.map(|m| Mask { size: [m.height, m.width], counts: m.to_leb() });
    mask.serialize(serializer)
}

impl<'a> Line<'a> {
    /// An entry with the box, the mask or the keypoints, or with all of them if `kind` is `None`.
    /// The error is printed after the detection.
    fn new(
        detection: &'a Detection,
        kind: Option<IouType>,
        file_name: Option<&'a str>,
    ) -> Result<Self, String> {
        let Detection { image_id, category_id, score, .. } = *detection;
        if !score.is_finite() {
            return Err(format!("has the score {score}"));
        }
        let is_written = |one: IouType| kind.is_none_or(|kind| kind == one);
        let bbox = is_written(IouType::Bbox).then_some(&detection.bbox_xywh);
        if let Some(bbox) = bbox {
            super::json::check_bbox(bbox)?;
        }
        let keypoints = detection.keypoints.as_ref().map(|list| list.as_flattened());
        let keypoints = keypoints.filter(|_| is_written(IouType::Keypoints));
        match keypoints {
            None if kind == Some(IouType::Keypoints) => return Err("has no keypoints".into()),
            None => {}
            Some(list) => super::keypoints::check_list(list, None)?,
        }
        let mask = detection.segmentation.as_ref();
        let segmentation = mask.filter(|_| is_written(IouType::Segm));
        if let Some(why) = segmentation.and_then(Rle::fault) {
            return Err(format!("has a broken segmentation ({why})"));
        }
        if segmentation.is_none() && kind == Some(IouType::Segm) {
            return Err("has no segmentation".into());
        }
        let further = kind.is_none().then_some(&detection.further);
        Ok(Line { image_id, file_name, category_id, bbox, keypoints, score, segmentation, further })
    }
}
