//! One annotation: validated, its box clipped, its mask converted to polygons or plain runs.

use hotcoco::mask;
use hotcoco::types::Rle;

use super::options::Masks;
use super::report::DropReason;
use crate::coco::{Annotation, RunCounts, Segmentation};
use crate::store::{NewObject, NewSegmentation};

/// A box with a side of at most this many pixels holds no object.
const MIN_BOX_SIDE: f64 = 1e-3;
/// A box may extend past the image by this many pixels before it counts as clipped: decimal
/// coordinates such as 13.02 + 626.98 do not add up exactly.
const CLIP_TOLERANCE: f64 = 1e-3;
/// A vertex may lie this many pixels outside the image: masks are drawn along every edge, so a far
/// vertex would take hours. The longest side that a JPEG can have.
const MAX_OUTSIDE: f32 = 65_536.0;
/// Three vertices.
const MIN_RING_VALUES: usize = 6;

/// A valid annotation.
#[derive(Debug)]
pub(super) struct Cleaned {
    pub(super) object: NewObject,
    /// Whether its box extended past the image.
    pub(super) clipped: bool,
    /// Whether polygon rings of fewer than three vertices were removed.
    pub(super) ring_trimmed: bool,
}

/// Checks `annotation` of an image of this height and width.
///
/// # Errors
/// The reason to drop it.
pub(super) fn clean(
    annotation: &Annotation,
    label: u32,
    [height, width]: [u32; 2],
    masks: Masks,
) -> Result<Cleaned, DropReason> {
    let (bbox_xywh, clipped) = clean_box(annotation.bbox.as_deref(), height, width)?;
    let (segmentation, mask_area, ring_trimmed) = match segmentation_of(annotation) {
        None if masks == Masks::Optional => {
            (NewSegmentation::Polygons(vec![]), box_area(bbox_xywh), false)
        }
        None => return Err(DropReason::NoSegmentation),
        Some(Segmentation::Polygons(rings)) => clean_polygons(rings, height, width)?,
        Some(Segmentation::Runs { size, counts }) => {
            let (segmentation, area) = clean_runs(*size, counts, height, width)?;
            (segmentation, area, false)
        }
    };
    if mask_area == 0 {
        return Err(DropReason::EmptyMask);
    }
    let area = annotation.area.filter(|area| *area >= 0.0 && (*area as f32).is_finite());
    let area = area.unwrap_or(mask_area as f64);
    let object = NewObject {
        annotation_id: annotation.id,
        label,
        crowd: annotation.iscrowd,
        area: area as f32,
        bbox_xywh,
        segmentation,
    };
    Ok(Cleaned { object, clipped, ring_trimmed })
}

/// The segmentation; `None` also for an empty list of polygons.
fn segmentation_of(annotation: &Annotation) -> Option<&Segmentation> {
    let is_empty = |s: &&Segmentation| matches!(s, Segmentation::Polygons(p) if p.is_empty());
    annotation.segmentation.as_ref().filter(|s| !is_empty(s))
}

/// Pixels that a box covers, at least 1.
fn box_area([_, _, width, height]: [f32; 4]) -> u64 {
    (f64::from(width) * f64::from(height)).round().max(1.0) as u64
}

fn clean_box(
    bbox: Option<&[f64]>,
    height: u32,
    width: u32,
) -> Result<([f32; 4], bool), DropReason> {
    let &[x, y, w, h] = bbox.unwrap_or_default() else { return Err(DropReason::BadBox) };
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

/// The polygons to keep, the area of their union in COCO's rasterization, and whether rings were
/// removed.
fn clean_polygons(
    rings: &[Vec<f32>],
    height: u32,
    width: u32,
) -> Result<(NewSegmentation, u64, bool), DropReason> {
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
    let ring_trimmed = kept.len() < rings.len();
    Ok((NewSegmentation::Polygons(kept), mask::area(&union), ring_trimmed))
}

/// Plain runs that cover the whole image, and their area.
fn clean_runs(
    size: [u32; 2],
    counts: &RunCounts,
    height: u32,
    width: u32,
) -> Result<(NewSegmentation, u64), DropReason> {
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
        // Runs at even places are zeros.
        let ends_in_zeros = runs.len() % 2 == 1;
        match runs.last_mut() {
            Some(last) if ends_in_zeros => *last += missing,
            Some(_) => runs.push(missing),
            None => return Err(DropReason::EmptyMask),
        }
    }
    let rle = Rle { h: height, w: width, counts: runs };
    let area = mask::area(&rle);
    Ok((NewSegmentation::Runs(rle.counts), area))
}
