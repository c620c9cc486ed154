//! The data of a run: its stores (opened, built from files, or drawn) and each image's network
//! size.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use configs::{Config, Data, EmptyImages, PixelEncoding, ResizeRounding};
use dali::DaliError;
use dali::order::{PaddedShape, Rounding, choose_shapes, resized_size};
use dali::prep::PrepReport;
use dali::store::Store;
use dali::{prep, synthetic};

use crate::classes::classes_of_data;
use crate::error::EngineError;
use crate::model::SlotShape;
use crate::progress::Progress;

/// A store and the view of it that training or evaluation uses.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// The mapped store.
    pub store: Arc<Store>,
    /// Store indices of the images in use.
    pub images: Vec<usize>,
    /// Network size (height, width) of each image in use.
    pub sizes: Vec<(u32, u32)>,
    /// Padded shapes that the images fall into.
    pub shapes: Vec<PaddedShape>,
    /// Names and COCO ids of the classes of a model that the config describes, from class 1.
    classes: Vec<(String, u64)>,
}

/// The split that a data set is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training images.
    Train,
    /// Validation images.
    Val,
}

impl DataSet {
    /// Opens a split; first draws it or builds its store if the config asks for that and it does
    /// not exist yet.
    ///
    /// # Errors
    /// A config without data, or any fault in the files.
    pub fn open(config: &Config, split: Split, progress: &Progress) -> Result<Self, EngineError> {
        let dir = match store_dir(&config.data, split)? {
            Location::Store(dir) => dir,
            Location::Synthetic { dir, images, seed, size } => {
                draw(&dir, images, seed, size, progress)?;
                dir.join("store")
            }
            Location::Files { images, annotations } => {
                prepare(config, split, &images, &annotations, progress)?
            }
        };
        let store = Arc::new(Store::open(&dir)?);
        check_masks(config, &store)?;
        if !store.has_checksums() {
            let path = store.path().display();
            progress.say(&format!(
                "store {path}: of version 1, so its pixels are unverified; run `onegraph prep` \
                 again"
            ));
        }
        let images = select(&config.data, split, &store, progress)?;
        let size = |i: &usize| {
            let record = store.image(*i);
            network_size(config, record.height, record.width)
        };
        let sizes: Vec<_> = images.iter().map(size).collect();
        let input = &config.input;
        let shapes = choose_shapes(&sizes, input.buckets_per_orientation, input.size_divisor);
        let classes = classes_of_data(&categories_of(&store), config.model.num_classes);
        Ok(Self { store, images, sizes, shapes, classes })
    }

    /// Foreground classes.
    pub fn num_classes(&self) -> usize {
        self.store.header().categories.len()
    }

    /// Foreground classes of a model trained on this data: the config's, or the data's.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the config gives fewer than the data has.
    pub fn classes_of_model(&self, config: &Config) -> Result<usize, EngineError> {
        let found = self.num_classes();
        let classes = config.model.classes_or(found);
        if classes >= found {
            return Ok(classes);
        }
        Err(EngineError::Usage(format!(
            "model.num_classes is {classes}, but the data has {found} classes: set it to 0 to \
             take the data's"
        )))
    }

    /// Names with their COCO ids of the classes of a model that the config describes, from class 1
    /// ([`classes_of_data`]).
    pub fn categories(&self) -> Vec<(String, u64)> {
        self.classes.clone()
    }

    /// The class of each label of the store; label 0, which is padding, is class 0.
    pub(crate) fn class_of_label(&self) -> Vec<i32> {
        let of = |id: u64| self.classes.iter().position(|(_, theirs)| *theirs == id);
        let stored = self.store.header().categories.iter();
        let classes = stored.map(|c| of(c.coco_id).map_or(0, |at| at as i32 + 1));
        std::iter::once(0).chain(classes).collect()
    }

    /// Capacities of a slot that can hold any image of the set.
    pub fn slot_shape(&self) -> SlotShape {
        let c = &self.store.header().capacities;
        SlotShape {
            pixels: 3 * c.pixels,
            objects: c.objects.max(1),
            parts: c.parts.max(1),
            coords: c.coords.max(1),
            runs: c.runs.max(1),
        }
    }
}

/// A model with masks needs one for every object.
fn check_masks(config: &Config, store: &Store) -> Result<(), EngineError> {
    let without = store.header().num_without_mask;
    if without == 0 || !config.model.kind.has_masks() {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{without} of {} objects in {} have a box alone, and mask_rcnn needs masks: set \
         model.kind=faster_rcnn, or make the store again without --boxes",
        store.header().num_annotations,
        store.path().display()
    )))
}

/// Category names with their COCO ids, in the order of a store's labels from 1.
fn categories_of(store: &Store) -> Vec<(String, u64)> {
    store.header().categories.iter().map(|c| (c.name.clone(), c.coco_id)).collect()
}

/// Size of an image in the network, before padding.
pub fn network_size(config: &Config, height: u32, width: u32) -> (u32, u32) {
    let input = &config.input;
    let rounding = match input.resize_rounding {
        ResizeRounding::FloorScale => Rounding::Floor,
        ResizeRounding::HalfEven => Rounding::HalfEven,
    };
    resized_size(height, width, input.min_size, input.max_size, rounding)
}

enum Location {
    Store(PathBuf),
    Files { images: PathBuf, annotations: PathBuf },
    Synthetic { dir: PathBuf, images: usize, seed: u64, size: usize },
}

fn store_dir(data: &Data, split: Split) -> Result<Location, EngineError> {
    let (word, store, images, annotations) = match split {
        Split::Train => ("train", &data.train_store, &data.train_images, &data.train_annotations),
        Split::Val => ("val", &data.val_store, &data.val_images, &data.val_annotations),
    };
    if let Some(dir) = store {
        return Ok(Location::Store(dir.into()));
    }
    if let (Some(images), Some(annotations)) = (images, annotations) {
        let (images, annotations) = (images.into(), annotations.into());
        return Ok(Location::Files { images, annotations });
    }
    if let Some(s) = &data.synthetic {
        let (name, images, seed) = match split {
            Split::Train => ("train", s.train_images, s.seed),
            // A different seed: no image appears in both splits.
            Split::Val => ("val", s.val_images, s.seed ^ 0x5EED_0FFA_1D00_0000),
        };
        let name = format!("{name}-{images}x{}-seed{}", s.image_size, s.seed);
        let dir = Path::new(&s.dir).join(name);
        return Ok(Location::Synthetic { dir, images, seed, size: s.image_size });
    }
    Err(EngineError::Usage(format!(
        "the config names no {word} data: set data.{word}_images and data.{word}_annotations \
         (COCO files), data.{word}_store (from `onegraph prep`), or data.synthetic"
    )))
}

fn draw(
    dir: &Path,
    count: usize,
    seed: u64,
    size: usize,
    progress: &Progress,
) -> Result<(), EngineError> {
    if dir.join("store").is_dir() {
        return Ok(());
    }
    let side = u32::try_from(size).map_err(|_| {
        EngineError::Usage(format!("data.synthetic.image_size is {size}; it must be at most 4096"))
    })?;
    let (height, width, out) = (side, side, dir.to_path_buf());
    // One of our sets without its store is drawn again; anything else there is left alone.
    let overwrite = dir.is_dir();
    let options = synthetic::SyntheticOptions { count, seed, height, width, out, overwrite };
    let title = format!("drawing {count} images into {}", dir.display());
    made(progress.during(&title, |report| synthetic::generate(&options, report)))?;
    Ok(())
}

/// The report of data just made; `None` if another process has made them first: their name says
/// what they are, so they are as good.
fn made(result: Result<PrepReport, DaliError>) -> Result<Option<PrepReport>, DaliError> {
    match result {
        Err(DaliError::AlreadyMade { path } | DaliError::Exists { path }) => {
            tracing::info!(path = %path.display(), "taking what exists");
            Ok(None)
        }
        result => result.map(Some),
    }
}

/// Builds the store of COCO files once, beside the run's data: its name encodes what it depends on.
fn prepare(
    config: &Config,
    split: Split,
    images: &Path,
    annotations: &Path,
    progress: &Progress,
) -> Result<PathBuf, EngineError> {
    let data = &config.data;
    let masks = match config.model.kind.has_masks() {
        true => prep::Masks::Required,
        false => prep::Masks::Optional,
    };
    let empty = match (data.empty, split) {
        (EmptyImages::Drop, Split::Train) => prep::EmptyImages::Drop,
        _ => prep::EmptyImages::Keep,
    };
    let pixels = match data.pixels {
        PixelEncoding::Jpeg => dali::store::PixelEncoding::Jpeg,
        PixelEncoding::Raw => dali::store::PixelEncoding::Raw,
    };
    let max_image_pixels = data.max_image_pixels;
    let paths = prep::PrepOptions::new(images, annotations, "");
    let mut options = prep::PrepOptions { pixels, empty, masks, max_image_pixels, ..paths };
    // An edited annotation file counts as a new one: its old store would be silently wrong.
    let key = prep::source_key(&options)?;
    let stem = annotations.file_stem().unwrap_or_default().to_string_lossy();
    let out = Path::new("runs/data").join(format!("{stem}-{}", &key[..8]));
    if out.is_dir() {
        let Some(why) = outdated(&out, images)? else { return Ok(out) };
        progress.say(&why);
        options.overwrite = true;
    }
    options.out = out.clone();
    let title = format!("making the store {}", out.display());
    if let Some(report) = made(progress.during(&title, |p| prep::run(&options, p)))? {
        progress.say(&report.to_string());
    }
    Ok(out)
}

/// Why the store at `out`, made from files in `images`, is made anew; `None` if it is as good as
/// new.
fn outdated(out: &Path, images: &Path) -> Result<Option<String>, EngineError> {
    match Store::open(out) {
        Ok(store) => Ok(store.changed_source(images).map(|name| {
            let out = out.display();
            format!("{out}: {name} was replaced since the store was made; making it anew")
        })),
        Err(damage @ DaliError::Store { .. }) => Ok(Some(format!("{damage}; making it anew"))),
        Err(error) => Err(error.into()),
    }
}

/// Images in use: those named by `data.ids` (training only), else all that may be used, up to
/// `data.max_images`.
fn select(
    data: &Data,
    split: Split,
    store: &Store,
    progress: &Progress,
) -> Result<Vec<usize>, EngineError> {
    let usage = |text: String| Err(EngineError::Usage(text));
    let path = store.path().display();
    let num_empty = store.header().num_empty_images;
    // As `prep` counts: a crowd is an object. A store keeps images that training leaves out.
    let drops = split == Split::Train && data.empty == EmptyImages::Drop;
    let is_used = |i: &usize| !drops || !store.image(*i).objects.is_empty();
    let mut images: Vec<usize> = if data.ids.is_empty() || split == Split::Val {
        (0..store.len()).filter(is_used).collect()
    } else {
        named(&data.ids, store, drops)?
    };
    if images.is_empty() && drops && num_empty > 0 {
        return usage(format!(
            "the store {path} holds no image with an object; set data.empty=keep to train on \
             images without"
        ));
    }
    if images.is_empty() {
        return usage(format!("the store {path} holds no image to use"));
    }
    if drops && data.ids.is_empty() && num_empty > 0 {
        progress.say(&format!(
            "store {path}: {num_empty} images without objects left out (data.empty=drop)"
        ));
    }
    if data.max_images > 0 {
        images.truncate(data.max_images);
    }
    Ok(images)
}

/// The images of these ids, in their order; with `drops`, each must have an object.
fn named(ids: &[u64], store: &Store, drops: bool) -> Result<Vec<usize>, EngineError> {
    let place_of: HashMap<u64, usize> =
        (0..store.len()).map(|i| (store.image(i).image_id, i)).collect();
    let lacks_empty = drops && store.header().num_empty_images == 0;
    let find = |id: &u64| match place_of.get(id) {
        Some(&place) if drops && store.image(place).objects.is_empty() => {
            Err("has no objects: set data.empty=keep to train on it")
        }
        Some(&place) => Ok(place),
        None if lacks_empty => {
            Err("the training store does not hold; with data.empty=drop it may have been left out")
        }
        None => Err("the training store does not hold"),
    };
    let find = |id| {
        find(id).map_err(|which| {
            EngineError::Usage(format!("data.ids names image {id}, which {which}"))
        })
    };
    ids.iter().map(find).collect()
}
