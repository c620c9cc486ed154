//! Metrics of subsets of the images, from detections that were matched once.

use std::cmp::Ordering;

use hotcoco::metrics::counts::{PrCurveScratch, precision_recall_curve_of_order_into};
use hotcoco::{COCOeval, EvalImg, MetricDef, Params};

use super::class_scores::Mean;

/// Detections and objects of all images, by class.
pub(super) struct Matches {
    classes: Vec<Class>,
    params: Params,
    numbers: Vec<MetricDef>,
}

#[derive(Clone, Default)]
struct Class {
    /// Sorted by descending score.
    detections: Vec<Matched>,
    /// For each image: its position, and its number of objects for each area range.
    objects: Vec<(usize, Vec<usize>)>,
}

#[derive(Clone)]
struct Matched {
    score: f64,
    /// Position of the image, and rank of the detection within the image.
    image: usize,
    rank: usize,
    /// One bit per area and threshold: set in `matched` if the detection is matched, in `ignored`
    /// if it is ignored.
    matched: u64,
    ignored: u64,
}

impl Matches {
    /// Reads the matches from a scorer that has been evaluated.
    pub(super) fn new(eval: &COCOeval) -> Self {
        let (params, numbers) = (eval.params.clone(), eval.metric_defs());
        let mut classes = vec![Class::default(); params.cat_ids.len()];
        // `eval_imgs` has one result per area range; the results of an image and category are
        // consecutive.
        for cells in eval.eval_imgs().chunks(params.area_ranges.len()) {
            let cells: Vec<&EvalImg> = cells.iter().flatten().collect();
            let Some(first) = cells.first() else { continue };
            let image = params.img_ids.binary_search(&first.image_id);
            let class = params.cat_ids.binary_search(&first.category_id);
            let (Ok(image), Ok(class)) = (image, class) else { continue };
            let count = params.iou_thrs.len();
            let bits = |flag: &dyn Fn(&EvalImg, usize) -> bool| {
                let all = (0..cells.len() * count).filter(|at| flag(cells[at / count], at % count));
                all.fold(0, |bits, at| bits | 1 << at)
            };
            let matched = |(rank, score): (usize, &f64)| Matched {
                score: *score,
                image,
                rank,
                matched: bits(&|cell, t| cell.dt_matched[(t, rank)]),
                ignored: bits(&|cell, t| cell.dt_ignore[(t, rank)]),
            };
            let objects = cells.iter().map(|cell| cell.num_gt_in_denominator()).collect();
            classes[class].detections.extend(first.dt_scores.iter().enumerate().map(matched));
            classes[class].objects.push((image, objects));
        }
        for Class { detections, .. } in &mut classes {
            detections.sort_by(|a, b| b.score.partial_cmp(&a.score).unwrap_or(Ordering::Equal));
        }
        Self { classes, params, numbers }
    }

    /// The metrics of the images at these positions, in the order of
    /// [`IouType::stat_names`](super::IouType::stat_names); -1 where undefined.
    pub(super) fn stats<'a>(&self, images: impl Iterator<Item = &'a usize>) -> Vec<f64> {
        let mut is_sampled = vec![false; self.params.img_ids.len()];
        images.for_each(|image| is_sampled[*image] = true);
        self.numbers.iter().map(|number| self.mean(number, &is_sampled)).collect()
    }

    fn mean(&self, of: &MetricDef, is_sampled: &[bool]) -> f64 {
        let (mut points, mut curve) = (PrCurveScratch::default(), vec![]);
        let Params { rec_thrs, iou_thrs, .. } = &self.params;
        let recalls = if of.ap { rec_thrs.as_slice() } else { &[] };
        let iou = of.iou_thr.and_then(|iou| self.params.iou_thr_idx(iou));
        let thresholds = iou.map_or(0..iou_thrs.len(), |at| at..at + 1);
        let area = self.params.area_range_idx(of.area_lbl).unwrap_or(0);
        let mut mean = Mean::default();
        for class in &self.classes {
            let sampled = class.objects.iter().filter(|(image, _)| is_sampled[*image]);
            let num_gt: usize = sampled.map(|(_, objects)| objects[area]).sum();
            if num_gt == 0 {
                continue;
            }
            let counts = |d: &&Matched| is_sampled[d.image] && d.rank < of.max_det;
            let counted: Vec<&Matched> = class.detections.iter().filter(counts).collect();
            for t in thresholds.clone().map(|t| area * iou_thrs.len() + t) {
                let matched: Vec<bool> = counted.iter().map(|d| d.matched >> t & 1 == 1).collect();
                let ignored: Vec<bool> = counted.iter().map(|d| d.ignored >> t & 1 == 1).collect();
                let recall = precision_recall_curve_of_order_into(
                    0..counted.len(),
                    &matched,
                    Some(&ignored),
                    num_gt,
                    recalls,
                    &mut points,
                    &mut curve,
                );
                let precision = |r: usize| curve.get(r).map_or(0.0, |point| point.1);
                (0..recalls.len()).for_each(|r| mean.add(precision(r)));
                if !of.ap {
                    mean.add(recall);
                }
            }
        }
        mean.get().unwrap_or(-1.0)
    }
}
