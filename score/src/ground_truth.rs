//! The ground truth that detections are scored against: from a COCO file, or built in memory.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use dali::coco::{self, RunCounts};
use dali::store::MAX_KEYPOINTS;
use hotcoco::{Annotation, COCO, Category, Dataset, Image, Segmentation};
use serde::Deserialize;

use super::error::ScoreError;
use super::json;
use super::keypoints;
use super::rle::{Rle, check_polygon};

/// Minimum share of a box's area inside its image; boxes with a smaller share are reported.
const MIN_INSIDE: f64 = 0.75;
/// Maximum number of categories with objects; scoring more would take minutes.
const MAX_CATEGORIES: usize = 1 << 16;
/// Maximum number of path components that are compared to find images by file name.
const MAX_PARTS: usize = 8;

/// An image in the annotations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtImage {
    /// COCO's id of the image.
    pub id: u64,
    /// Rows, in pixels; 0 if unknown (then masks cannot be scored).
    pub height: u32,
    /// Columns, in pixels; 0 if unknown.
    pub width: u32,
}

/// The shape of an annotated object.
#[derive(Debug, Clone, PartialEq)]
pub enum GtMask {
    /// Flat polygons `x0, y0, x1, y1, ...` in pixels; the mask is their union.
    Polygons(Vec<Vec<f64>>),
    /// Run lengths.
    Rle(Rle),
}

/// An annotated object.
#[derive(Debug, Clone, PartialEq)]
pub struct GtAnnotation {
    /// Id of the annotation, unique in the data set.
    pub id: u64,
    /// Its image.
    pub image_id: u64,
    /// COCO's (sparse) id of its category.
    pub category_id: u64,
    /// `x, y, width, height` in pixels.
    pub bbox_xywh: [f64; 4],
    /// Area in pixels, which determines if an object is small, medium or large. If `None`, the area
    /// of the mask is used, or without a mask, of the box.
    pub area: Option<f64>,
    /// True for a crowd: detections on a crowd are ignored.
    pub iscrowd: bool,
    /// The mask; required to score masks.
    pub mask: Option<GtMask>,
    /// For each keypoint: x and y in pixels, and visibility (0: not labelled). All objects with
    /// keypoints must have the same number. Required to score keypoints, in which objects without
    /// keypoints are ignored.
    pub keypoints: Option<Vec<[f64; 3]>>,
}

/// A category.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GtCategory {
    /// COCO's (sparse) id.
    pub id: u64,
    /// Its name.
    pub name: String,
}

/// Checked annotations, against which detections are scored; cheap to clone.
#[derive(Clone)]
pub struct GroundTruth {
    coco: Arc<COCO>,
    origin: String,
    images: Arc<HashMap<u64, (u32, u32)>>,
    /// Images by suffixes of their paths, at component boundaries; `None` for an ambiguous suffix.
    names: Arc<HashMap<String, Option<u64>>>,
    is_lvis: bool,
    /// Warnings about a file.
    doubts: Vec<String>,
    /// Keypoints per object; `None` if no object has any.
    num_keypoints: Option<usize>,
    sigmas: Option<Vec<f64>>,
}

impl std::fmt::Debug for GroundTruth {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("GroundTruth")
            .field("origin", &self.origin)
            .field("images", &self.images.len())
            .field("annotations", &self.coco.dataset.annotations.len())
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct RawImage {
    #[serde(deserialize_with = "coco::id")]
    id: u64,
    #[serde(default, deserialize_with = "coco::side")]
    height: u32,
    #[serde(default, deserialize_with = "coco::side")]
    width: u32,
    #[serde(default, deserialize_with = "json::text")]
    file_name: Option<String>,
    /// LVIS: categories that were checked and are absent from the image.
    #[serde(default, deserialize_with = "coco::ids")]
    neg_category_ids: Option<Vec<u64>>,
    /// LVIS: categories that are not annotated exhaustively in the image.
    #[serde(default, deserialize_with = "coco::ids")]
    not_exhaustive_category_ids: Option<Vec<u64>>,
}

#[derive(Deserialize)]
struct RawAnnotation {
    #[serde(deserialize_with = "coco::id")]
    id: u64,
    #[serde(deserialize_with = "coco::id")]
    image_id: u64,
    #[serde(deserialize_with = "coco::id")]
    category_id: u64,
    #[serde(default)]
    bbox: Option<Vec<f64>>,
    #[serde(default)]
    area: Option<f64>,
    #[serde(default, deserialize_with = "coco::flag")]
    iscrowd: bool,
    #[serde(default)]
    segmentation: Option<coco::Segmentation<f64>>,
    #[serde(default)]
    keypoints: Option<Vec<f64>>,
    #[serde(default)]
    num_keypoints: Option<serde_json::Number>,
    #[serde(default, rename = "attributes", deserialize_with = "coco::rotation")]
    rotation: f64,
}

#[derive(Deserialize)]
struct RawCategory {
    #[serde(deserialize_with = "coco::id")]
    id: u64,
    name: String,
    /// LVIS: `r`, `c` or `f`.
    #[serde(default)]
    frequency: Option<String>,
}

impl GroundTruth {
    /// Reads a COCO file of instances or keypoints, or an LVIS v1 file, which is recognised by
    /// images with `neg_category_ids` and categories with a `frequency`.
    ///
    /// # Errors
    /// [`ScoreError::Read`]; [`ScoreError::GroundTruth`] with the entry that violates the format.
    pub fn from_file(file: &Path) -> Result<Self, ScoreError> {
        let origin = file.display().to_string();
        let fail = |reason| ScoreError::GroundTruth { origin: origin.clone(), reason };
        let bytes = json::read(file)?;
        let lists = coco::lists::<RawImage, RawAnnotation, RawCategory>(file, &bytes);
        let (images, annotations, categories) = lists.map_err(|fault| fail(json::reason(fault)))?;
        let annotations = checked(annotations).map_err(fail)?;
        let is_lvis = images.iter().any(|image| image.neg_category_ids.is_some())
            && categories.iter().any(|category| category.frequency.is_some());
        if is_lvis {
            check_lvis(&images, &categories).map_err(fail)?;
        }
        let names = images.iter().filter_map(|i| Some((i.file_name.as_deref()?, i.id)));
        let names = Arc::new(by_ends(names));
        let image = |i: RawImage| Image {
            id: i.id,
            height: i.height,
            width: i.width,
            file_name: i.file_name.unwrap_or_default(),
            neg_category_ids: i.neg_category_ids.unwrap_or_default(),
            not_exhaustive_category_ids: i.not_exhaustive_category_ids.unwrap_or_default(),
            ..Image::default()
        };
        let category = |c: RawCategory| Category {
            id: c.id,
            name: c.name,
            frequency: c.frequency,
            ..Category::default()
        };
        let images = images.into_iter().map(image).collect();
        let categories = categories.into_iter().map(category).collect();
        let gt = Self::build(origin.clone(), images, annotations, categories)?;
        let annotations = || gt.coco.dataset.annotations.iter();
        let boxes = annotations().filter_map(|a| Some((a.image_id, a.bbox?)));
        let zero = annotations().any(|a| a.id == 0).then(|| {
            "pycocotools treats the annotation with id 0 as not found, and may give a lower \
             score; number annotations from 1"
                .to_string()
        });
        let doubts = gt.boxes_outside("annotated", boxes).into_iter().chain(zero).collect();
        Ok(GroundTruth { is_lvis, names, doubts, ..gt })
    }

    /// Builds a ground truth in memory.
    ///
    /// # Errors
    /// [`ScoreError::GroundTruth`] with the entry: a repeated id, a non-finite box or polygon, runs
    /// longer than their mask.
    pub fn from_parts(
        images: Vec<GtImage>,
        annotations: Vec<GtAnnotation>,
        categories: Vec<GtCategory>,
    ) -> Result<Self, ScoreError> {
        let origin = "in memory".to_owned();
        let raw = |annotation: GtAnnotation| RawAnnotation {
            id: annotation.id,
            image_id: annotation.image_id,
            category_id: annotation.category_id,
            bbox: Some(annotation.bbox_xywh.to_vec()),
            area: annotation.area,
            iscrowd: annotation.iscrowd,
            segmentation: annotation.mask.map(|mask| match mask {
                GtMask::Polygons(polygons) => coco::Segmentation::Polygons(polygons),
                GtMask::Rle(Rle { height, width, counts }) => coco::Segmentation::Runs {
                    size: [height, width],
                    counts: RunCounts::List(counts),
                },
            }),
            keypoints: annotation.keypoints.map(|keypoints| keypoints.concat()),
            num_keypoints: None,
            rotation: 0.0,
        };
        let annotations = checked(annotations.into_iter().map(raw).collect());
        let annotations = annotations
            .map_err(|reason| ScoreError::GroundTruth { origin: origin.clone(), reason })?;
        let image =
            |i: GtImage| Image { id: i.id, height: i.height, width: i.width, ..Image::default() };
        let category = |c: GtCategory| Category { id: c.id, name: c.name, ..Category::default() };
        let images = images.into_iter().map(image).collect();
        Self::build(origin, images, annotations, categories.into_iter().map(category).collect())
    }

    /// Sets the sigma of each keypoint, by which OKS scales the keypoint's distance; larger sigmas
    /// are more tolerant. `None`, the default: COCO's sigmas for 17 keypoints, else 1/K for each of
    /// K keypoints, as in Ultralytics. A wrong number of sigmas is rejected when keypoints are
    /// scored.
    #[must_use]
    pub fn with_sigmas(self, sigmas: Option<Vec<f64>>) -> Self {
        GroundTruth { sigmas, ..self }
    }

    /// True if the annotations are from an LVIS file; then [`evaluate_lvis`](super::evaluate_lvis)
    /// computes the scores.
    #[must_use]
    pub fn is_lvis(&self) -> bool {
        self.is_lvis
    }

    /// A message if boxes extend too far beyond their image; `kind` describes the boxes.
    pub(super) fn boxes_outside(
        &self,
        kind: &str,
        boxes: impl Iterator<Item = (u64, [f64; 4])>,
    ) -> Option<String> {
        let (mut outside, mut of) = (0, 0);
        for (image, [x, y, w, h]) in boxes {
            let (rows, columns) = self.image_size(image).unwrap_or_default();
            let side = |low: f64, length: f64, limit: u32| {
                ((low + length).min(f64::from(limit)) - low.max(0.0)).max(0.0)
            };
            let is_sized = rows > 0 && columns > 0;
            outside += usize::from(
                is_sized && side(x, w, columns) * side(y, h, rows) < MIN_INSIDE * w * h,
            );
            of += 1;
        }
        let gap = if kind.is_empty() { "" } else { " " };
        (outside > 0).then(|| {
            format!(
                "{outside} of {of}{gap}{kind} boxes have over a quarter of their area outside \
                 their image; a box is [x, y, width, height] in pixels, not two corners"
            )
        })
    }

    /// Number of images, with or without objects.
    #[must_use]
    pub fn num_images(&self) -> usize {
        self.images.len()
    }

    /// Number of objects, including crowds.
    #[must_use]
    pub fn num_annotations(&self) -> usize {
        self.coco.dataset.annotations.len()
    }

    fn build(
        origin: String,
        images: Vec<Image>,
        mut annotations: Vec<Annotation>,
        categories: Vec<Category>,
    ) -> Result<Self, ScoreError> {
        let twice = |what: &str, id| ScoreError::GroundTruth {
            origin: origin.clone(),
            reason: format!("two {what} have the id {id}"),
        };
        let mut sizes = HashMap::with_capacity(images.len());
        for image in &images {
            if sizes.insert(image.id, (image.height, image.width)).is_some() {
                return Err(twice("images", image.id));
            }
        }
        let category = first_repeat(categories.iter().map(|c| c.id));
        let annotation = first_repeat(annotations.iter().map(|a| a.id));
        for (what, repeated) in [("categories", category), ("annotations", annotation)] {
            repeated.map_or(Ok(()), |id| Err(twice(what, id)))?;
        }
        // pycocotools ignores objects of images or categories that the file does not list.
        let listed: HashSet<u64> = categories.iter().map(|c| c.id).collect();
        annotations.retain(|a| sizes.contains_key(&a.image_id) && listed.contains(&a.category_id));
        let used: HashSet<u64> = annotations.iter().map(|a| a.category_id).collect();
        if used.len() > MAX_CATEGORIES {
            let used = used.len();
            let reason =
                format!("{used} categories have objects; at most {MAX_CATEGORIES} can be scored");
            return Err(ScoreError::GroundTruth { origin, reason });
        }
        let listed = annotations.iter().find_map(|a| a.keypoints.as_ref());
        let num_keypoints = listed.map(|list| list.len().div_ceil(3));
        // A larger number of keypoints would take unbounded memory; it is rejected later.
        if let Some(count) = num_keypoints.filter(|count| *count <= MAX_KEYPOINTS) {
            // Objects without keypoints get unlabelled keypoints.
            for annotation in annotations.iter_mut().filter(|a| a.keypoints.is_none()) {
                annotation.keypoints = Some(vec![0.0; 3 * count]);
                annotation.num_keypoints = Some(0);
            }
        }
        let mut coco =
            COCO::from_dataset(Dataset { images, annotations, categories, ..Dataset::default() });
        coco.fill_missing_areas();
        let (coco, images) = (Arc::new(coco), Arc::new(sizes));
        let (names, doubts) = (Arc::default(), Vec::new());
        let (is_lvis, sigmas) = (false, None);
        Ok(GroundTruth { coco, origin, images, names, is_lvis, doubts, num_keypoints, sigmas })
    }

    /// Height and width of an image, or `None` if it is not listed.
    pub(super) fn image_size(&self, image_id: u64) -> Option<(u32, u32)> {
        self.images.get(&image_id).copied()
    }

    /// The image to which `path` refers: the image whose file name shares the longest suffix of
    /// path components with `path`. It is the image with id `own` if several images share that
    /// suffix and `own` is one of them, if its file name differs only in the extension (`.jpg`), or
    /// if the annotations have no file names.
    pub(super) fn image_of_file(&self, path: &str, own: u64) -> Option<u64> {
        if self.names.is_empty() {
            return Some(own);
        }
        let path = path.replace('\\', "/");
        let own_name = self.coco.get_img(own).map_or("", |image| image.file_name.as_str());
        let stem = |path: &str| Path::new(path).file_stem().map(std::ffi::OsStr::to_owned);
        let found = ends(&path).into_iter().find_map(|end| Some((end, *self.names.get(end)?)));
        match found {
            Some((_, Some(image))) => Some(image),
            Some((end, None)) => own_name.replace('\\', "/").ends_with(end).then_some(own),
            None => (stem(own_name) == stem(&path)).then_some(own),
        }
    }

    /// Warnings about a file.
    pub(super) fn doubts(&self) -> &[String] {
        &self.doubts
    }

    pub(super) fn has_category(&self, category_id: u64) -> bool {
        self.coco.get_cat(category_id).is_some()
    }

    pub(super) fn coco(&self) -> &Arc<COCO> {
        &self.coco
    }

    /// Checks that every object has a box, which is required to score boxes.
    pub(super) fn check_boxes(&self) -> Result<(), ScoreError> {
        let missing = self.coco.dataset.annotations.iter().find(|a| a.bbox.is_none());
        missing.map_or(Ok(()), |a| Err(self.fault(format!("annotation id {} has no bbox", a.id))))
    }

    /// Checks that every object has a mask of its image's size, which is required to score masks.
    pub(super) fn check_masks(&self) -> Result<(), ScoreError> {
        for a in &self.coco.dataset.annotations {
            let size = self.image_size(a.image_id).unwrap_or_default();
            let why = match &a.segmentation {
                None => "has no segmentation".to_owned(),
                Some(_) if size.0 == 0 || size.1 == 0 => {
                    format!("is on image {}, which has no height and width", a.image_id)
                }
                Some(s) => match s.rle_ref().and(rle_size(s)) {
                    Some((h, w)) if (h, w) != size => format!(
                        "has a mask of {h}x{w}, but image {} is {}x{} (height x width)",
                        a.image_id, size.0, size.1
                    ),
                    _ => continue,
                },
            };
            return Err(self.fault(format!("annotation id {} {why}", a.id)));
        }
        Ok(())
    }

    /// Keypoints per object; `None` if no object has any.
    pub(super) fn num_keypoints(&self) -> Option<usize> {
        self.num_keypoints
    }

    /// Checks that objects have keypoints, all the same number, which is required to score
    /// keypoints. Returns the sigma of each keypoint.
    pub(super) fn keypoint_sigmas(&self) -> Result<Vec<f64>, ScoreError> {
        let annotations = &self.coco.dataset.annotations;
        let Some(count) = self.num_keypoints else {
            return match annotations.first() {
                None => Ok(keypoints::default_sigmas(1)),
                Some(_) => Err(self.fault("no annotation has keypoints".into())),
            };
        };
        if count > MAX_KEYPOINTS {
            let why = format!("objects have {count} keypoints, more than {MAX_KEYPOINTS}");
            return Err(self.fault(why));
        }
        for a in annotations {
            let list = a.keypoints.as_deref().unwrap_or_default();
            keypoints::check_list(list, Some(count))
                .map_err(|why| self.fault(format!("annotation id {} {why}", a.id)))?;
        }
        let Some(sigmas) = &self.sigmas else { return Ok(keypoints::default_sigmas(count)) };
        keypoints::check_sigmas(sigmas, count).map_err(|why| self.fault(why))?;
        Ok(sigmas.clone())
    }

    pub(super) fn fault(&self, reason: String) -> ScoreError {
        ScoreError::GroundTruth { origin: self.origin.clone(), reason }
    }
}

/// Converts annotations to the scorer's types, or returns which annotation is invalid and why.
fn checked(annotations: Vec<RawAnnotation>) -> Result<Vec<Annotation>, String> {
    let checked = |(i, annotation): (usize, RawAnnotation)| {
        let id = annotation.id;
        annotation.checked().map_err(|why| format!("annotation {i} (id {id}) {why}"))
    };
    annotations.into_iter().enumerate().map(checked).collect()
}

impl RawAnnotation {
    /// Converts the annotation to the scorer's types, or returns why it is invalid.
    fn checked(self) -> Result<Annotation, String> {
        if let Some(area) = self.area.filter(|area| !area.is_finite()) {
            return Err(format!("has the area {area}"));
        }
        let segmentation = self.segmentation.map(in_scorer);
        if let Some(segmentation) = &segmentation {
            check_segmentation(segmentation)?;
        }
        let mut bbox = self.bbox.as_deref().map(json::check_bbox).transpose()?;
        // Like `prep`, rotates the box of an object that has no outline.
        let is_bare = match &segmentation {
            Some(Segmentation::Polygon(rings)) => rings.iter().all(Vec::is_empty),
            other => other.is_none(),
        };
        if is_bare && self.rotation % 360.0 != 0.0 {
            bbox = bbox.map(|bbox| coco::turned_box(bbox, self.rotation));
        }
        Ok(Annotation {
            id: self.id,
            image_id: self.image_id,
            category_id: self.category_id,
            bbox,
            area: self.area,
            iscrowd: self.iscrowd,
            segmentation,
            keypoints: self.keypoints.filter(|list| !list.is_empty()),
            num_keypoints: self.num_keypoints.and_then(|n| Some(n.as_f64()? as u32)),
            ..Annotation::default()
        })
    }
}

/// Converts a segmentation to the scorer's types.
fn in_scorer(segmentation: coco::Segmentation<f64>) -> Segmentation {
    match segmentation {
        coco::Segmentation::Polygons(rings) => Segmentation::Polygon(rings),
        coco::Segmentation::Runs { size, counts: RunCounts::List(counts) } => {
            Segmentation::UncompressedRle { size, counts }
        }
        coco::Segmentation::Runs { size, counts: RunCounts::Text(counts) } => {
            Segmentation::CompressedRle { size, counts }
        }
    }
}

/// Height and width stored in an RLE.
pub(super) fn rle_size(segmentation: &Segmentation) -> Option<(u32, u32)> {
    match segmentation {
        Segmentation::CompressedRle { size, .. } | Segmentation::UncompressedRle { size, .. } => {
            Some((size[0], size[1]))
        }
        _ => None,
    }
}

/// Checks that a segmentation is a mask. The error is printed after the entry.
pub(super) fn check_segmentation(segmentation: &Segmentation) -> Result<(), String> {
    if let Segmentation::Polygon(polygons) = segmentation {
        for (i, polygon) in polygons.iter().enumerate() {
            check_polygon(polygon).map_err(|why| format!("has a polygon {i} that {why}"))?;
        }
    }
    match segmentation.rle_ref().map(hotcoco::mask::RleRef::area) {
        Some(Err(e)) => Err(format!("has a broken segmentation ({e})")),
        _ => Ok(()),
    }
}

/// Checks the fields that LVIS scores require. The error names the entry that lacks one.
fn check_lvis(images: &[RawImage], categories: &[RawCategory]) -> Result<(), String> {
    for image in images {
        let has = [&image.neg_category_ids, &image.not_exhaustive_category_ids];
        let names = ["neg_category_ids", "not_exhaustive_category_ids"];
        if let Some((_, name)) = has.iter().zip(names).find(|(ids, _)| ids.is_none()) {
            return Err(format!("image id {} has no {name}, which LVIS requires", image.id));
        }
    }
    let known = |c: &&RawCategory| matches!(c.frequency.as_deref(), Some("r" | "c" | "f"));
    match categories.iter().find(|c| !known(c)) {
        Some(c) => Err(format!("category id {} has no frequency of `r`, `c` or `f`", c.id)),
        None => Ok(()),
    }
}

/// The path and its shorter suffixes of whole path components, the longest first.
fn ends(path: &str) -> Vec<&str> {
    let mut ends: Vec<&str> =
        path.rmatch_indices('/').take(MAX_PARTS).map(|(at, _)| &path[at + 1..]).collect();
    ends.push(path);
    ends.reverse();
    ends
}

/// Images by suffixes of their paths; a full path takes precedence over an equal suffix of a longer
/// path.
fn by_ends<'a>(names: impl Iterator<Item = (&'a str, u64)>) -> HashMap<String, Option<u64>> {
    let (mut found, mut whole) = (HashMap::new(), HashMap::new());
    for (name, id) in names {
        let name = name.replace('\\', "/");
        for (i, end) in ends(&name).into_iter().enumerate() {
            let among = if i == 0 { &mut whole } else { &mut found };
            among.entry(end.to_string()).and_modify(|image| *image = None).or_insert(Some(id));
        }
    }
    found.extend(whole);
    found
}

fn first_repeat(ids: impl Iterator<Item = u64>) -> Option<u64> {
    let mut seen = HashSet::new();
    ids.into_iter().find(|&id| !seen.insert(id))
}
