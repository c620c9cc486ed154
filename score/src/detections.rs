//! Detections: COCO's results format, read and checked against the annotations.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;

use dali::coco;
use hotcoco::{Annotation, Segmentation};
use serde::Deserialize;

use super::IouType;
use super::error::ScoreError;
use super::ground_truth::{GroundTruth, check_segmentation, rle_size};
use super::json;
use super::keypoints;
use super::rle::Rle;

/// Maximum number of unknown ids that a message lists.
const FIRST_IDS: usize = 8;

/// Default maximum number of detections per image: for keypoints per category, as in pycocotools;
/// for LVIS over all categories, as in lvis-api.
const KEYPOINT_MAX_DETS: usize = 20;
const LVIS_MAX_DETS: usize = 300;

/// One detected object.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Detection {
    /// COCO's id of the image.
    pub image_id: u64,
    /// COCO's (sparse) id of the category.
    pub category_id: u64,
    /// Confidence; only its order matters.
    pub score: f64,
    /// `x, y, width, height` in pixels of the original image.
    pub bbox_xywh: [f64; 4],
    /// The mask, at the size of the original image; required to score masks.
    pub segmentation: Option<Rle>,
    /// For each keypoint: x and y in pixels of the original image, and a score or visibility, which
    /// no metric uses. Required to score keypoints.
    pub keypoints: Option<Vec<[f64; 3]>>,
    /// Additional predictions by name, which no metric uses.
    pub further: BTreeMap<String, Vec<f64>>,
}

/// Detections that were checked against a ground truth, in the scorer's types.
#[derive(Debug, Clone)]
pub struct Results {
    pub(super) annotations: Vec<Annotation>,
    pub(super) iou_type: IouType,
    /// By category, the number of detections that were dropped because the annotations lack the
    /// category.
    pub(super) left_out: BTreeMap<u64, usize>,
    /// Warnings about the file.
    pub(super) doubts: Vec<String>,
    /// Maximum number of detections per image, for keypoints and LVIS.
    pub(super) max_dets: usize,
}

#[derive(Deserialize)]
struct RawDetection {
    #[serde(deserialize_with = "coco::id")]
    image_id: u64,
    #[serde(deserialize_with = "coco::id")]
    category_id: u64,
    score: f64,
    #[serde(default, deserialize_with = "json::text")]
    file_name: Option<String>,
    #[serde(default)]
    bbox: Option<Vec<f64>>,
    #[serde(default)]
    segmentation: Option<Segmentation>,
    #[serde(default)]
    keypoints: Option<Vec<f64>>,
}

impl Results {
    /// Reads a COCO results file and checks it against the annotations.
    ///
    /// The size of an entry (small, medium, large) is the size of its box, else of its mask, else
    /// of the extent of all its keypoints, as in pycocotools, so that a file gets exactly the same
    /// scores.
    ///
    /// With `iou_type` `None`, the type is masks if an entry has a `segmentation`, else keypoints
    /// if an entry has `keypoints`, else boxes. An entry with a `file_name` belongs to the image
    /// with this file name, regardless of its `image_id`.
    ///
    /// # Errors
    /// [`ScoreError::Read`]; [`ScoreError::Detections`] with the entry that is invalid or does not
    /// match `gt`; also for categories missing from `gt`, and for an empty list.
    pub fn from_file(
        file: &Path,
        gt: &GroundTruth,
        iou_type: Option<IouType>,
    ) -> Result<Self, ScoreError> {
        let fail = |reason| ScoreError::Detections { origin: file.display().to_string(), reason };
        let bytes = json::read(file)?;
        if json::first_byte(&bytes) != Some(b'[') {
            return Err(fail("is not a list of detections".into()));
        }
        let raw = coco::list::<RawDetection>(file, "detections", &bytes);
        let mut raw = raw.map_err(|fault| fail(json::reason(fault)))?;
        let paired = pair_by_file(&mut raw, gt).map_err(fail)?;
        let Some(first) = raw.first() else {
            return Err(fail("is an empty list, so there is nothing to score".into()));
        };
        let told = if raw.iter().any(|d| d.segmentation.is_some()) {
            IouType::Segm
        } else if raw.iter().any(RawDetection::has_keypoints) {
            IouType::Keypoints
        } else {
            IouType::Bbox
        };
        let iou_type = iou_type.unwrap_or(told);
        // Like pycocotools, infers from the first entry which shape determines the sizes.
        let area_of = match first {
            first if first.has_box() => IouType::Bbox,
            first if first.segmentation.is_none() && first.has_keypoints() => IouType::Keypoints,
            _ => IouType::Segm,
        };
        check_categories(&raw, gt).map_err(fail)?;
        let doubts = paired.into_iter().chain(doubts(&raw, gt)).collect();
        Ok(Self { doubts, ..Self::build(raw, gt, iou_type, area_of).map_err(fail)? })
    }

    /// Checks detections in memory. As in published scores, the scored shape determines the size of
    /// a detection: the mask for [`IouType::Segm`], the box for [`IouType::Bbox`], the extent of
    /// all keypoints for [`IouType::Keypoints`]. An empty list is valid, and scores 0.
    ///
    /// # Errors
    /// [`ScoreError::Detections`] with the detection that is invalid or does not match `gt`.
    pub fn from_detections(
        detections: &[Detection],
        gt: &GroundTruth,
        iou_type: IouType,
    ) -> Result<Self, ScoreError> {
        let raw = |d: &Detection| RawDetection {
            image_id: d.image_id,
            category_id: d.category_id,
            score: d.score,
            file_name: None,
            bbox: (iou_type == IouType::Bbox).then(|| d.bbox_xywh.to_vec()),
            segmentation: d.segmentation.as_ref().filter(|_| iou_type == IouType::Segm).map(|m| {
                Segmentation::UncompressedRle {
                    size: [m.height, m.width],
                    counts: m.counts.clone(),
                }
            }),
            keypoints: d
                .keypoints
                .as_ref()
                .filter(|_| iou_type == IouType::Keypoints)
                .map(|keypoints| keypoints.concat()),
        };
        Self::build(detections.iter().map(raw).collect(), gt, iou_type, iou_type)
            .map_err(|reason| ScoreError::Detections { origin: "in memory".into(), reason })
    }

    /// Changes the maximum number of detections: keypoint scores use the best `max_dets` of each
    /// image and category instead of 20, LVIS scores the best `max_dets` of each image instead of
    /// 300. COCO's box and mask scores do not depend on it.
    #[must_use]
    pub fn limited_to(self, max_dets: usize) -> Self {
        Self { max_dets, ..self }
    }

    fn build(
        raw: Vec<RawDetection>,
        gt: &GroundTruth,
        iou_type: IouType,
        area_of: IouType,
    ) -> Result<Self, String> {
        let mut results = Results {
            annotations: Vec::with_capacity(raw.len()),
            iou_type,
            left_out: BTreeMap::new(),
            doubts: Vec::new(),
            max_dets: match iou_type {
                IouType::Keypoints => KEYPOINT_MAX_DETS,
                IouType::Bbox | IouType::Segm => LVIS_MAX_DETS,
            },
        };
        for (i, detection) in raw.into_iter().enumerate() {
            let category_id = detection.category_id;
            let mut annotation = detection
                .checked(gt, iou_type, area_of)
                .map_err(|why| format!("detection {i} {why}"))?;
            // Ids start at 1 in list order: pycocotools uses id 0 for "no match".
            annotation.id = i as u64 + 1;
            if gt.has_category(category_id) {
                results.annotations.push(annotation);
            } else {
                *results.left_out.entry(category_id).or_default() += 1;
            }
        }
        Ok(results)
    }
}

impl RawDetection {
    fn has_box(&self) -> bool {
        self.bbox.as_ref().is_some_and(|bbox| !bbox.is_empty())
    }

    fn has_keypoints(&self) -> bool {
        self.keypoints.as_ref().is_some_and(|list| !list.is_empty())
    }

    /// Converts a detection to the scorer's types, or returns why it is invalid.
    fn checked(
        self,
        gt: &GroundTruth,
        iou_type: IouType,
        area_of: IouType,
    ) -> Result<Annotation, String> {
        if !self.score.is_finite() {
            return Err(format!("has the score {}", self.score));
        }
        let size = gt.image_size(self.image_id).ok_or_else(|| {
            format!("names image_id {}, which the annotations do not have", self.image_id)
        })?;
        let bbox = match &self.bbox {
            Some(bbox) if self.has_box() => Some(check_sides(json::check_bbox(bbox)?)?),
            _ => None,
        };
        if let Some(segmentation) = &self.segmentation {
            check_mask(segmentation, self.image_id, size)?;
        } else if iou_type == IouType::Segm {
            return Err("has no segmentation".into());
        }
        let list = self.keypoints.as_deref().filter(|list| !list.is_empty());
        match list {
            Some(list) if [iou_type, area_of].contains(&IouType::Keypoints) => {
                keypoints::check_list(list, gt.num_keypoints())?;
            }
            None if iou_type == IouType::Keypoints => return Err("has no keypoints".into()),
            _ => {}
        }
        let mask = match (area_of, &self.segmentation) {
            (IouType::Segm, Some(s)) => Some(s.to_rle(size.0, size.1).map_err(|e| e.to_string())?),
            _ => None,
        };
        let (bbox, area) = match (area_of, bbox, mask) {
            (IouType::Bbox, Some(bbox), _) => (bbox, bbox[2] * bbox[3]),
            (IouType::Bbox, None, _) => return Err("has no bbox".into()),
            (IouType::Segm, bbox, Some(mask)) => {
                let tight = || hotcoco::mask::to_bbox(&mask);
                (bbox.unwrap_or_else(tight), hotcoco::mask::area(&mask) as f64)
            }
            (IouType::Segm, _, None) => return Err("has neither bbox nor segmentation".into()),
            (IouType::Keypoints, ..) => {
                let extent = list.and_then(keypoints::extent).ok_or("has no keypoints")?;
                (extent, extent[2] * extent[3])
            }
        };
        Ok(Annotation {
            image_id: self.image_id,
            category_id: self.category_id,
            score: Some(self.score),
            bbox: Some(bbox),
            area: Some(area),
            segmentation: self.segmentation,
            keypoints: self.keypoints,
            ..Annotation::default()
        })
    }
}

/// Checks that a file's categories are in the annotations; returns a message if not.
fn check_categories(raw: &[RawDetection], gt: &GroundTruth) -> Result<(), String> {
    let unknown = || raw.iter().map(|d| d.category_id).filter(|id| !gt.has_category(*id));
    let ids: BTreeSet<u64> = unknown().collect();
    if ids.is_empty() {
        return Ok(());
    }
    let first: Vec<String> = ids.iter().take(FIRST_IDS).map(u64::to_string).collect();
    let more = if ids.len() > FIRST_IDS { ", .." } else { "" };
    let theirs = gt.coco().dataset.categories.iter().map(|category| category.id);
    Err(format!(
        "{} of {} detections have a category_id that the annotations do not have: {}{more}; give \
         the annotations' ids ({} to {}), not indices of classes",
        unknown().count(),
        raw.len(),
        first.join(", "),
        theirs.clone().min().unwrap_or(0),
        theirs.max().unwrap_or(0)
    ))
}

fn check_sides(bbox: [f64; 4]) -> Result<[f64; 4], String> {
    let [_, _, w, h] = bbox;
    if w >= 0.0 && h >= 0.0 {
        return Ok(bbox);
    }
    Err(format!("has a box of {w} x {h} pixels; a box is [x, y, width, height]"))
}

/// Assigns each entry that has a `file_name` to the image with this file name. Returns a message if
/// this changes the image of some entries.
fn pair_by_file(raw: &mut [RawDetection], gt: &GroundTruth) -> Result<Option<String>, String> {
    let (of, mut moved, mut unnamed) = (raw.len(), 0, None);
    let mut files: HashMap<u64, String> = HashMap::new();
    for (i, detection) in raw.iter_mut().enumerate() {
        let Some(file) = detection.file_name.take() else {
            unnamed.get_or_insert(i);
            continue;
        };
        let own = detection.image_id;
        detection.image_id = gt.image_of_file(&file, own).ok_or_else(|| {
            format!(
                "detection {i} has the file_name `{file}`, which matches neither exactly one image \
                 of the annotations nor the image with its image_id {own}; correct it, or remove \
                 file_name from all detections to use image_id"
            )
        })?;
        moved += usize::from(detection.image_id != own);
        let first = files.entry(detection.image_id).or_insert_with(|| file.clone());
        if !first.ends_with(&file) && !file.ends_with(first.as_str()) {
            return Err(format!(
                "the file_names `{first}` and `{file}` (detection {i}) both match image {} of the \
                 annotations; use annotations whose file_name has the folder",
                detection.image_id
            ));
        }
    }
    if moved == 0 {
        return Ok(None);
    }
    let differ = format!(
        "{moved} of {of} detections have a file_name that belongs to another image than image_id"
    );
    match unnamed {
        Some(i) => Err(format!(
            "{differ}, and detection {i} has no file_name; give file_name to all detections, or to \
             none"
        )),
        None => Ok(Some(format!("{differ}; file_name was used"))),
    }
}

/// Warnings about a file that can be scored.
fn doubts(raw: &[RawDetection], gt: &GroundTruth) -> Vec<String> {
    let mut seen = HashSet::with_capacity(raw.len());
    let boxes = || raw.iter().filter_map(|d| Some((d, d.bbox.as_deref()?.try_into().ok()?)));
    let outside = gt.boxes_outside("", boxes().map(|(d, bbox)| (d.image_id, bbox)));
    let is_copy = |(d, [x, y, w, h]): &(&RawDetection, [f64; 4])| {
        let what = (d.image_id, d.category_id);
        !seen.insert((what, [*x, *y, *w, *h, d.score].map(f64::to_bits)))
    };
    let (copies, of) = (boxes().filter(is_copy).count(), raw.len());
    let copies = (copies > 0).then(|| format!("{copies} of {of} detections are duplicates"));
    outside.into_iter().chain(copies).collect()
}

/// Checks that a detection's mask is valid and matches its image. The error is printed after the
/// detection.
fn check_mask(segmentation: &Segmentation, image_id: u64, size: (u32, u32)) -> Result<(), String> {
    check_segmentation(segmentation)?;
    if size.0 == 0 || size.1 == 0 {
        return Err(format!("has a mask, but image {image_id} has no height and width"));
    }
    match rle_size(segmentation) {
        Some((h, w)) if (h, w) != size => Err(format!(
            "has a mask of {h}x{w}, but image {image_id} is {}x{} (height x width)",
            size.0, size.1
        )),
        _ => Ok(()),
    }
}
