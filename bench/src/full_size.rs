//! Data for full-size steps without COCO: drawn images that fill one padded shape.

use std::path::Path;
use std::str::FromStr;

use configs::{Augment, Config, Data};
use dali::order::PaddedShape;
use dali::store::Store;
use dali::synthetic::{KEYPOINT_NAMES, SyntheticOptions, generate};
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;

/// Where the images are kept.
const FOLDER: &str = "runs/data/bench";
/// The long side of a COCO image, which determines the cost of decoding and copying.
const LONG_SIDE: usize = 640;
/// Images, or the next number of whole batches: no batch is drawn short.
const IMAGES: usize = 48;
/// COCO's number of classes, for a config that leaves it to the data.
const CLASSES: usize = 80;

/// `HEIGHTxWIDTH` on the command line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Padded(pub(crate) PaddedShape);

impl FromStr for Padded {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not HEIGHTxWIDTH, such as 800x1344");
        let (height, width) = text.split_once('x').ok_or_else(wrong)?;
        let side = |text: &str| text.parse().ok().filter(|n| *n > 0).ok_or_else(wrong);
        Ok(Self(PaddedShape { height: side(height)?, width: side(width)? }))
    }
}

/// Draws the images on first use, and opens them, all in one shape. They are as large as COCO's,
/// and the config's own rule resizes them; if its rule leads to another shape, its sizes are set to
/// those of the shape. A keypoint head gets as many keypoints as they have.
pub(crate) fn open(
    config: &mut Config,
    shape: PaddedShape,
    progress: &Progress,
) -> anyhow::Result<DataSet> {
    let divisor = config.input.size_divisor;
    anyhow::ensure!(
        shape.height.is_multiple_of(divisor) && shape.width.is_multiple_of(divisor),
        "--padded {shape}: both sides must be multiples of input.size_divisor, which is {divisor}"
    );
    let long = shape.height.max(shape.width);
    let source = |side: usize| (side * LONG_SIDE).div_ceil(long) as u32;
    let (height, width) = (source(shape.height), source(shape.width));
    let count = IMAGES.next_multiple_of(config.train.batch_size);
    let out = Path::new(FOLDER).join(format!("{height}x{width}-{count}"));
    let drawn = Store::open_index(&out.join("store"));
    // Older programs drew no keypoints.
    if !drawn.is_ok_and(|store| store.header().keypoints.is_some()) {
        let (seed, out) = (0, out.clone());
        let options = SyntheticOptions { count, seed, height, width, out, overwrite: true };
        let title = format!("drawing {count} images of {height}x{width}");
        progress.during(&title, |report| generate(&options, report))?;
    }
    let store = out.join("store").display().to_string();
    config.data = Data { train_store: Some(store), ..Data::default() };
    if config.model.num_classes == 0 {
        config.model.num_classes = CLASSES;
    }
    config.model.keypoint_head.keypoints = KEYPOINT_NAMES.len();
    // One shape: no sizes are drawn.
    config.input.augment = Augment::default();
    let mut data = DataSet::open(config, Split::Train, progress)?;
    if data.shapes != [shape] {
        config.input.min_size = shape.height.min(shape.width);
        config.input.max_size = long;
        data = DataSet::open(config, Split::Train, progress)?;
    }
    anyhow::ensure!(
        data.shapes == [shape],
        "--padded {shape}: the config's rule pads these images to {:?}",
        data.shapes
    );
    Ok(data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_two_numbers() {
        let shape = |text: &str| text.parse::<Padded>().map(|p| (p.0.height, p.0.width));
        assert_eq!(shape("800x1344"), Ok((800, 1344)));
        for wrong in ["800", "800x", "x800", "0x800", "800x1344x3", "-1x800"] {
            assert!(shape(wrong).is_err_and(|e| e.contains(wrong)), "{wrong}");
        }
    }
}
