//! Measures how well anchors match the objects of a data set, for the page of `onegraph inspect
//! data`.

use kernels::boxes::Box4;

use super::rpn::level_cells;
use crate::config::Config;
use crate::model::detectors::{Object, ObjectNotes};

/// Upper bounds of the bins of object sides in the table.
const SIDES: [f64; 8] = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, f64::INFINITY];
/// Factors by which the config's anchor sizes are multiplied, to find sizes that match better.
const FACTORS: [f32; 7] = [0.25, 0.5, 0.625, 0.75, 1.25, 1.5, 2.0];

/// Notes on how well the config's anchors match the objects.
pub(super) fn notes(config: &Config, objects: &[Object]) -> ObjectNotes {
    let fit = Fit::new(config, objects);
    ObjectNotes {
        hard: Some((fit.unmatched(), "objects that no anchor matches")),
        section: format!("<h2>Objects and anchors</h2>\n{}", fit.section(config)),
    }
}

/// Objects, each with its IoU with the best anchor.
struct Fit {
    objects: Vec<(Object, f64)>,
    /// Minimum IoU for which an anchor matches an object (`model.rpn.fg_iou`).
    fg_iou: f64,
}

impl Fit {
    fn new(config: &Config, objects: &[Object]) -> Self {
        let anchors = Anchors::new(config, &config.model.anchors.sizes);
        let with_iou = |object: &Object| (*object, anchors.best(object));
        let objects = objects.iter().map(with_iou).collect();
        Self { objects, fg_iou: f64::from(config.model.rpn.fg_iou) }
    }

    fn unmatched(&self) -> usize {
        self.objects.iter().filter(|(_, iou)| *iou < self.fg_iou).count()
    }

    fn section(&self, config: &Config) -> String {
        let (mut rows, mut low) = (String::new(), 0.0);
        for high in SIDES {
            let within = |(object, _): &&(Object, f64)| (low..high).contains(&object.side());
            let (all, without) = self
                .objects
                .iter()
                .filter(within)
                .fold((0, 0), |(n, m), (_, iou)| (n + 1, m + usize::from(*iou < self.fg_iou)));
            let name = match high.is_finite() {
                true => format!("{low} to {high}"),
                false => format!("{low} and more"),
            };
            let share = 100.0 * f64::from(without as u32) / f64::from(all.max(1) as u32);
            rows += &format!(
                "<tr><th>{name}</th><td>{all}</td><td>{without}</td><td class=\"bar\">\
                 <i style=\"width:{share:.1}%\"></i></td></tr>"
            );
            low = high;
        }
        let sizes = &config.model.anchors.sizes;
        let now = self.unmatched();
        let advice = match self.proposed(config) {
            Some((proposed, left)) => {
                format!("<code>model.anchors.sizes = {proposed:?}</code> would leave only {left}.")
            }
            None => "None of the other sizes tried leaves fewer unmatched.".to_string(),
        };
        let fate = match config.model.rpn.low_quality_matches {
            true => "only learnt from its best anchor",
            false => "not learnt by the RPN",
        };
        format!(
            "<p>Sides of objects (square roots of areas) in network pixels, at <code>input.min_size\
             </code>. An object is unmatched if its best anchor has an IoU below {} (<code>\
             model.rpn.fg_iou</code>): it is {fate}. With <code>model.anchors.sizes = {sizes:?}\
             </code>, {now} of {} objects are unmatched. {advice}</p>\n\
             <table class=\"errors\"><thead><tr><th>side</th><th>objects</th>\
             <th>without a match</th><th></th></tr></thead><tbody>{rows}</tbody></table>\n",
            config.model.rpn.fg_iou,
            self.objects.len()
        )
    }

    /// Anchor sizes that leave fewer objects unmatched, and the number of unmatched objects. Tries
    /// the config's sizes times a factor, and quantiles of the objects' sides.
    fn proposed(&self, config: &Config) -> Option<(Vec<f32>, usize)> {
        let sizes = &config.model.anchors.sizes;
        let scaled = FACTORS.map(|factor| sizes.iter().map(|size| size * factor).collect());
        let unmatched = |sizes: Vec<f32>| {
            let anchors = Anchors::new(config, &sizes);
            let is_left = |(object, _): &&(Object, f64)| anchors.best(object) < self.fg_iou;
            (self.objects.iter().filter(is_left).count(), sizes)
        };
        let tried = scaled.into_iter().chain([self.quantiles(sizes.len())]).map(unmatched);
        let (left, sizes) = tried.min_by_key(|(left, _)| *left)?;
        (left < self.unmatched()).then_some((sizes, left))
    }

    /// One size per level: quantiles of the objects' sides, rounded to ascending multiples of 4.
    fn quantiles(&self, levels: usize) -> Vec<f32> {
        let mut sides: Vec<f64> = self.objects.iter().map(|(object, _)| object.side()).collect();
        sides.sort_by(f64::total_cmp);
        let mut least = 4.0;
        (0..levels)
            .map(|level| {
                let at = (2 * level + 1) * sides.len() / (2 * levels);
                let side = sides.get(at).copied().unwrap_or(0.0);
                let size = ((side / 4.0).round() * 4.0).max(least);
                least = size + 4.0;
                size as f32
            })
            .collect()
    }
}

/// All anchors of a cell: stride of the level, and width and height.
struct Anchors(Vec<(f64, [f64; 2])>);

impl Anchors {
    fn new(config: &Config, sizes: &[f32]) -> Self {
        let levels = config.level_strides().into_iter().zip(level_cells(config, sizes));
        let of_level = |(stride, cells): (usize, Vec<Box4>)| {
            cells.into_iter().map(move |[x1, y1, x2, y2]| {
                (stride as f64, [f64::from(x2 - x1), f64::from(y2 - y1)])
            })
        };
        Self(levels.flat_map(of_level).collect())
    }

    /// The largest IoU of a box with an anchor; only the anchors of the nearest cell need to be
    /// tried.
    fn best(&self, Object { sides, middle }: &Object) -> f64 {
        let iou = |(stride, anchor): &(f64, [f64; 2])| {
            let overlap = |i: usize| {
                let off = (middle[i] - (middle[i] / stride).round() * stride).abs();
                let (half, other) = (sides[i] / 2.0, anchor[i] / 2.0);
                (half.min(off + other) - (-half).max(off - other)).max(0.0)
            };
            let both = overlap(0) * overlap(1);
            both / (sides[0] * sides[1] + anchor[0] * anchor[1] - both)
        };
        self.0.iter().map(iou).fold(0.0, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_use_ratios_of_their_level() {
        let set = ["ratios=[1, 1, 4]", "ratios_by_level=true"];
        let config = Config::load("micro", &set.map(|text| format!("model.anchors.{text}")));
        let anchors = Anchors::new(&config.unwrap(), &[8.0, 16.0, 32.0]).0;
        let sides: Vec<[f64; 2]> = anchors.iter().map(|(_, sides)| *sides).collect();
        assert_eq!(sides, [[8.0, 8.0], [16.0, 16.0], [16.0, 64.0]]);
    }

    #[test]
    fn iou_with_best_anchor_matches_hand_computed_value() {
        let anchors = Anchors(vec![(8.0, [32.0, 32.0]), (16.0, [64.0, 64.0])]);
        let best = |sides, middle| anchors.best(&Object { sides, middle });
        assert_eq!(best([32.0, 32.0], [40.0, 80.0]), 1.0);
        // The object is two pixels from the nearest cell, so 30 of 32 columns overlap.
        let shared = 30.0 * 32.0;
        let iou = shared / (2.0 * 1024.0 - shared);
        assert!((best([32.0, 32.0], [42.0, 80.0]) - iou).abs() < 1e-12);
        assert_eq!(best([8.0, 8.0], [0.0, 0.0]), 64.0 / 1024.0);
    }

    #[test]
    fn size_quantiles_are_ascending() {
        let of = |side| (Object { sides: [side; 2], middle: [0.0; 2] }, 0.0);
        let objects = [10.0, 10.0, 10.0, 40.0].map(of).into();
        let fit = |objects| Fit { objects, fg_iou: 0.7 };
        assert_eq!(fit(objects).quantiles(3), [12.0, 16.0, 40.0]);
        assert_eq!(fit(vec![]).quantiles(2), [4.0, 8.0]);
    }
}
