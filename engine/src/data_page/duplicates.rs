//! Images that occur more than once, in the training data or in both splits.

use std::collections::HashMap;

use super::NAMED;
use crate::dataset::DataSet;
use crate::error::EngineError;
use crate::picture::escape;
use crate::progress::counted;

/// An image: the index of its data set, and its index in that set's store.
type Place = (usize, usize);

/// Pairs of images with the same pixels, the first occurrence first.
pub(super) fn find(sets: &[(&str, DataSet)]) -> Result<Vec<[Place; 2]>, EngineError> {
    // Pixels are compared too: in a large set, different images may have equal checksums by chance.
    let mut seen: HashMap<(u32, [u32; 2]), Vec<Place>> = HashMap::new();
    let mut pairs = Vec::new();
    let [mut own, mut other] = [vec![], vec![]];
    for (set, (_, data)) in sets.iter().enumerate() {
        for &image in &data.images {
            let record = data.store.image(image);
            let key = (data.store.pixel_checksum(image), [record.height, record.width]);
            let places = seen.entry(key).or_default();
            for &(first_set, first) in places.iter() {
                data.store.decode_rgb(image, &mut own)?;
                sets[first_set].1.store.decode_rgb(first, &mut other)?;
                if own == other {
                    pairs.push([(first_set, first), (set, image)]);
                    break;
                }
            }
            places.push((set, image));
        }
    }
    Ok(pairs)
}

/// The page's section on duplicates, as HTML.
pub(super) fn section(pairs: &[[Place; 2]], sets: &[(&str, DataSet)]) -> String {
    let leaks = pairs.iter().filter(|[first, again]| first.0 != again.0).count();
    let leak = match leaks {
        0 => String::new(),
        _ => format!(
            " {leaks} of these pairs are in both training and validation data, so scores are too \
             high."
        ),
    };
    let count = counted(pairs.len(), "image");
    let mut html =
        format!("<h2>Duplicates</h2>\n<p>Copies of earlier images: {count}.{leak}</p>\n");
    let name = |&(set, image): &Place| {
        format!("{} ({})", escape(sets[set].1.store.file_name(image)), sets[set].0)
    };
    let line = |[first, again]: &[Place; 2]| format!("{} = {}", name(first), name(again));
    let mut lines: Vec<String> = pairs.iter().take(NAMED).map(line).collect();
    if pairs.len() > NAMED {
        lines.push("..".into());
    }
    if !lines.is_empty() {
        html += &format!("<pre>{}</pre>\n", lines.join("\n"));
    }
    html
}
