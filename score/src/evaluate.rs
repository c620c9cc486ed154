//! The evaluation itself: matching, precision and recall, and the numbers made of them.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use hotcoco::{Annotation, COCO, COCOeval, Dataset};

use super::IouType;
use super::detections::{Detection, Results};
use super::error::ScoreError;
use super::ground_truth::GroundTruth;
use super::summary::Summary;

/// With more categories than this, only those with objects are scored, and at most so many.
const MANY_CATEGORIES: usize = 4096;
const MAX_CATEGORIES: usize = 4 * MANY_CATEGORIES;

/// Precision and recall behind the numbers, -1 where there is no object.
///
/// # Shapes
/// `shape` is `[T, R, K, A, M]`: 10 IoU thresholds, 101 recalls, the categories by id, the areas
/// (all, small, medium, large), and 1, 10, 100 detections an image. For keypoints the thresholds
/// are of OKS, the areas all, medium, large, and [`Summary::max_dets`] is the only number.
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
/// `iou_type` `None` infers it from the entries: masks if one has a `segmentation`, else keypoints
/// if one has `keypoints`, else boxes.
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
/// boxes, masks or keypoints that `iou_type` compares, or their sigmas are of another number.
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
/// [`ScoreError::GroundTruth`] when the annotations lack the boxes, masks or keypoints to compare.
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
    let (iou_type, max_dets) = (results.iou_type, results.max_dets);
    let Run { stats, curves, eval, notes } =
        run(gt, results, iou_type.stat_names().len(), |gt, found, kind, max_dets| {
            let mut eval = COCOeval::new(gt, found, kind);
            if kind == hotcoco::IouType::Keypoints {
                eval.params.max_dets = vec![max_dets];
            }
            eval
        })?;
    let annotations = gt.coco().dataset.annotations.iter();
    let num_objects = annotations.filter(|a| counts(iou_type, a)).count();
    let summary = Summary {
        iou_type,
        max_dets,
        undefined: Summary::reasons(iou_type, &stats, gt.num_images(), num_objects),
        stats,
        per_category: per_category(gt, &eval, &curves),
        notes,
    };
    Ok((summary, curves, eval))
}

/// True if an annotated object counts: it is not crowd and, for keypoints, has a labelled one.
pub(super) fn counts(iou_type: IouType, annotation: &hotcoco::Annotation) -> bool {
    !annotation.iscrowd
        && (iou_type != IouType::Keypoints || annotation.num_visible_keypoints() > 0)
}

/// A finished run of the scorer.
pub(super) struct Run {
    pub(super) stats: Vec<f64>,
    pub(super) curves: Curves,
    pub(super) eval: COCOeval,
    pub(super) notes: Vec<String>,
}

/// Runs the scorer that `make` sets up, of `num_stats` numbers, for these annotations, detections,
/// kind, and limit of detections.
pub(super) fn run(
    gt: &GroundTruth,
    mut results: Results,
    num_stats: usize,
    make: fn(Arc<COCO>, COCO, hotcoco::IouType, usize) -> COCOeval,
) -> Result<Run, ScoreError> {
    let mut sigmas = None;
    let iou_type = match results.iou_type {
        IouType::Bbox => {
            gt.check_boxes()?;
            hotcoco::IouType::Bbox
        }
        IouType::Segm => {
            gt.check_masks()?;
            hotcoco::IouType::Segm
        }
        IouType::Keypoints => {
            gt.check_boxes()?;
            sigmas = Some(gt.keypoint_sigmas()?);
            hotcoco::IouType::Keypoints
        }
    };
    let mut notes = left_out_note(&results);
    notes.extend(gt.doubts().iter().cloned());
    notes.extend(results.doubts);
    let cap = hotcoco::Params::new(iou_type).max_det();
    let cap = if gt.is_lvis() { results.max_dets } else { cap };
    notes.extend(keep_best(gt, &mut results.annotations, cap));
    let detections = COCO::from_dataset(Dataset {
        images: gt.coco().dataset.images.clone(),
        annotations: results.annotations,
        categories: gt.coco().dataset.categories.clone(),
        ..Dataset::default()
    });
    let mut eval = make(gt.coco().clone(), detections, iou_type, results.max_dets);
    // The curves of a category take 400 kB, with or without objects.
    if gt.coco().dataset.categories.len() > MANY_CATEGORIES {
        let used = gt.coco().dataset.annotations.iter().map(|a| a.category_id);
        let mut used: BTreeSet<u64> = used.collect();
        used.extend(
            gt.coco().dataset.categories[..usize::from(used.is_empty())].iter().map(|c| c.id),
        );
        if used.len() > MAX_CATEGORIES {
            let (used, most) = (used.len(), MAX_CATEGORIES);
            return Err(gt.fault(format!("{used} categories have objects, more than {most}")));
        }
        eval.params.cat_ids = used.into_iter().collect();
    }
    if let Some(sigmas) = sigmas {
        eval.params.kpt_oks_sigmas = sigmas;
    }
    eval.evaluate()?;
    eval.accumulate();
    // `summarize` would print; we print the lines ourselves.
    eval.summarize_lines();
    let broken = || {
        let reason = format!("the scorer handed back other than {num_stats} numbers");
        ScoreError::Scorer(hotcoco::Error::InvalidState(reason))
    };
    let stats = eval.stats().filter(|s| s.len() == num_stats).ok_or_else(broken)?.to_vec();
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

/// Mean of the defined precisions of each category, over all sizes and the most detections an
/// image that count.
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

/// Leaves out detections beyond the `cap` best of an image and class, which no score counts and
/// which would take memory with each object of the image. Returns a sentence if there are more
/// objects than `cap`, too.
fn keep_best(gt: &GroundTruth, found: &mut Vec<Annotation>, cap: usize) -> Option<String> {
    let key = |a: &Annotation| (a.image_id, if gt.is_lvis() { 0 } else { a.category_id });
    let mut places: HashMap<_, Vec<usize>> = HashMap::new();
    for (i, detection) in found.iter().enumerate() {
        places.entry(key(detection)).or_default().push(i);
    }
    places.retain(|_, places| places.len() > cap);
    let mut objects: BTreeMap<_, usize> = BTreeMap::new();
    let annotated = gt.coco().dataset.annotations.iter();
    for object in annotated.filter(|a| !a.iscrowd && places.contains_key(&key(a))) {
        *objects.entry(key(object)).or_default() += 1;
    }
    let score = |i: &usize| found[*i].score;
    let mut dropped = HashSet::new();
    // LVIS's scorer leaves its own out.
    for mut places in places.into_values().filter(|_| !gt.is_lvis()) {
        places.sort_by(|a, b| score(b).partial_cmp(&score(a)).unwrap_or(Ordering::Equal));
        dropped.extend(places.drain(cap..));
    }
    let mut place = 0..;
    found.retain(|_| place.next().is_none_or(|i| !dropped.contains(&i)));
    let ((image, _), count) = objects.into_iter().find(|(_, count)| *count > cap)?;
    let each = if gt.is_lvis() { "an image" } else { "a class and image" };
    Some(format!(
        "image {image} has {count} objects, more than {cap} of {each}, and only the {cap} best \
         detections of {each} count, so the others are missed"
    ))
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
