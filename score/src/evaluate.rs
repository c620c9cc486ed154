//! The evaluation itself: matching, precision and recall, the twelve numbers.

use std::path::Path;
use std::sync::Arc;

use hotcoco::{COCO, COCOeval, Dataset};

use super::IouType;
use super::detections::{Detection, Results};
use super::error::ScoreError;
use super::ground_truth::GroundTruth;
use super::summary::Summary;

/// COCO's area limits between small, medium and large objects, in pixels.
const AREA_BOUNDS: [f64; 2] = [32.0 * 32.0, 96.0 * 96.0];

/// Precision and recall behind the twelve numbers, -1 where there is no object.
///
/// # Shapes
/// `shape` is `[T, R, K, A, M]`: 10 IoU thresholds, 101 recalls, the categories by id, the areas
/// (all, small, medium, large), and 1, 10, 100 detections an image.
#[derive(Debug, Clone, PartialEq)]
pub struct Curves {
    /// `[T, R, K, A, M]`.
    pub shape: [usize; 5],
    /// `[T, R, K, A, M]`: precision at each recall.
    pub precision: Vec<f64>,
    /// `[T, K, A, M]`: the largest recall reached.
    pub recall: Vec<f64>,
    /// `[T, R, K, A, M]`: the score at which each recall is reached.
    pub scores: Vec<f64>,
}

/// Scores a COCO results file against a COCO annotations file, exactly as pycocotools does.
///
/// `iou_type` `None` infers it from the entries: masks if they have `segmentation`, else boxes.
///
/// # Errors
/// As [`GroundTruth::from_file`] and [`Results::from_file`].
pub fn evaluate_files(
    gt: &Path,
    detections: &Path,
    iou_type: Option<IouType>,
) -> Result<Summary, ScoreError> {
    let gt = GroundTruth::from_file(gt)?;
    let results = Results::from_file(detections, &gt, iou_type)?;
    Ok(evaluate_results(&gt, results)?.0)
}

/// Scores detections in memory. No detections at all score 0.
///
/// Equals pycocotools on the file that
/// [`write_results_json_of`](super::write_results_json_of) writes for `iou_type`.
///
/// # Errors
/// As [`Results::from_detections`]; [`ScoreError::GroundTruth`] when the annotations lack the
/// boxes or masks that `iou_type` compares.
pub fn evaluate(
    gt: &GroundTruth,
    detections: &[Detection],
    iou_type: IouType,
) -> Result<Summary, ScoreError> {
    let results = Results::from_detections(detections, gt, iou_type)?;
    Ok(evaluate_results(gt, results)?.0)
}

/// Scores checked results, and also returns the curves. `results` must have been checked against
/// this `gt`.
///
/// # Errors
/// [`ScoreError::GroundTruth`] when the annotations lack the boxes or masks to compare.
pub fn evaluate_results(
    gt: &GroundTruth,
    results: Results,
) -> Result<(Summary, Curves), ScoreError> {
    let (summary, curves, _) = scored(gt, results)?;
    Ok((summary, curves))
}

/// Scores checked results; the scorer itself comes back too, for an analysis.
pub(super) fn scored(
    gt: &GroundTruth,
    results: Results,
) -> Result<(Summary, Curves, COCOeval), ScoreError> {
    let iou_type = results.iou_type;
    let Run { stats, curves, eval, notes } =
        run(gt, results, |gt, found, kind, _| COCOeval::new(gt, found, kind))?;
    let summary = Summary {
        iou_type,
        stats,
        undefined: Summary::reasons(&stats, gt.num_images(), object_sizes(gt)),
        per_category: per_category(gt, &eval, &curves),
        notes,
    };
    Ok((summary, curves, eval))
}

/// A finished run of the scorer.
pub(super) struct Run<const N: usize> {
    pub(super) stats: [f64; N],
    pub(super) curves: Curves,
    pub(super) eval: COCOeval,
    pub(super) notes: Vec<String>,
}

/// Runs the scorer that `make` sets up, of `N` numbers, for these annotations, detections, kind,
/// and limit of detections.
pub(super) fn run<const N: usize>(
    gt: &GroundTruth,
    results: Results,
    make: fn(Arc<COCO>, COCO, hotcoco::IouType, usize) -> COCOeval,
) -> Result<Run<N>, ScoreError> {
    let iou_type = match results.iou_type {
        IouType::Bbox => {
            gt.check_boxes()?;
            hotcoco::IouType::Bbox
        }
        IouType::Segm => {
            gt.check_masks()?;
            hotcoco::IouType::Segm
        }
    };
    let mut notes = left_out_note(&results);
    notes.extend(results.doubts);
    let detections = COCO::from_dataset(Dataset {
        images: gt.coco().dataset.images.clone(),
        annotations: results.annotations,
        categories: gt.coco().dataset.categories.clone(),
        ..Dataset::default()
    });
    let mut eval = make(gt.coco().clone(), detections, iou_type, results.max_dets);
    eval.evaluate()?;
    eval.accumulate();
    // `summarize` would print; we print the lines ourselves.
    eval.summarize_lines();
    let broken = || {
        let reason = format!("the scorer handed back other than {N} numbers");
        ScoreError::Scorer(hotcoco::Error::InvalidState(reason))
    };
    let stats = eval.stats().and_then(|s| s.try_into().ok()).ok_or_else(broken)?;
    let curves = curves(&eval).ok_or_else(broken)?;
    Ok(Run { stats, curves, eval, notes })
}

fn curves(eval: &COCOeval) -> Option<Curves> {
    let accumulated = eval.accumulated()?;
    let s = accumulated.shape;
    Some(Curves {
        shape: [s.t, s.r, s.k, s.a, s.m],
        precision: accumulated.precision.clone(),
        recall: accumulated.recall.clone(),
        scores: accumulated.scores.clone(),
    })
}

/// Mean of the defined precisions of each category, over all sizes and 100 detections an image.
fn per_category(gt: &GroundTruth, eval: &COCOeval, curves: &Curves) -> Vec<(String, f64)> {
    let [t, r, k, a, m] = curves.shape;
    let ids = eval.accumulated().map_or(&[][..], |e| &e.cat_ids);
    let mean = |category: usize| {
        let defined = (0..t * r)
            .map(|tr| curves.precision[((tr * k + category) * a) * m + (m - 1)])
            .filter(|&p| p > -1.0);
        let (sum, count) = defined.fold((0.0, 0_usize), |(sum, n), p| (sum + p, n + 1));
        if count == 0 { -1.0 } else { sum / count as f64 }
    };
    ids.iter().enumerate().map(|(i, &id)| (gt.coco().cat_name(id), mean(i))).collect()
}

/// Objects that are not crowd: all, small, medium, large. A size on a limit counts for both.
fn object_sizes(gt: &GroundTruth) -> [usize; 4] {
    let areas: Vec<f64> = gt
        .coco()
        .dataset
        .annotations
        .iter()
        .filter(|a| !a.iscrowd)
        .map(|a| a.area.unwrap_or(0.0))
        .collect();
    let [small, large] = AREA_BOUNDS;
    let count = |keep: &dyn Fn(f64) -> bool| areas.iter().filter(|&&area| keep(area)).count();
    [
        areas.len(),
        count(&|area| area <= small),
        count(&|area| (small..=large).contains(&area)),
        count(&|area| area >= large),
    ]
}

fn left_out_note(results: &Results) -> Vec<String> {
    if results.left_out.is_empty() {
        return Vec::new();
    }
    let count: usize = results.left_out.values().sum();
    let ids: Vec<String> = results.left_out.keys().take(8).map(u64::to_string).collect();
    let more = if results.left_out.len() > 8 { ", ..." } else { "" };
    vec![format!(
        "{count} detections name category_id {}{more}, which the annotations do not have, and \
         were left out",
        ids.join(", ")
    )]
}
