//! The evaluation: matching, precision and recall, and metrics.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Arc;

use hotcoco::{AccumulatedEval, Annotation, COCO, COCOeval, Dataset, MetricDef};

use super::class_scores::{ClassScores, Mean, add_precision, classes};
use super::detections::{Detection, Results};
use super::error::ScoreError;
use super::ground_truth::GroundTruth;
use super::{IouType, Summary};

/// Maximum number of categories that are scored at once, because the curves of a category take 200
/// kB. With more categories, only categories with objects are scored, [`AT_A_TIME`] at a time.
const MANY_CATEGORIES: usize = 4096;
const AT_A_TIME: usize = 64;

/// The precision and recall curves from which the metrics are computed. Values without objects are
/// -1.
///
/// # Shapes
/// `shape` is `[T, R, K, A, M]`: 10 IoU thresholds, 101 recalls, the categories by id, the areas
/// (all, small, medium, large), and the detections per image (1, 10, 100). For keypoints, the
/// thresholds are of OKS, the areas are all, medium and large, and M is 1: [`Summary::max_dets`].
/// With more than 4096 categories there are no curves.
#[derive(Debug, Clone, Default, PartialEq)]
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

/// Scores a COCO results file against a COCO annotations file, exactly like pycocotools.
///
/// With `iou_type` `None`, the type is masks if an entry has a `segmentation`, else keypoints if an
/// entry has `keypoints`, else boxes.
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

/// Scores detections in memory. An empty list scores 0.
///
/// The scores equal those of pycocotools for the file that
/// [`write_results_json_of`](super::write_results_json_of) writes for `iou_type`.
///
/// # Errors
/// As [`Results::from_detections`]; [`ScoreError::GroundTruth`] if the annotations lack the boxes,
/// masks or keypoints that `iou_type` compares, or the number of sigmas is not the number of
/// keypoints.
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
    let (summary, run) = scored(gt, results)?;
    Ok((summary, run.curves()))
}

/// Scores checked results.
pub(super) fn scored(gt: &GroundTruth, results: Results) -> Result<(Summary, Run), ScoreError> {
    let (iou_type, max_dets) = (results.iou_type, results.max_dets);
    let (eval, notes) = matched(gt, results, new_scorer)?;
    let run = run(gt, iou_type, eval)?;
    let num_objects = run.classes.iter().map(|class| class.objects).sum();
    let by_name = |class: &ClassScores| (class.name.clone(), class.ap.unwrap_or(-1.0));
    let summary = Summary {
        iou_type,
        max_dets,
        undefined: Summary::reasons(iou_type, &run.stats, gt.num_images(), num_objects),
        stats: run.stats.clone(),
        per_category: run.classes.iter().map(by_name).collect(),
        notes,
    };
    Ok((summary, run))
}

/// COCO's scorer.
pub(super) fn new_scorer(
    gt: Arc<COCO>,
    found: COCO,
    kind: hotcoco::IouType,
    max_dets: usize,
) -> COCOeval {
    let mut eval = COCOeval::new(gt, found, kind);
    if kind == hotcoco::IouType::Keypoints {
        eval.params.max_dets = vec![max_dets];
    }
    eval
}

/// True if an annotated object counts: it is not a crowd and, for keypoints, has a labelled
/// keypoint.
pub(super) fn counts(iou_type: IouType, annotation: &hotcoco::Annotation) -> bool {
    !annotation.iscrowd
        && (iou_type != IouType::Keypoints || annotation.num_visible_keypoints() > 0)
}

/// The results of the scorer.
pub(super) struct Run {
    pub(super) stats: Vec<f64>,
    pub(super) classes: Vec<ClassScores>,
    /// Mean precision over the categories at each recall, for each IoU threshold.
    pub(super) precision: Vec<Vec<f64>>,
    pub(super) eval: COCOeval,
}

impl Run {
    /// The curves; empty if there are too many categories to score at once.
    pub(super) fn curves(&self) -> Curves {
        let all = |a: &&AccumulatedEval| a.cat_ids == self.eval.params.cat_ids;
        let curves = self.eval.accumulated().filter(all).map(|a| Curves {
            shape: [a.shape.t, a.shape.r, a.shape.k, a.shape.a, a.shape.m],
            precision: a.precision.clone(),
            recall: a.recall.clone(),
            scores: a.scores.clone(),
        });
        curves.unwrap_or_default()
    }
}

/// Matches detections with objects. `make` creates the scorer from the annotations, the detections,
/// the type, and the maximum number of detections. Also returns notes for the user.
pub(super) fn matched(
    gt: &GroundTruth,
    mut results: Results,
    make: fn(Arc<COCO>, COCO, hotcoco::IouType, usize) -> COCOeval,
) -> Result<(COCOeval, Vec<String>), ScoreError> {
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
    let cap = match iou_type {
        hotcoco::IouType::Keypoints => results.max_dets,
        _ if gt.is_lvis() => results.max_dets,
        kind => hotcoco::Params::new(kind).max_det(),
    };
    notes.extend(keep_best(gt, &mut results.annotations, cap));
    let detections = COCO::from_dataset(Dataset {
        images: gt.coco().dataset.images.clone(),
        annotations: results.annotations,
        categories: gt.coco().dataset.categories.clone(),
        ..Dataset::default()
    });
    let mut eval = make(gt.coco().clone(), detections, iou_type, results.max_dets);
    if gt.coco().dataset.categories.len() > MANY_CATEGORIES {
        let used = gt.coco().dataset.annotations.iter().map(|a| a.category_id);
        let mut used: BTreeSet<u64> = used.collect();
        used.extend(
            gt.coco().dataset.categories[..usize::from(used.is_empty())].iter().map(|c| c.id),
        );
        eval.params.cat_ids = used.into_iter().collect();
    }
    if let Some(sigmas) = sigmas {
        eval.params.kpt_oks_sigmas = sigmas;
    }
    eval.evaluate()?;
    Ok((eval, notes))
}

/// Computes the metrics of matched detections.
pub(super) fn run(
    gt: &GroundTruth,
    iou_type: IouType,
    mut eval: COCOeval,
) -> Result<Run, ScoreError> {
    let broken = || hotcoco::Error::InvalidState("the scorer computed no metrics".into());
    let mut counted = HashMap::new();
    for object in gt.coco().dataset.annotations.iter().filter(|a| counts(iou_type, a)) {
        *counted.entry(object.category_id).or_default() += 1;
    }
    let numbers = eval.metric_defs();
    let ids = std::mem::take(&mut eval.params.cat_ids);
    let size = if ids.len() > MANY_CATEGORIES { AT_A_TIME } else { ids.len().max(1) };
    let (mut parts, mut found, mut precision) = (Vec::new(), Vec::new(), Vec::new());
    for part in 0..ids.len().div_ceil(size).max(1) {
        eval.params.cat_ids = ids.iter().skip(part * size).take(size).copied().collect();
        eval.accumulate();
        // `summarize` would print the lines, which this crate prints itself.
        eval.summarize_lines();
        let stats = eval.stats().ok_or_else(broken)?;
        let curves = eval.accumulated().ok_or_else(broken)?;
        let counts = numbers.iter().map(|of| defined(&eval, curves, of));
        parts.push(stats.iter().copied().zip(counts).collect::<Vec<_>>());
        found.extend(classes(gt, &counted, curves));
        add_precision(&mut precision, curves);
    }
    eval.params.cat_ids = ids;
    let stats = (0..numbers.len()).map(|i| joint_mean(parts.iter().map(|part| part[i])));
    let stats = stats.collect();
    let precision = precision.iter().map(|at| at.iter().filter_map(Mean::get).collect()).collect();
    Ok(Run { stats, classes: found, precision, eval })
}

/// The number of categories that a metric is averaged over.
fn defined(eval: &COCOeval, curves: &AccumulatedEval, of: &MetricDef) -> usize {
    let frequency = of.freq_group.and(of.name.strip_prefix("AP"));
    let is_of = |id: &u64| {
        let category = eval.coco_gt().get_cat(*id);
        frequency.is_none() || category.and_then(|c| c.frequency.as_deref()) == frequency
    };
    let area = eval.params.area_range_idx(of.area_lbl).unwrap_or(0);
    let recall = |k: usize| curves.recall[curves.recall_idx(0, k, area, 0)];
    let ids = curves.cat_ids.iter().enumerate();
    ids.filter(|(k, id)| is_of(id) && recall(*k) > -1.0).count()
}

/// The mean of means, weighted by their counts; -1 without counts. A single mean is returned
/// unchanged.
fn joint_mean(means: impl Iterator<Item = (f64, usize)>) -> f64 {
    let joined = means.filter(|(_, count)| *count > 0).reduce(|(mean, n), (other, count)| {
        let all = n + count;
        (mean + (other - mean) * count as f64 / all as f64, all)
    });
    joined.map_or(-1.0, |(mean, _)| mean)
}

/// Keeps the `cap` best detections of each image and class (for LVIS, of each image). No metric
/// uses the dropped detections, and each would take memory for every object of the image. Returns a
/// message if an image with dropped detections has more than `cap` objects.
fn keep_best(gt: &GroundTruth, found: &mut Vec<Annotation>, cap: usize) -> Option<String> {
    let key = |a: &Annotation| (a.image_id, if gt.is_lvis() { 0 } else { a.category_id });
    let mut best_first: Vec<usize> = (0..found.len()).collect();
    let score = |i: &usize| found[*i].score;
    best_first.sort_by(|a, b| score(b).partial_cmp(&score(a)).unwrap_or(Ordering::Equal));
    let (mut counted, mut counts) = (HashMap::new(), vec![false; found.len()]);
    for i in best_first {
        let count = counted.entry(key(&found[i])).or_insert(0);
        *count += 1;
        counts[i] = *count <= cap;
    }
    let mut objects: BTreeMap<_, usize> = BTreeMap::new();
    for object in gt.coco().dataset.annotations.iter().filter(|a| !a.iscrowd) {
        if counted.get(&key(object)).is_some_and(|count| *count > cap) {
            *objects.entry(key(object)).or_default() += 1;
        }
    }
    let mut counts = counts.into_iter();
    found.retain(|_| counts.next().unwrap_or(true));
    let ((image, _), count) = objects.into_iter().find(|(_, count)| *count > cap)?;
    let each = if gt.is_lvis() { "an image" } else { "a class and image" };
    Some(format!(
        "image {image} has {count} objects, more than {cap} of {each}, but only the {cap} best \
         detections of {each} count, so the remaining objects are missed"
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
