//! `onegraph predict`: COCO results and pictures for your own images.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;
use configs::Config;
use dali::order::PaddedShape;
use image::RgbImage;

use super::device::DeviceArgs;
use super::model::ModelArgs;
use crate::EngineError;
use crate::classes::describe_classes;
use crate::dataset::network_size;
use crate::draw::picture;
use crate::evaluate::{Detector, Image, ImageDetections, TrainedModel};
use crate::model::classes_of;
use crate::progress::Progress;
use crate::run_dir::make_dir;
use crate::runtime::{Backend, ModelState};

#[derive(Debug, Args)]
pub(super) struct PredictArgs {
    #[command(flatten)]
    model: ModelArgs,
    /// Override a value of the model's config, such as --set model.detections.per_image=20.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Output directory for pictures and predictions.json. An image's id is the number in its file
    /// name, as in COCO; if a name is not a number, or two are equal, ids count from 0.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Minimum score of drawn detections; predictions.json contains all.
    #[arg(long, default_value_t = 0.5)]
    min_score: f32,
    /// JPEG and PNG files, or directories of them.
    #[arg(required = true)]
    images: Vec<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
}

pub(super) fn run(args: &PredictArgs) -> Result<(), EngineError> {
    let progress = Progress::loud();
    let files = collect(&args.images)?;
    let image_ids = image_ids(&files);
    make_dir(&args.out)?;
    let backend = args.device.open()?;
    let model = args.model.open(&args.set, &backend, &progress)?;
    let categories = model.classes();
    progress.say(&describe_classes(&categories));
    let TrainedModel { config, params, mut state, .. } = model;
    let classes = classes_of(&params);
    let names: Vec<String> = categories.iter().map(|(name, _)| name.clone()).collect();
    let ids: Vec<u64> = categories.iter().map(|(_, id)| *id).collect();
    let mut results = Vec::new();
    let mut planned = None;
    let bar = progress.bar("predicting", files.len() as u64);
    for (i, file) in files.iter().enumerate() {
        let image = read(file, image_ids[i], config.data.max_image_pixels)?;
        let found = detect(&config, &image, classes, &backend, &mut state, &mut planned)?;
        results.extend(found.to_coco(&ids));
        let stem = file.file_stem().map(|s| s.to_string_lossy().into_owned());
        let name = format!("{:04}_{}.png", i, stem.unwrap_or_default());
        let drawn = picture(&image, &found, &names, args.min_score);
        save_picture(&drawn, &args.out.join(name))?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let path = args.out.join("predictions.json");
    dali::score::write_results_json(&path, &results)?;
    let (objects, images) = (results.len(), files.len());
    super::print(&format!("{objects} objects on {images} images: {}\n", path.display()))
}

/// Detects on one image. `planned` caches the program of the last padded shape: images from one
/// camera come in a row, and planning a large model for each would take too long.
fn detect(
    config: &Config,
    image: &Image,
    classes: usize,
    backend: &Backend,
    state: &mut ModelState,
    planned: &mut Option<(PaddedShape, Detector)>,
) -> Result<ImageDetections, EngineError> {
    let (height, width) = network_size(config, image.height as u32, image.width as u32);
    let pad = |side: u32| (side as usize).next_multiple_of(config.input.size_divisor);
    let shape = PaddedShape { height: pad(height), width: pad(width) };
    let mut detector = match planned.take() {
        Some((last, detector)) if last == shape => detector,
        _ => Detector::new(config, &[shape], classes, (1, image.rgb.len()), backend, state)?,
    };
    let mut found = detector.run(0, std::slice::from_ref(image), state)?;
    *planned = Some((shape, detector));
    Ok(found.swap_remove(0))
}

/// Ids of the images in the results: those in COCO's file names, so that `eval --gt` knows them.
fn image_ids(files: &[PathBuf]) -> Vec<u64> {
    let id = |file: &PathBuf| file.file_stem()?.to_str()?.parse().ok();
    let named: Option<Vec<u64>> = files.iter().map(id).collect();
    let distinct = |ids: &Vec<u64>| ids.iter().collect::<BTreeSet<_>>().len() == ids.len();
    named.filter(distinct).unwrap_or_else(|| (0..files.len() as u64).collect())
}

fn read(file: &Path, id: u64, max_pixels: usize) -> Result<Image, EngineError> {
    let bytes = std::fs::read(file).map_err(crate::run_dir::io(file))?;
    let fault = |fault| EngineError::Image { path: file.to_path_buf(), fault };
    let info = dali::decode::probe_within(&bytes, max_pixels).map_err(fault)?;
    let (height, width) = (info.height as usize, info.width as usize);
    let mut rgb = vec![0; 3 * height * width];
    dali::decode::decode_rgb_into(&bytes, &mut rgb).map_err(fault)?;
    Ok(Image { id, height, width, rgb })
}

/// Image files named or inside the directories named, sorted.
fn collect(paths: &[PathBuf]) -> Result<Vec<PathBuf>, EngineError> {
    let is_image = |p: &Path| {
        let extension = p.extension().map(|e| e.to_string_lossy().to_lowercase());
        matches!(extension.as_deref(), Some("jpg" | "jpeg" | "png"))
    };
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries = std::fs::read_dir(path).map_err(crate::run_dir::io(path))?;
            let inside = entries.filter_map(|e| Some(e.ok()?.path())).filter(|p| is_image(p));
            let mut inside: Vec<_> = inside.collect();
            inside.sort();
            files.extend(inside);
        } else if path.is_file() {
            files.push(path.clone());
        } else {
            let message = format!("{} does not exist", path.display());
            return Err(EngineError::Usage(message));
        }
    }
    if files.is_empty() {
        return Err(EngineError::Usage("there is no JPEG or PNG file among the images".into()));
    }
    Ok(files)
}

/// Writes a picture as PNG, atomically.
pub(super) fn save_picture(picture: &RgbImage, path: &Path) -> Result<(), EngineError> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).map_err(|e| EngineError::Io {
        path: path.to_path_buf(),
        source: std::io::Error::other(e),
    })?;
    crate::run_dir::write_whole(path, bytes.get_ref())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::image_ids;

    #[test]
    fn image_ids_are_the_numbers_of_coco_names_or_positions() {
        let ids = |names: &[&str]| image_ids(&names.iter().map(PathBuf::from).collect::<Vec<_>>());
        assert_eq!(ids(&["a/000000000139.jpg", "a/000000000285.jpg"]), [139, 285]);
        assert_eq!(ids(&["a/000000000139.jpg", "street.jpg"]), [0, 1], "a name is no number");
        assert_eq!(ids(&["a/7.jpg", "b/7.png"]), [0, 1], "an id would come twice");
    }
}
