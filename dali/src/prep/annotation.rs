//! One annotation: validated, its box clipped, its mask converted to polygons or plain runs.

use hotcoco::mask;
use hotcoco::types::Rle;

use super::options::Masks;
use super::report::{DropReason, Finding};
use crate::coco::{self, Annotation, RunCounts, Segmentation};
use crate::store::{NewObject, NewSegmentation};

/// A box with a side of at most this many pixels is dropped.
const MIN_BOX_SIDE: f64 = 1e-3;
/// A box that extends past the image by at most this many pixels does not count as clipped: sums of
/// decimal coordinates such as 13.02 + 626.98 are not exact.
const CLIP_TOLERANCE: f64 = 1e-3;
/// Maximum absolute coordinate of a vertex in pixels, the longest side of a JPEG. Rasterizing takes
/// time in proportion to the length of every edge, so a far vertex would take hours.
const MAX_OUTSIDE: f32 = 65_536.0;
/// A box matches its mask if each edge is at most this many pixels from the edge of the mask's box,
/// or if `MIN_OVERLAP` is reached.
const EDGE_TOLERANCE: f64 = 2.0;
/// A box matches its mask if the IoU with the mask's box is at least this. COCO's boxes have a far
/// higher IoU.
const MIN_OVERLAP: f64 = 0.5;
/// An annotated area matches the mask's area if it is at most this many times larger or smaller, or
/// within `AREA_TOLERANCE`.
const AREA_FACTOR: f64 = 2.0;
/// An annotated area matches the mask's area if it differs by at most this many pixels.
const AREA_TOLERANCE: f64 = 32.0;
/// Minimum number of coordinates of a polygon: three vertices.
const MIN_RING_VALUES: usize = 6;

/// A valid annotation.
#[derive(Debug)]
pub(super) struct Cleaned {
    pub(super) object: NewObject,
    /// The changes to the annotation, and likely mistakes in it.
    pub(super) findings: Vec<Finding>,
}

/// A valid mask.
struct Mask {
    segmentation: NewSegmentation,
    /// Number of pixels.
    area: u64,
    /// Bounding box x, y, width, height, possibly extending past the image.
    extent: [f64; 4],
    finding: Option<Finding>,
}

/// Checks and cleans an annotation of an image with this height and width.
///
/// # Errors
/// Why the annotation must be dropped.
pub(super) fn clean(
    annotation: &Annotation,
    label: u32,
    [height, width]: [u32; 2],
    masks: Masks,
) -> Result<Cleaned, DropReason> {
    let given = annotation.bbox.as_deref().filter(|bbox| !bbox.is_empty());
    let mask = match segmentation_of(annotation).map(|of| clean_mask(of, height, width)) {
        // The annotation is stored with its box only.
        None if masks == Masks::Optional => Ok(None),
        Some(Err(_)) if masks == Masks::Optional && given.is_some() => Err(Finding::NoOutline),
        None => return Err(DropReason::NoSegmentation),
        Some(mask) => Ok(Some(mask?)),
    };
    let mut findings: Vec<Finding> = mask.as_ref().err().copied().into_iter().collect();
    let mask = mask.unwrap_or_default();
    let mut turned = None;
    if mask.is_none()
        && annotation.rotation % 360.0 != 0.0
        && let Some(&[x, y, w, h]) = given
    {
        turned = Some(coco::turned_box([x, y, w, h], annotation.rotation));
        findings.push(Finding::TurnedBox);
    }
    let given = turned.as_ref().map(|bbox| &bbox[..]).or(given);
    let mut boxed = given.map(|bbox| clean_box(bbox, height, width)).transpose()?;
    findings.extend(mask.iter().filter_map(|mask| mask.finding));
    if let (None, Some(mask)) = (boxed, &mask) {
        findings.push(Finding::MadeBox);
        let ([x, y, w, h], _) = clean_box(&mask.extent, height, width)?;
        boxed = Some(([x, y, w, h], false));
    }
    let (bbox_xywh, clipped) = boxed.ok_or(DropReason::BadBox)?;
    findings.extend(clipped.then_some(Finding::ClippedBox));
    let mask_area = mask.as_ref().map_or(box_area(bbox_xywh), |mask| mask.area) as f64;
    if let (Some(given), Some(mask)) = (given, &mask) {
        let fits = fits(given, mask.extent, height, width);
        findings.extend((!fits).then_some(Finding::UnfitBox));
    }
    if mask.is_some() && annotation.area.is_some_and(|area| !is_near(area, mask_area)) {
        findings.push(Finding::FarArea);
    }
    let area = annotation.area.filter(|area| *area >= 0.0 && (*area as f32).is_finite());
    let area = area.unwrap_or(mask_area);
    let segmentation =
        mask.map_or_else(|| NewSegmentation::Polygons(vec![]), |mask| mask.segmentation);
    let object = NewObject {
        annotation_id: annotation.id,
        label,
        crowd: annotation.iscrowd,
        area: area as f32,
        bbox_xywh,
        segmentation,
        keypoints: vec![],
        columns: annotation.columns.clone(),
    };
    Ok(Cleaned { object, findings })
}

/// True if the annotated area is close to the area of the mask.
fn is_near(area: f64, of_mask: f64) -> bool {
    let factor = of_mask / area;
    area > 0.0
        && ((1.0 / AREA_FACTOR..=AREA_FACTOR).contains(&factor)
            || (area - of_mask).abs() <= AREA_TOLERANCE)
}

/// True if the annotated box matches the bounding box of the mask, either clipped to the image or
/// unclipped.
fn fits(bbox: &[f64], extent: [f64; 4], height: u32, width: u32) -> bool {
    let &[x, y, w, h] = bbox else { return false };
    let corners = |[x, y, w, h]: [f64; 4]| [x, y, x + w, y + h];
    let bbox = corners([x, y, w, h]);
    let whole = corners(extent);
    let limits = [width, height, width, height].map(f64::from);
    let mut inside = whole;
    inside.iter_mut().zip(limits).for_each(|(value, limit)| *value = value.clamp(0.0, limit));
    [whole, inside].iter().any(|mask| {
        bbox.iter().zip(mask).all(|(a, b)| (a - b).abs() <= EDGE_TOLERANCE)
            || overlap(bbox, *mask) >= MIN_OVERLAP
    })
}

/// The IoU of two boxes, given by corners.
fn overlap(a: [f64; 4], b: [f64; 4]) -> f64 {
    let side = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.0);
    let area = |c: [f64; 4]| (c[2] - c[0]) * (c[3] - c[1]);
    let both = side(0) * side(1);
    both / (area(a) + area(b) - both)
}

/// The segmentation; `None` if it is absent or an empty list of polygons.
fn segmentation_of(annotation: &Annotation) -> Option<&Segmentation> {
    let is_empty = |s: &&Segmentation| matches!(s, Segmentation::Polygons(p) if p.is_empty());
    annotation.segmentation.as_ref().filter(|s| !is_empty(s))
}

/// Area of a box in pixels, at least 1.
fn box_area([_, _, width, height]: [f32; 4]) -> u64 {
    (f64::from(width) * f64::from(height)).round().max(1.0) as u64
}

/// The box clipped to the image, and true if clipping changed the box.
fn clean_box(bbox: &[f64], height: u32, width: u32) -> Result<([f32; 4], bool), DropReason> {
    let &[x, y, w, h] = bbox else { return Err(DropReason::BadBox) };
    if ![x, y, w, h].iter().all(|value| value.is_finite()) {
        return Err(DropReason::BadBox);
    }
    let (right, bottom) = (f64::from(width), f64::from(height));
    let inside = x >= -CLIP_TOLERANCE
        && y >= -CLIP_TOLERANCE
        && x + w <= right + CLIP_TOLERANCE
        && y + h <= bottom + CLIP_TOLERANCE;
    let [x, y, w, h] = if inside {
        [x, y, w, h]
    } else {
        let (x1, y1) = (x.clamp(0.0, right), y.clamp(0.0, bottom));
        [x1, y1, (x + w).min(right) - x1, (y + h).min(bottom) - y1]
    };
    if w <= MIN_BOX_SIDE || h <= MIN_BOX_SIDE {
        return Err(DropReason::DegenerateBox);
    }
    Ok(([x as f32, y as f32, w as f32, h as f32], !inside))
}

/// The cleaned mask; an error if it is invalid or covers no pixel.
fn clean_mask(given: &Segmentation, height: u32, width: u32) -> Result<Mask, DropReason> {
    let mask = match given {
        Segmentation::Polygons(rings) => clean_polygons(rings, height, width)?,
        Segmentation::Runs { size, counts } => clean_runs(*size, counts, height, width)?,
    };
    if mask.area == 0 { Err(DropReason::EmptyMask) } else { Ok(mask) }
}

/// The valid polygons; the area is the number of pixels in the union of the rasterized polygons.
fn clean_polygons(rings: &[Vec<f32>], height: u32, width: u32) -> Result<Mask, DropReason> {
    let inside = -MAX_OUTSIDE..=height.max(width) as f32 + MAX_OUTSIDE;
    let good = |ring: &&Vec<f32>| {
        ring.len() >= MIN_RING_VALUES
            && ring.len().is_multiple_of(2)
            && ring.iter().all(|value| inside.contains(value))
    };
    let kept: Vec<Vec<f32>> = rings.iter().filter(good).cloned().collect();
    if kept.is_empty() {
        return Err(DropReason::BadPolygon);
    }
    let wide: Vec<Vec<f64>> =
        kept.iter().map(|ring| ring.iter().map(|&value| f64::from(value)).collect()).collect();
    let union = mask::fr_polys(&wide, height, width).map_err(|_| DropReason::BadPolygon)?;
    let finding = (kept.len() < rings.len()).then_some(Finding::RemovedRings);
    let values = |axis: usize| wide.iter().flat_map(move |ring| ring[axis..].iter().step_by(2));
    let least = |axis| values(axis).copied().fold(f64::INFINITY, f64::min);
    let most = |axis| values(axis).copied().fold(f64::NEG_INFINITY, f64::max);
    let extent = [least(0), least(1), most(0) - least(0), most(1) - least(1)];
    let segmentation = NewSegmentation::Polygons(kept);
    Ok(Mask { segmentation, area: mask::area(&union), extent, finding })
}

/// Converts run lengths to a plain list that covers the whole image.
fn clean_runs(
    size: [u32; 2],
    counts: &RunCounts,
    height: u32,
    width: u32,
) -> Result<Mask, DropReason> {
    if size != [height, width] {
        return Err(DropReason::RunsSize);
    }
    let mut runs = match counts {
        RunCounts::List(runs) => runs.clone(),
        RunCounts::Text(text) => {
            mask::rle_from_string(text, height, width).map_err(|_| DropReason::BadRuns)?.counts
        }
    };
    mask::check_counts(&runs, height, width).map_err(|_| DropReason::BadRuns)?;
    // Pixels after the last run are background, as in pycocotools.
    let covered: u64 = runs.iter().map(|&run| u64::from(run)).sum();
    let missing = (u64::from(height) * u64::from(width)).saturating_sub(covered);
    if missing > 0 {
        let missing = u32::try_from(missing).map_err(|_| DropReason::BadRuns)?;
        // Runs with an even index are zeros.
        let ends_in_zeros = runs.len() % 2 == 1;
        match runs.last_mut() {
            Some(last) if ends_in_zeros => *last += missing,
            Some(_) => runs.push(missing),
            None => return Err(DropReason::EmptyMask),
        }
    }
    let rle = Rle { h: height, w: width, counts: runs };
    let (area, extent) = (mask::area(&rle), mask::to_bbox(&rle));
    let finding = (missing > 0).then_some(Finding::ShortRuns);
    Ok(Mask { segmentation: NewSegmentation::Runs(rle.counts), area, extent, finding })
}
