//! Data for full-size steps without COCO: drawn images that fill one padded shape.

use std::path::Path;

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
