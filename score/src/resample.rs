//! The numbers of subsets of the images, from detections that were matched once.

use std::cmp::Ordering;

use hotcoco::metrics::counts::{PrCurveScratch, precision_recall_curve_of_order_into};
use hotcoco::{COCOeval, EvalImg, Params};

use super::IouType;
use super::summary::slices;

/// Detections and objects of all images, by class.
pub(super) struct Matches {
    classes: Vec<Class>,
    params: Params,
    kind: IouType,
}

struct Class {
    /// Image position and rank in its image of each detection, by descending score.
    detections: Vec<(usize, usize)>,
    /// True where a detection is matched, and where it is ignored: `[A * T][detections]`.
    flags: Vec<[Vec<bool>; 2]>,
    /// Image positions, each with the number of its objects by area.
    objects: Vec<(usize, Vec<usize>)>,
}

/// Buffers that samples share.
#[derive(Default)]
pub(super) struct Scratch {
    is_sampled: Vec<bool>,
    order: Vec<usize>,
    values: Vec<f64>,
    points: PrCurveScratch,
    curve: Vec<(usize, f64, usize)>,
}

impl Matches {
    /// Reads an evaluated scorer.
    pub(super) fn new(eval: &COCOeval, kind: IouType) -> Self {
        let params = eval.params.clone();
        let mut found = vec![Vec::new(); params.cat_ids.len()];
        // The areas of an image and category are next to each other.
        for cells in eval.eval_imgs().chunks(params.area_ranges.len()) {
            let cells: Vec<&EvalImg> = cells.iter().flatten().collect();
            let Some(first) = cells.first() else { continue };
            let image = params.img_ids.binary_search(&first.image_id);
            let class = params.cat_ids.binary_search(&first.category_id);
            if let (Ok(image), Ok(class)) = (image, class) {
                found[class].push((image, cells));
            }
        }
        let classes = found.iter().map(|cells| Class::new(cells, params.iou_thrs.len()));
        Self { classes: classes.collect(), params, kind }
    }

    /// The numbers of the images at these positions, in the order of [`IouType::stat_names`]; -1
    /// where undefined.
    pub(super) fn stats<'a>(
        &self,
        images: impl Iterator<Item = &'a usize>,
        scratch: &mut Scratch,
    ) -> Vec<f64> {
        scratch.is_sampled.clear();
        scratch.is_sampled.resize(self.params.img_ids.len(), false);
        images.for_each(|image| scratch.is_sampled[*image] = true);
        (0..self.kind.stat_names().len()).map(|i| self.stat(i, scratch)).collect()
    }

    fn stat(&self, i: usize, scratch: &mut Scratch) -> f64 {
        let Scratch { is_sampled, order, values, points, curve } = scratch;
        let Params { rec_thrs, iou_thrs, .. } = &self.params;
        let (iou, area, max_dets) = slices(self.kind)[i];
        let iou = iou.parse().ok().and_then(|iou| self.params.iou_thr_idx(iou));
        let is_ap = self.kind.stat_names()[i].starts_with("AP");
        let recalls = if is_ap { rec_thrs.as_slice() } else { &[] };
        let thresholds = iou.map_or(0..iou_thrs.len(), |at| at..at + 1);
        let area = self.params.area_range_idx(area).unwrap_or(0);
        values.clear();
        for class in &self.classes {
            let sampled = class.objects.iter().filter(|(image, _)| is_sampled[*image]);
            let num_gt: usize = sampled.map(|(_, objects)| objects[area]).sum();
            if num_gt == 0 {
                continue;
            }
            let counts = |d: &usize| {
                let (image, rank) = class.detections[*d];
                is_sampled[image] && rank < max_dets
            };
            order.clear();
            order.extend((0..class.detections.len()).filter(counts));
            for t in thresholds.clone() {
                let [matched, ignored] = &class.flags[area * iou_thrs.len() + t];
                let recall = precision_recall_curve_of_order_into(
                    order.iter().copied(),
                    matched,
                    Some(ignored),
                    num_gt,
                    recalls,
                    points,
                    curve,
                );
                let precision = |r: usize| curve.get(r).map_or(0.0, |point| point.1);
                values.extend((0..recalls.len()).map(precision));
                values.extend((!is_ap).then_some(recall));
            }
        }
        if values.is_empty() { -1.0 } else { values.iter().sum::<f64>() / values.len() as f64 }
    }
}

impl Class {
    /// From the images' positions, each with its matches by area.
    fn new(cells: &[(usize, Vec<&EvalImg>)], thresholds: usize) -> Self {
        let first = |i: usize| cells[i].1[0];
        let ranks = |i: usize| (0..first(i).dt_scores.len()).map(move |rank| (i, rank));
        let mut order: Vec<(usize, usize)> = (0..cells.len()).flat_map(ranks).collect();
        let score = |(i, rank): &(usize, usize)| first(*i).dt_scores[*rank];
        order.sort_by(|a, b| score(b).partial_cmp(&score(a)).unwrap_or(Ordering::Equal));
        let flags = |at: usize| {
            let (area, t) = (at / thresholds, at % thresholds);
            let matched = |(i, rank): &(usize, usize)| cells[*i].1[area].dt_matched[(t, *rank)];
            let ignored = |(i, rank): &(usize, usize)| cells[*i].1[area].dt_ignore[(t, *rank)];
            [order.iter().map(matched).collect(), order.iter().map(ignored).collect()]
        };
        let areas = cells.first().map_or(0, |(_, areas)| areas.len());
        let objects = |(image, areas): &(usize, Vec<&EvalImg>)| {
            (*image, areas.iter().map(|cell| cell.num_gt_in_denominator()).collect())
        };
        Self {
            flags: (0..areas * thresholds).map(flags).collect(),
            objects: cells.iter().map(objects).collect(),
            detections: order.iter().map(|(i, rank)| (cells[*i].0, *rank)).collect(),
        }
    }
}
