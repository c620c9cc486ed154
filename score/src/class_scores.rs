//! The scores of each class.

use std::collections::HashMap;

use hotcoco::AccumulatedEval;
use serde::{Deserialize, Serialize};

use super::ground_truth::GroundTruth;

/// The scores of one class; a score that is undefined is `None`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// Its name.
    pub name: String,
    /// Number of annotated objects without crowds and, for keypoints, without objects that have no
    /// labelled keypoint.
    pub objects: usize,
    /// AP at IoU 0.50:0.95.
    pub ap: Option<f64>,
    /// AP at IoU 0.50.
    pub ap50: Option<f64>,
    /// AP at IoU 0.75.
    pub ap75: Option<f64>,
    /// AR at IoU 0.50:0.95 with 100 detections per image (20 for keypoints).
    pub ar: Option<f64>,
    /// Precision at recalls 0, 0.01 .. 1 and IoU 0.50; empty without objects.
    pub precision: Vec<f64>,
    /// The score threshold that maximizes F1 at IoU 0.50; `None` if no object is found, and in
    /// reports of older versions.
    #[serde(default)]
    pub best_threshold: Option<Threshold>,
}

/// A score threshold, and the precision and recall of the detections that reach it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Threshold {
    /// The minimum score.
    pub score: f64,
    /// Share of the detections that are correct.
    pub precision: f64,
    /// Share of the objects that are found, to 0.01.
    pub recall: f64,
}

/// The scores of the categories in `curves`; `counted` has the number of objects by category id.
pub(super) fn classes(
    gt: &GroundTruth,
    counted: &HashMap<u64, usize>,
    curves: &AccumulatedEval,
) -> Vec<ClassScores> {
    let hotcoco::EvalShape { t, r, m, .. } = curves.shape;
    let class = |(i, id): (usize, &u64)| {
        let at = |t: usize, r: usize| curves.precision_idx(t, r, i, 0, m - 1);
        let precision = |t: usize, r: usize| curves.precision[at(t, r)];
        let ap_at = |t: usize| mean((0..r).map(|r| precision(t, r)));
        let thresholds = (1..r).map(|r_at| Threshold {
            score: curves.scores[at(0, r_at)],
            precision: precision(0, r_at),
            recall: r_at as f64 / (r - 1) as f64,
        });
        let objects = counted.get(id).copied().unwrap_or(0);
        let curve = (0..r).map(|r| precision(0, r));
        ClassScores {
            name: gt.coco().cat_name(*id),
            objects,
            ap: mean((0..t * r).map(|tr| precision(tr / r, tr % r))),
            ap50: ap_at(0),
            ap75: ap_at(5.min(t - 1)),
            ar: mean((0..t).map(|t| curves.recall[curves.recall_idx(t, i, 0, m - 1)])),
            precision: if objects > 0 { curve.collect() } else { Vec::new() },
            best_threshold: best_of(thresholds),
        }
    };
    curves.cat_ids.iter().enumerate().map(class).collect()
}

/// Adds the precisions of categories to the mean at each IoU threshold and recall.
pub(super) fn add_precision(means: &mut Vec<Vec<Mean>>, curves: &AccumulatedEval) {
    let hotcoco::EvalShape { t, r, k, m, .. } = curves.shape;
    means.resize_with(t, || vec![Mean::default(); r]);
    for (at, mean) in means.iter_mut().flatten().enumerate() {
        let of = |k| curves.precision[curves.precision_idx(at / r, at % r, k, 0, m - 1)];
        (0..k).for_each(|k| mean.add(of(k)));
    }
}

/// A mean of the defined values.
#[derive(Clone, Default)]
pub(super) struct Mean {
    sum: f64,
    count: usize,
}

impl Mean {
    pub(super) fn add(&mut self, value: f64) {
        if value > -1.0 {
            self.sum += value;
            self.count += 1;
        }
    }

    /// The mean; `None` if no value is defined.
    pub(super) fn get(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum / self.count as f64)
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut mean = Mean::default();
    values.for_each(|value| mean.add(value));
    mean.get()
}

/// The threshold with the highest F1; the first of equal ones. The precision at a recall is the
/// maximum over this and higher recalls; at the highest F1 it equals the actual precision.
fn best_of(thresholds: impl Iterator<Item = Threshold>) -> Option<Threshold> {
    let f1 = |t: &Threshold| 2.0 * t.precision * t.recall / (t.precision + t.recall);
    let found = thresholds.filter(|t| t.precision > 0.0);
    found.fold(None, |best, t| match best {
        Some(b) if f1(&b) >= f1(&t) => Some(b),
        _ => Some(t),
    })
}
