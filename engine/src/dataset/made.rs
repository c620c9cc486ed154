//! The stores of a split: opened, built from COCO files, or generated; rebuilt if one is damaged or
//! its sources have changed.

use std::path::Path;

use crate::config::{Config, EmptyImages, Set, Synthetic};
use crate::model::roi_heads::columns;
use dali::prep::{PrepOptions, PrepReport};
use dali::{DaliError, Store, prep, synthetic};

use super::Split;
use crate::error::EngineError;
use crate::progress::Progress;
use crate::remote::{is_remote, local, open_store};

/// Opens a store.
type Open = fn(&Path) -> Result<Store, DaliError>;

/// Opens the stores of a split with `open`, building one first if the config names none.
pub(super) fn open(
    config: &Config,
    split: Split,
    progress: &Progress,
    open: Open,
) -> Result<Vec<Store>, EngineError> {
    let data = &config.data;
    let source = if data.val_fraction > 0.0 { Split::Train } else { split };
    let (word, mut sets, (store, images, annotations)) = match source {
        Split::Train => {
            let one = (&data.train_store, &data.train_images, &data.train_annotations);
            ("train", data.train.clone(), one)
        }
        Split::Val => {
            ("val", data.val.clone(), (&data.val_store, &data.val_images, &data.val_annotations))
        }
    };
    let is_list = !sets.is_empty();
    if sets.is_empty() && (store.is_some() || annotations.is_some()) {
        let (store, images, annotations) = (store.clone(), images.clone(), annotations.clone());
        sets.push(Set { store, images, annotations });
    }
    let none = || {
        EngineError::Usage(format!(
            "the config names no {word} data: set data.{word}_images and data.{word}_annotations \
             (COCO files), data.{word}_store (from `onegraph prep`), or data.synthetic"
        ))
    };
    if sets.is_empty() {
        let settings = data.synthetic.as_ref().ok_or_else(none)?;
        return Ok(vec![drawn(settings, source, progress, open)?]);
    }
    let store = |(i, set): (usize, &Set)| match (&set.store, &set.images, &set.annotations) {
        (Some(dir), ..) if !is_remote(dir.as_ref()) && !Path::new(dir).exists() => {
            let key = match is_list {
                true => format!("data.{word}[{i}].store"),
                false => format!("data.{word}_store"),
            };
            Err(EngineError::Usage(format!(
                "{key}: there is no store {dir}; `onegraph prep --out {dir}` makes one"
            )))
        }
        (Some(dir), ..) => open_store(dir.as_ref(), open),
        (None, Some(images), Some(annotations)) => {
            let (images, annotations) = (local(images.as_ref())?, local(annotations.as_ref())?);
            prepared(config, split, &images, &annotations, progress)
        }
        _ => Err(none()),
    };
    let stores: Vec<Store> = sets.iter().enumerate().map(store).collect::<Result<_, _>>()?;
    // Held-out images belong to sets that training reads.
    for store in stores.iter().filter(|_| source == split) {
        for doubt in &store.header().doubts {
            progress.say(&format!("warning: {}: {doubt}", store.path().display()));
        }
    }
    Ok(stores)
}

/// The store at `dir`, which a run built, or the reason to rebuild it; `None` if there is none.
fn find(dir: &Path, open: Open) -> Result<Option<Result<Store, String>>, EngineError> {
    if !dir.is_dir() {
        return Ok(None);
    }
    match open(dir) {
        Ok(store) => Ok(Some(Ok(store))),
        Err(DaliError::Store { file, fault, .. }) => {
            let dir = dir.display();
            Ok(Some(Err(format!("store {dir}: {file}: {fault}; rebuilding it"))))
        }
        Err(error) => Err(error.into()),
    }
}

fn drawn(
    settings: &Synthetic,
    split: Split,
    progress: &Progress,
    open: Open,
) -> Result<Store, EngineError> {
    let (name, count, seed) = match split {
        Split::Train => ("train", settings.train_images, settings.seed),
        // A different seed: no image appears in both splits.
        Split::Val => ("val", settings.val_images, settings.seed ^ 0x5EED_0FFA_1D00_0000),
    };
    let size = settings.image_size;
    let name = format!("{name}-{count}x{size}-seed{}", settings.seed);
    let dir = &Path::new(&settings.dir).join(name);
    let store = dir.join("store");
    match find(&store, open)? {
        Some(Ok(store)) if store.header().keypoints.is_some() => return Ok(store),
        Some(Ok(_)) => progress.say(&format!(
            "store {}: an older program drew it, without keypoints; regenerating it",
            store.display()
        )),
        Some(Err(why)) => progress.say(&why),
        None => {}
    }
    let side = u32::try_from(size).map_err(|_| {
        EngineError::Usage(format!("data.synthetic.image_size is {size}; it must be at most 4096"))
    })?;
    let (height, width, out) = (side, side, dir.to_path_buf());
    // One of our sets without its store is generated again; anything else there is left unchanged.
    let overwrite = dir.is_dir();
    let options = synthetic::SyntheticOptions { count, seed, height, width, out, overwrite };
    let title = format!("generating {count} images into {}", dir.display());
    made(progress.during(&title, |report| synthetic::generate(&options, report)))?;
    Ok(open(&store)?)
}

/// The report of data just built; `None` if another process was faster: stores of the same name
/// have the same contents.
fn made(result: Result<PrepReport, DaliError>) -> Result<Option<PrepReport>, DaliError> {
    match result {
        Err(DaliError::AlreadyMade { path } | DaliError::Exists { path }) => {
            tracing::info!(path = %path.display(), "taking what exists");
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// The store of COCO files, built once, next to the run's data: its name encodes what it depends
/// on.
fn prepared(
    config: &Config,
    split: Split,
    images: &Path,
    annotations: &Path,
    progress: &Progress,
) -> Result<Store, EngineError> {
    let data = &config.data;
    let masks = match config.model.kind.has_masks() {
        true => prep::Masks::Required,
        false => prep::Masks::Optional,
    };
    let empty = match split {
        Split::Train if data.val_fraction == 0.0 => data.empty,
        // A store of both splits has all images that validation keeps.
        Split::Train | Split::Val => EmptyImages::Keep,
    };
    let pixels = data.pixels;
    let max_image_pixels = data.max_image_pixels;
    let paths = PrepOptions::new(images, annotations, "");
    let columns = columns();
    let mut options = PrepOptions { pixels, empty, masks, max_image_pixels, columns, ..paths };
    // An edited annotation file counts as a new one: its old store would be silently wrong.
    let key = prep::source_key(&options)?;
    let stem = annotations.file_stem().unwrap_or_default().to_string_lossy();
    let out = Path::new("runs/data").join(format!("{stem}-{}", &key[..8]));
    let why = match find(&out, Store::open)? {
        Some(Ok(store)) => match outdated(&store, images, &key) {
            None => return Ok(store),
            why => why,
        },
        Some(Err(why)) => Some(why),
        None => None,
    };
    if let Some(why) = why {
        progress.say(&why);
        options.overwrite = true;
    }
    options.out = out.clone();
    let title = format!("making the store {}", out.display());
    if let Some(report) = made(progress.during(&title, |p| prep::run(&options, p)))? {
        progress.say(&report.to_string());
    }
    Ok(Store::open(&out)?)
}

/// Why a valid store does not match the files; `None` if it does.
fn outdated(store: &Store, images: &Path, key: &str) -> Option<String> {
    let what = match store.changed_source(images) {
        Some(change) => format!("{change} since the store was made"),
        // The name has a part of the key.
        None if store.header().source.as_deref() != Some(key) => {
            "it was made from other annotations".to_string()
        }
        None => return None,
    };
    Some(format!("{}: {what}; rebuilding it", store.path().display()))
}
