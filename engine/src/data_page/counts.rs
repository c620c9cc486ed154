//! Counts a data set's images by size, and its objects by class and per image.

use std::collections::BTreeMap;

use super::bars;
use crate::dataset::DataSet;
use crate::model::detectors::Object;

const PER_IMAGE: [usize; 9] = [0, 1, 2, 4, 8, 16, 32, 64, usize::MAX];
/// Maximum number of image sizes on the page.
const SHOWN_SIZES: usize = 8;

/// The counts of a data set.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Name and number of objects of each class.
    classes: Vec<(String, usize)>,
    /// Number of objects of each image, without crowds.
    per_image: Vec<usize>,
    /// Number of images of each size (width, height).
    sizes: BTreeMap<(u32, u32), usize>,
    objects: Vec<Object>,
}

impl Counts {
    pub(super) fn of(data: &DataSet) -> Self {
        let names = data.store.contents().categories.iter().map(|c| (c.name.clone(), 0));
        let mut counts = Self { classes: names.collect(), ..Self::default() };
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
                counts.objects.push(Object { sides, middle });
            }
        }
        counts
    }

    pub(super) fn objects(&self) -> &[Object] {
        &self.objects
    }

    pub(super) fn classes_in_use(&self) -> usize {
        self.classes.iter().filter(|(_, count)| *count > 0).count()
    }

    /// The page's sections on classes and images, as HTML.
    pub(super) fn sections(&self) -> String {
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
             <div><h3>Width by height, {} sizes{}</h3>\n{}</div></div>\n",
            bars("class", "objects", &classes),
            bars("objects", "images", &per_image),
            sizes.len(),
            if others > 0 { format!(", the most common {SHOWN_SIZES}") } else { String::new() },
            bars("size", "images", &shown),
        )
    }
}

/// Histogram of the values: low, high and count of each bin. `bounds` are the inclusive upper
/// limits of the bins.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_of_objects_without_anchor_is_first_tile_above_a_tenth() {
        for (unmatched, is_first) in [(0, false), (1, false), (2, true)] {
            let objects = vec![Object { sides: [9.0; 2], middle: [0.0; 2] }; 10];
            let hard = Some((unmatched, "objects that no anchor matches"));
            let counts = Counts { objects, ..Counts::default() };
            let html = super::super::tiles(&counts, 3, 0, hard);
            let first = html.split("<span>").nth(1).expect("a tile");
            assert_eq!(first.starts_with("objects that no anchor"), is_first, "{html}");
        }
    }

    #[test]
    fn histogram_counts_every_value_once() {
        let bins = binned(&PER_IMAGE, [0, 3, 4, 5, 1000].into_iter());
        assert_eq!(bins.iter().map(|bin| bin.2).sum::<usize>(), 5);
        assert_eq!(bins[3], (3, 4, 2));
    }
}
