//! Counts of classes, sizes and objects, and how well anchors fit.

use std::collections::BTreeMap;

use crate::config::Config;
use kernels::boxes::Box4;

use super::bars;
use crate::dataset::DataSet;
use crate::model::level_cells;

/// Upper bounds of the object's sides and counts that tables tell apart.
const SIDES: [f64; 8] = [8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, f64::INFINITY];
const PER_IMAGE: [usize; 9] = [0, 1, 2, 4, 8, 16, 32, 64, usize::MAX];
/// Factors of the anchors' sizes that are tried.
const FACTORS: [f32; 7] = [0.25, 0.5, 0.625, 0.75, 1.25, 1.5, 2.0];
/// Sizes of images on the page.
const SHOWN_SIZES: usize = 8;

/// The contents of a data set.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// By class: name, and objects.
    classes: Vec<(String, usize)>,
    /// By image: objects that are no crowds.
    per_image: Vec<usize>,
    /// By size of image, width and height: images.
    sizes: BTreeMap<(u32, u32), usize>,
    objects: Vec<Object>,
    /// IoU from which an anchor matches an object (`model.rpn.fg_iou`).
    fg_iou: f64,
}

/// An object in the network, at the size of an evaluation.
#[derive(Debug)]
struct Object {
    /// Width and height.
    sides: [f64; 2],
    middle: [f64; 2],
    /// IoU of its best anchor.
    iou: f64,
}

impl Object {
    fn side(&self) -> f64 {
        (self.sides[0] * self.sides[1]).sqrt()
    }
}

impl Counts {
    pub(super) fn of(config: &Config, data: &DataSet) -> Self {
        let anchors = Anchors::new(config, &config.model.anchors.sizes);
        let names = data.store.contents().categories.iter().map(|c| (c.name.clone(), 0));
        let fg_iou = f64::from(config.model.rpn.fg_iou);
        let mut counts = Self { classes: names.collect(), fg_iou, ..Self::default() };
        for (&image, &(height, width)) in data.images.iter().zip(&data.sizes) {
            let record = data.store.image(image);
            *counts.sizes.entry((record.width, record.height)).or_default() += 1;
            let scale = [
                f64::from(width) / f64::from(record.width),
                f64::from(height) / f64::from(record.height),
            ];
            let objects = record.objects.map(|object| data.store.object(object));
            let objects: Vec<_> = objects.filter(|object| !object.crowd).collect();
            counts.per_image.push(objects.len());
            for object in objects {
                counts.classes[object.label as usize - 1].1 += 1;
                let [x, y, w, h] = object.bbox_xywh.map(f64::from);
                let sides = [w * scale[0], h * scale[1]];
                let middle = [(x + w / 2.0) * scale[0], (y + h / 2.0) * scale[1]];
                let iou = anchors.best(sides, middle);
                counts.objects.push(Object { sides, middle, iou });
            }
        }
        counts
    }

    pub(super) fn objects(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn classes_in_use(&self) -> usize {
        self.classes.iter().filter(|(_, count)| *count > 0).count()
    }

    pub(super) fn unmatched(&self) -> usize {
        self.objects.iter().filter(|object| object.iou < self.fg_iou).count()
    }

    /// The sections of classes, images, objects and anchors.
    pub(super) fn sections(&self, config: &Config) -> String {
        let mut classes = self.classes.clone();
        classes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        let mut sizes: Vec<_> = self.sizes.iter().collect();
        sizes.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let named = |((width, height), count): &(&(u32, u32), &usize)| {
            (format!("{width}x{height}"), **count)
        };
        let shown: Vec<_> = sizes.iter().take(SHOWN_SIZES).map(named).collect();
        let others = sizes.len() - shown.len();
        let per_image = binned(&PER_IMAGE, self.per_image.iter().copied());
        let per_image: Vec<_> = per_image
            .into_iter()
            .map(|(low, high, count)| match (low, high) {
                (low, high) if low == high => (low.to_string(), count),
                (low, usize::MAX) => (format!("{low} and more"), count),
                (low, high) => (format!("{low} to {high}"), count),
            })
            .collect();
        format!(
            "<h2>Classes</h2>\n<div class=\"tall\">{}</div><h2>Images</h2>\n\
             <div class=\"facts-and-scores\"><div><h3>Objects of an image</h3>\n{}</div>\
             <div><h3>Width by height, {} sizes{}</h3>\n{}</div></div>\n\
             <h2>Objects and anchors</h2>\n{}",
            bars("class", "objects", &classes),
            bars("objects", "images", &per_image),
            sizes.len(),
            if others > 0 { format!(", the most common {SHOWN_SIZES}") } else { String::new() },
            bars("size", "images", &shown),
            self.anchor_section(config)
        )
    }

    fn anchor_section(&self, config: &Config) -> String {
        let (mut rows, mut low) = (String::new(), 0.0);
        for high in SIDES {
            let within = |object: &&Object| (low..high).contains(&object.side());
            let (all, without) = self
                .objects
                .iter()
                .filter(within)
                .fold((0, 0), |(n, m), o| (n + 1, m + usize::from(o.iou < self.fg_iou)));
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
                format!("<code>model.anchors.sizes = {proposed:?}</code> would leave {left}.")
            }
            None => "No other sizes that were tried leave fewer.".to_string(),
        };
        let fate = match config.model.rpn.low_quality_matches {
            true => "learnt from that one alone",
            false => "not learnt by the RPN",
        };
        format!(
            "<p>Sides of objects (roots of areas) in pixels of the network, at <code>input.min_size\
             </code>. No anchor matches an object whose best one has an IoU below {} (<code>\
             model.rpn.fg_iou</code>): it is {fate}. With <code>model.anchors.sizes = {sizes:?}\
             </code> that is so for {now} of {}. {advice}</p>\n<table class=\"errors\"><thead><tr>\
             <th>side</th><th>objects</th><th>without a match</th><th></th></tr></thead>\
             <tbody>{rows}</tbody></table>\n",
            config.model.rpn.fg_iou,
            self.objects.len()
        )
    }

    /// Sizes with which fewer objects have no match, and how many are left: those of the config
    /// by a factor, or quantiles of the objects' sides.
    fn proposed(&self, config: &Config) -> Option<(Vec<f32>, usize)> {
        let sizes = &config.model.anchors.sizes;
        let scaled = FACTORS.map(|factor| sizes.iter().map(|size| size * factor).collect());
        let unmatched = |sizes: Vec<f32>| {
            let anchors = Anchors::new(config, &sizes);
            let is_left = |o: &&Object| anchors.best(o.sides, o.middle) < self.fg_iou;
            (self.objects.iter().filter(is_left).count(), sizes)
        };
        let tried = scaled.into_iter().chain([self.quantiles(sizes.len())]).map(unmatched);
        let (left, sizes) = tried.min_by_key(|(left, _)| *left)?;
        (left < self.unmatched()).then_some((sizes, left))
    }

    /// A size for each level: quantiles of the objects' sides, multiples of 4, ascending.
    fn quantiles(&self, levels: usize) -> Vec<f32> {
        let mut sides: Vec<f64> = self.objects.iter().map(Object::side).collect();
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

/// How many values lie up to each bound, above the one before: low, high, count.
fn binned(
    bounds: &[usize],
    values: impl Iterator<Item = usize> + Clone,
) -> Vec<(usize, usize, usize)> {
    let mut low = 0;
    let mut bins = Vec::new();
    for &high in bounds {
        bins.push((low, high, values.clone().filter(|v| (low..=high).contains(v)).count()));
        low = high.saturating_add(1);
    }
    bins
}

/// The anchors of each level: stride, width and height.
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

    /// The greatest IoU of a box with an anchor: that of the nearest cell.
    fn best(&self, sides: [f64; 2], middle: [f64; 2]) -> f64 {
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
    fn anchors_have_the_ratios_of_their_level() {
        let set = ["ratios=[1, 1, 4]", "ratios_by_level=true"];
        let config = Config::load("micro", &set.map(|text| format!("model.anchors.{text}")));
        let anchors = Anchors::new(&config.unwrap(), &[8.0, 16.0, 32.0]).0;
        let sides: Vec<[f64; 2]> = anchors.iter().map(|(_, sides)| *sides).collect();
        assert_eq!(sides, [[8.0, 8.0], [16.0, 16.0], [16.0, 64.0]]);
    }

    #[test]
    fn the_best_anchor_by_hand() {
        let anchors = Anchors(vec![(8.0, [32.0, 32.0]), (16.0, [64.0, 64.0])]);
        assert_eq!(anchors.best([32.0, 32.0], [40.0, 80.0]), 1.0);
        // Two pixels beside the nearest cell: 30 of 32 columns are shared.
        let shared = 30.0 * 32.0;
        let iou = shared / (2.0 * 1024.0 - shared);
        assert!((anchors.best([32.0, 32.0], [42.0, 80.0]) - iou).abs() < 1e-12);
        assert_eq!(anchors.best([8.0, 8.0], [0.0, 0.0]), 64.0 / 1024.0);
    }

    #[test]
    fn many_unmatched_objects_are_the_most_prominent_tile() {
        for (unmatched, is_first) in [(0, false), (1, false), (2, true)] {
            let iou = |i| if i < unmatched { 0.0 } else { 1.0 };
            let object = |i| Object { sides: [9.0; 2], middle: [0.0; 2], iou: iou(i) };
            let objects = (0..10).map(object).collect();
            let html =
                super::super::tiles(&Counts { objects, fg_iou: 0.7, ..Counts::default() }, 3, 0);
            let first = html.split("<span>").nth(1).expect("a tile");
            assert_eq!(first.starts_with("objects that no anchor"), is_first, "{html}");
        }
    }

    #[test]
    fn quantiles_ascend() {
        let of = |side| Object { sides: [side; 2], middle: [0.0; 2], iou: 0.0 };
        let objects = [10.0, 10.0, 10.0, 40.0].map(of).into();
        let counts = Counts { objects, ..Counts::default() };
        assert_eq!(counts.quantiles(3), [12.0, 16.0, 40.0]);
        assert_eq!(Counts::default().quantiles(2), [4.0, 8.0]);
    }

    #[test]
    fn every_value_is_in_one_bin() {
        let bins = binned(&PER_IMAGE, [0, 3, 4, 5, 1000].into_iter());
        assert_eq!(bins.iter().map(|bin| bin.2).sum::<usize>(), 5);
        assert_eq!(bins[3], (3, 4, 2));
    }
}
