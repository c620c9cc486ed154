//! Data for training steps at full image size when COCO is not available: synthetic images that
//! fill one padded shape.

use std::path::{Path, PathBuf};

use dali::order::PaddedShape;
use dali::prep::{self, PrepOptions};
use dali::store::Store;
use dali::synthetic::{KEYPOINT_NAMES, SyntheticOptions, generate};
use engine::config::{Augment, Config, Data};
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;
use serde_json::{Value, json};

/// Folder for the images.
const FOLDER: &str = "runs/data/bench";
/// Long side of the generated images, as in COCO: it determines the cost of decoding and copying.
const LONG_SIDE: usize = 640;
/// Minimum number of images, rounded up to full batches.
const IMAGES: usize = 48;
/// COCO's number of classes, for configs that take the number from the data.
const CLASSES: usize = 80;

/// Generates the images on first use, and opens them; all have the padded shape `shape`. They are
/// as large as COCO images and are resized by the config's own rule; if this gives a different
/// shape, the config's input sizes are replaced so that it gives `shape`. The number of keypoints
/// of the keypoint head is set to that of the data. `objects` is the number of objects per image,
/// in a grid.
pub(crate) fn open(
    config: &mut Config,
    shape: PaddedShape,
    objects: Option<usize>,
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
    // Stores of older versions have no keypoints.
    if !drawn.is_ok_and(|store| store.header().keypoints.is_some()) {
        let (seed, out) = (0, out.clone());
        let options = SyntheticOptions { count, seed, height, width, out, overwrite: true };
        let title = format!("generating {count} images of {height}x{width}");
        progress.during(&title, |report| generate(&options, report))?;
    }
    let store = match objects {
        Some(objects) => with_objects(&out, objects)?,
        None => out.join("store"),
    };
    let store = store.display().to_string();
    config.data = Data { train_store: Some(store), ..Data::default() };
    if config.model.num_classes == 0 {
        config.model.num_classes = CLASSES;
    }
    config.model.keypoint_head.keypoints = KEYPOINT_NAMES.len();
    // A single shape: no random sizes.
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

/// A store with the images of `set` and `objects` objects per image: rectangles in a grid, so that
/// each object's box becomes exactly one positive RoI.
fn with_objects(set: &Path, objects: usize) -> anyhow::Result<PathBuf> {
    let folder = set.with_file_name(format!(
        "{}-{objects}-objects",
        set.file_name().unwrap_or_default().to_string_lossy()
    ));
    let store = folder.join("store");
    if Store::open_index(&store).is_ok() {
        return Ok(store);
    }
    let text = dali::file::read(&set.join("annotations.json"))?;
    let mut coco: Value = serde_json::from_slice(&text)?;
    let images = coco["images"].as_array().cloned().unwrap_or_default();
    let classes = coco["categories"].as_array().map_or(1, Vec::len);
    let all = images.iter().flat_map(|image| (0..objects).map(move |at| (image, at)));
    let annotations = all.enumerate().map(|(idx, (image, at))| {
        let side = |key: &str| image[key].as_f64().unwrap_or_default();
        let [x, y, w, h] = grid_box([side("width"), side("height")], objects, at);
        let corners = [[x, y], [x + w, y], [x + w, y + h], [x, y + h], [x + w / 2.0, y + h / 2.0]];
        json!({
            "id": idx + 1, "image_id": image["id"], "category_id": 1 + at % classes, "iscrowd": 0,
            "bbox": [x, y, w, h], "area": w * h, "segmentation": [corners[..4].concat()],
            "num_keypoints": corners.len(),
            "keypoints": corners.map(|[x, y]| [x, y, 2.0]).concat(),
        })
    });
    coco["annotations"] = annotations.collect();
    let file = folder.join("annotations.json");
    engine::run_dir::write_whole(&file, coco.to_string().as_bytes())?;
    let mut options = PrepOptions::new(set.join("images"), file, &store);
    options.overwrite = true;
    prep::run(&options, &mut |_| {})?;
    Ok(store)
}

/// Box `at` of `objects` in an image (`x, y, width, height` in pixels): centred in its grid cell,
/// with three quarters of the cell's width and height.
fn grid_box([width, height]: [f64; 2], objects: usize, at: usize) -> [f64; 4] {
    let columns = (objects as f64 * width / height).sqrt().ceil().max(1.0);
    let rows = (objects as f64 / columns).ceil();
    let (w, h) = (width / columns, height / rows);
    let (row, column) = ((at as f64 / columns).floor(), at as f64 % columns);
    [(column + 0.125) * w, (row + 0.125) * h, 0.75 * w, 0.75 * h]
}
