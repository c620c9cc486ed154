//! The numbers of subsets of the images, from detections that were matched once.

use std::cmp::Ordering;
use std::ops::Range;

use hotcoco::COCOeval;
use hotcoco::metrics::counts::{PrCurveScratch, precision_recall_curve_of_order_into};

use super::IouType;
use super::summary::slices;

/// Up to this many values are summed in eight lanes, as numpy does.
const BLOCK: usize = 128;

/// Detections and objects of all images, by class.
pub(super) struct Matches {
    classes: Vec<Class>,
    stats: Vec<Stat>,
    recalls: Vec<f64>,
    thresholds: usize,
}

#[derive(Default)]
struct Class {
    /// Image position and rank in its image of each detection, by descending score.
    detections: Vec<(usize, usize)>,
    /// Whether each detection is matched and ignored: `[A * T][detections]`.
    matched: Vec<Vec<bool>>,
    ignored: Vec<Vec<bool>>,
    /// Image positions, each with the number of its objects by area.
    objects: Vec<(usize, Vec<usize>)>,
}

/// A number of the summary.
struct Stat {
    is_ap: bool,
    thresholds: Range<usize>,
    area: usize,
    max_dets: usize,
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
        let params = &eval.params;
        let (areas, thresholds) = (params.area_ranges.len(), params.iou_thrs.len());
        let mut found: Vec<Vec<_>> = params.cat_ids.iter().map(|_| Vec::new()).collect();
        // The areas of an image and category are next to each other.
        for cells in eval.eval_imgs().chunks(areas) {
            let Some(cells) = cells.iter().map(Option::as_ref).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let image = params.img_ids.binary_search(&cells[0].image_id);
            let class = params.cat_ids.binary_search(&cells[0].category_id);
            if let (Ok(image), Ok(class)) = (image, class) {
                found[class].push((image, cells));
            }
        }
        let class = |cells: Vec<(usize, Vec<&hotcoco::EvalImg>)>| {
            let ranks = |i: usize| (0..cells[i].1[0].dt_scores.len()).map(move |rank| (i, rank));
            let mut order: Vec<(usize, usize)> = (0..cells.len()).flat_map(ranks).collect();
            let score = |(i, rank): (usize, usize)| cells[i].1[0].dt_scores[rank];
            order.sort_by(|a, b| score(*b).partial_cmp(&score(*a)).unwrap_or(Ordering::Equal));
            let flags = |of: fn(&hotcoco::EvalImg) -> &hotcoco::ThreshMatrix<bool>| {
                let at = |at: usize| {
                    let of = |(i, rank): &(usize, usize)| {
                        of(cells[*i].1[at / thresholds])[(at % thresholds, *rank)]
                    };
                    order.iter().map(of).collect()
                };
                (0..areas * thresholds).map(at).collect()
            };
            let count = |cell: &&hotcoco::EvalImg| cell.num_gt_in_denominator();
            let counts = |of: &Vec<_>| of.iter().map(count).collect();
            Class {
                matched: flags(|cell| &cell.dt_matched),
                ignored: flags(|cell| &cell.dt_ignore),
                objects: cells.iter().map(|(image, of)| (*image, counts(of))).collect(),
                detections: order.iter().map(|(i, rank)| (cells[*i].0, *rank)).collect(),
            }
        };
        let stat = |(&(iou, area, max_dets), name): (&(&str, &str, usize), &&str)| Stat {
            is_ap: name.starts_with("AP"),
            thresholds: match iou.parse().ok().and_then(|iou| params.iou_thr_idx(iou)) {
                Some(at) => at..at + 1,
                None => 0..thresholds,
            },
            area: params.area_range_idx(area).unwrap_or(0),
            max_dets,
        };
        Self {
            classes: found.into_iter().map(class).collect(),
            stats: slices(kind).iter().zip(kind.stat_names()).map(stat).collect(),
            recalls: params.rec_thrs.clone(),
            thresholds,
        }
    }

    /// The numbers of the images at these positions, in the order of [`IouType::stat_names`]; -1
    /// where undefined. Equals a scorer of only these images to the last bit.
    pub(super) fn stats<'a>(
        &self,
        images: impl Iterator<Item = &'a usize>,
        count: usize,
        scratch: &mut Scratch,
    ) -> Vec<f64> {
        scratch.is_sampled.clear();
        scratch.is_sampled.resize(count, false);
        images.for_each(|image| scratch.is_sampled[*image] = true);
        self.stats.iter().map(|stat| self.stat(stat, scratch)).collect()
    }

    fn stat(&self, stat: &Stat, scratch: &mut Scratch) -> f64 {
        let Scratch { is_sampled, order, values, points, curve } = scratch;
        let (classes, recalls) = (self.classes.len(), self.recalls.len());
        let rows = if stat.is_ap { recalls } else { 1 };
        values.clear();
        values.resize(stat.thresholds.len() * rows * classes, -1.0);
        for (k, class) in self.classes.iter().enumerate() {
            let sampled = class.objects.iter().filter(|(image, _)| is_sampled[*image]);
            let num_gt: usize = sampled.map(|(_, objects)| objects[stat.area]).sum();
            if num_gt == 0 {
                continue;
            }
            let counts = |d: &usize| {
                let (image, rank) = class.detections[*d];
                is_sampled[image] && rank < stat.max_dets
            };
            order.clear();
            order.extend((0..class.detections.len()).filter(counts));
            for (i, t) in stat.thresholds.clone().enumerate() {
                let at = stat.area * self.thresholds + t;
                let (matched, ignored) = (&class.matched[at], &class.ignored[at]);
                if !stat.is_ap {
                    let found = order.iter().filter(|d| matched[**d] && !ignored[**d]).count();
                    values[i * classes + k] = found as f64 / num_gt as f64;
                    continue;
                }
                precision_recall_curve_of_order_into(
                    order.iter().copied(),
                    matched,
                    Some(ignored),
                    num_gt,
                    &self.recalls,
                    points,
                    curve,
                );
                for r in 0..recalls {
                    let precision = curve.get(r).map_or(0.0, |point| point.1);
                    values[(i * recalls + r) * classes + k] = precision;
                }
            }
        }
        values.retain(|value| *value >= 0.0);
        if values.is_empty() { -1.0 } else { sum(values) / values.len() as f64 }
    }
}

/// The sum in numpy's order.
fn sum(values: &[f64]) -> f64 {
    if values.len() > BLOCK {
        let half = values.len() / 2;
        let (low, high) = values.split_at(half - half % 8);
        return sum(low) + sum(high);
    }
    let (blocks, rest) = values.as_chunks::<8>();
    let Some((first, blocks)) = blocks.split_first() else { return rest.iter().sum() };
    let mut lanes = *first;
    for block in blocks {
        lanes.iter_mut().zip(block).for_each(|(lane, value)| *lane += value);
    }
    let [a, b, c, d, e, f, g, h] = lanes;
    rest.iter().fold(((a + b) + (c + d)) + ((e + f) + (g + h)), |sum, value| sum + value)
}
