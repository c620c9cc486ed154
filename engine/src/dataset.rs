//! The data of a split: stores, the images in use, and the network input size of each image.

mod classes;
mod held_out;
mod identity;
mod inclusive;
mod keypoints;
mod made;
mod shared;
mod sizes;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::Arc;

use crate::config::{Config, Data, EmptyImages};
use dali::DaliError;
use dali::decode::Exif;
use dali::order::{DrawnSizes, PaddedShape, choose_shapes, resized_size};
use dali::store::{Store, Stores};

use crate::classes::classes_of_data;
use crate::error::EngineError;
use crate::model::SlotShape;
use crate::progress::{Progress, counted};
use crate::view::Views;

use held_out::is_in_split;
pub(crate) use identity::{identity_of, is_same_data};
pub use inclusive::inclusive_box;
pub(crate) use inclusive::{make_inclusive, objects_with_rows};

/// The stores of a split, and the images that training or evaluation uses.
#[derive(Debug, Clone)]
pub struct DataSet {
    /// The memory-mapped stores.
    pub store: Arc<Stores>,
    /// Indices of the images in use.
    pub images: Vec<usize>,
    /// Network input size (height, width) of each image in use, without random augmentation.
    pub sizes: Vec<(u32, u32)>,
    /// Network input sizes that are sampled for each epoch (`[input.augment]`), if there is scale
    /// augmentation.
    pub(crate) drawn: Option<DrawnSizes>,
    /// Padded shapes that the images are assigned to.
    pub shapes: Vec<PaddedShape>,
    /// Names and COCO ids of the model's classes, from class 1.
    classes: Vec<(String, u64)>,
    /// True if box corners are inclusive pixel indices ([`inclusive_box`]).
    pub(crate) inclusive_boxes: bool,
}

/// The purpose of a data set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Split {
    /// Training images.
    Train,
    /// Validation images.
    Val,
}

impl DataSet {
    /// Opens a split. If its synthetic data or its store does not exist yet, it is generated or
    /// built first.
    ///
    /// # Errors
    /// A config without data, or any error in the files.
    pub fn open(config: &Config, split: Split, progress: &Progress) -> Result<Self, EngineError> {
        Self::of_store(config, split, progress, Store::open)
    }

    /// Like [`Self::open`], without reading the objects of the stores. The caller must call
    /// [`Store::verify_objects`].
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub(crate) fn open_index(
        config: &Config,
        split: Split,
        progress: &Progress,
    ) -> Result<Self, EngineError> {
        Self::of_store(config, split, progress, Store::open_index)
    }

    fn of_store(
        config: &Config,
        split: Split,
        progress: &Progress,
        open: fn(&Path) -> Result<Store, DaliError>,
    ) -> Result<Self, EngineError> {
        let stores = made::open(config, split, progress, open)?;
        let store = Arc::new(classes::read_as_one(&config.data, split, stores, progress)?);
        check_masks(config, &store)?;
        check_keypoints(config, split, &store)?;
        warn(config, split, &store, progress);
        if let (Split::Train, Some(known)) = (split, keypoints::of_model(config, &store)) {
            keypoints::flips(config, known)?.iter().for_each(|text| progress.say(text));
        }
        let mut images = select(&config.data, split, &store, progress)?;
        let mut warnings = limit(config, split, &store, &mut images);
        warnings.extend(shared::repeated(&config.data, split, (&store, &images)));
        warnings.iter().for_each(|text| progress.say(&format!("warning: {text}")));
        let size = |i: &usize| {
            let record = store.image(*i);
            network_size(config, record.height, record.width)
        };
        let sizes: Vec<_> = images.iter().map(size).collect();
        let views = Views::new(config);
        let (shapes, drawn) = if split == Split::Train && views.vary() {
            let (shapes, drawn) = sizes::drawn(&config.input, &store, &images, views);
            (shapes, Some(drawn))
        } else {
            (fixed_shapes(config, &sizes), None)
        };
        let classes = classes_of_data(&categories_of(&store), config.model.num_classes);
        let inclusive_boxes = config.model.boxes.legacy_plus_one;
        Ok(Self { store, images, sizes, drawn, shapes, classes, inclusive_boxes })
    }

    /// Padded shapes for the sizes without augmentation ([`Self::sizes`]), for evaluation on
    /// training data.
    pub(crate) fn shapes_of_evaluation(&self, config: &Config) -> Vec<PaddedShape> {
        fixed_shapes(config, &self.sizes)
    }

    /// Foreground classes.
    pub fn num_classes(&self) -> usize {
        self.store.contents().categories.len()
    }

    /// Number of foreground classes of a model that is trained on this data: from the config, or
    /// else from the data.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the config has fewer classes than the data.
    pub fn classes_of_model(&self, config: &Config) -> Result<usize, EngineError> {
        let found = self.num_classes();
        let classes = config.model.classes_or(found);
        if classes >= found {
            return Ok(classes);
        }
        Err(EngineError::Usage(format!(
            "model.num_classes is {classes}, but the dataset has {found} classes; set it to 0 to \
             use the dataset's number"
        )))
    }

    /// Names and COCO ids of the model's classes, from class 1 ([`classes_of_data`]).
    pub fn categories(&self) -> Vec<(String, u64)> {
        self.classes.clone()
    }

    /// Adopts the classes of a trained model if they include all categories of this data, by name.
    /// Otherwise returns false and changes nothing.
    pub fn take_classes(&mut self, classes: &[(String, u64)]) -> bool {
        let categories = categories_of(&self.store);
        // If two classes have the same name, the first is used.
        let named = classes.iter().enumerate().rev();
        let place_of: HashMap<&str, usize> =
            named.map(|(place, (name, _))| (name.as_str(), place)).collect();
        let place = |(name, _): &(String, u64)| place_of.get(name.as_str()).copied();
        let places: Option<Vec<usize>> = categories.iter().map(place).collect();
        let Some(places) = places else { return false };
        // Classes that the data lacks get ids that no category uses.
        let used: HashSet<u64> = categories.iter().map(|(_, id)| *id).collect();
        let free = (0..=u64::MAX).rev().filter(|id| !used.contains(id));
        let mut taken: Vec<_> = classes.iter().map(|(name, _)| name.clone()).zip(free).collect();
        for (place, (_, id)) in places.into_iter().zip(categories) {
            taken[place].1 = id;
        }
        self.classes = taken;
        true
    }

    /// The model's class for each label of the store. Label 0, which is padding, is class 0.
    pub(crate) fn class_of_label(&self) -> Vec<i32> {
        let by_id = self.classes.iter().enumerate().rev();
        let of: HashMap<u64, i32> = by_id.map(|(at, (_, id))| (*id, at as i32 + 1)).collect();
        let stored = self.store.contents().categories.iter();
        let classes = stored.map(|c| of.get(&c.coco_id).copied().unwrap_or(0));
        std::iter::once(0).chain(classes).collect()
    }

    /// Warns if EXIF rotations were treated differently in this data than in the training data of a
    /// model.
    pub(crate) fn warn_of_exif(&self, trained: Option<Exif>, progress: &Progress) {
        let word = |exif| if exif == Exif::Apply { "turned" } else { "unturned" };
        if let (Some(ours), Some(trained)) = (self.store.contents().exif(), trained)
            && ours != trained
        {
            progress.say(&format!(
                "warning: {}: images with an EXIF orientation are {}, but were {} in the \
                 training data; make both stores with the same `prep --exif`",
                self.store,
                word(ours),
                word(trained)
            ));
        }
    }

    /// Slot capacities that suffice for any image of the set.
    pub fn slot_shape(&self) -> SlotShape {
        let c = &self.store.contents().capacities;
        SlotShape {
            pixels: 3 * c.pixels,
            objects: c.objects.max(1),
            parts: c.parts.max(1),
            coords: c.coords.max(1),
            runs: c.runs.max(1),
        }
    }
}

/// Warns about anomalies in the store of a split.
fn warn(config: &Config, split: Split, store: &Stores, progress: &Progress) {
    let contents = store.contents();
    if let [turned, unturned] = contents.num_turned
        && turned.min(unturned) > 0
    {
        progress.say(&format!(
            "warning: {store}: EXIF orientation is applied to {turned} images and not to {unturned}; \
             make all stores with the same `prep --exif`"
        ));
    }
    let (classes, found) = (config.model.num_classes, contents.categories.len());
    let last = contents.categories.iter().map(|category| category.coco_id).max().unwrap_or(0);
    if split == Split::Train && classes > found && classes as u64 != last {
        progress.say(&format!(
            "warning: model.num_classes is {classes}, but the dataset has {found} classes; do not \
             count the background, or set it to 0 to use the dataset's number"
        ));
    }
}

/// Checks that every object has a mask, if the model has masks.
fn check_masks(config: &Config, store: &Stores) -> Result<(), EngineError> {
    let without = store.contents().num_without_mask;
    if without == 0 || !config.model.kind.has_masks() {
        return Ok(());
    }
    Err(EngineError::Usage(format!(
        "{without} of {} objects in {} have no mask, which mask_rcnn needs; set \
         model.kind=faster_rcnn, or make the store again without --boxes",
        store.contents().num_annotations,
        store
    )))
}

/// Checks that the data has the number of keypoints that the model predicts.
fn check_keypoints(config: &Config, split: Split, store: &Stores) -> Result<(), EngineError> {
    if !config.model.kind.has_keypoints() {
        return Ok(());
    }
    let wanted = config.model.keypoint_head.keypoints;
    let contents = store.contents();
    let fault = match &contents.keypoints {
        None => "has no keypoints, which keypoint_rcnn needs; give annotations whose categories \
                 and objects have `keypoints`, such as COCO's person_keypoints, or set \
                 model.kind=faster_rcnn"
            .to_string(),
        Some(known) if known.names.len() != wanted => {
            let found = known.names.len();
            format!(
                "has {found} keypoints per object, but model.keypoint_head.keypoints is {wanted}; \
                 set it to {found}"
            )
        }
        Some(_) if split == Split::Train && contents.num_with_keypoints == 0 => {
            "has no object with a labelled keypoint, so keypoint_rcnn has nothing to learn from"
                .to_string()
        }
        Some(_) => return Ok(()),
    };
    Err(EngineError::Usage(format!("the store {store} {fault}")))
}

/// Category names with their COCO ids, in the order of labels, from label 1.
fn categories_of(store: &Stores) -> Vec<(String, u64)> {
    store.contents().categories.iter().map(|c| (c.name.clone(), c.coco_id)).collect()
}

/// Padded shapes for images with these network input sizes.
fn fixed_shapes(config: &Config, sizes: &[(u32, u32)]) -> Vec<PaddedShape> {
    choose_shapes(sizes, config.input.buckets_per_orientation, config.input.size_divisor)
}

/// Network input size of an image, before padding.
pub fn network_size(config: &Config, height: u32, width: u32) -> (u32, u32) {
    let input = &config.input;
    resized_size(height, width, input.min_size, input.max_size, input.resize_rounding)
}

/// Images to use: those listed in `data.ids` (training only), else all usable ones.
fn select(
    data: &Data,
    split: Split,
    store: &Stores,
    progress: &Progress,
) -> Result<Vec<usize>, EngineError> {
    let usage = |text: String| Err(EngineError::Usage(text));
    let num_empty = store.contents().num_empty_images;
    // A crowd counts as an object here, as in `prep`, torchvision and maskrcnn-benchmark: an image
    // with only crowds is used as background. Stores also contain images that training drops.
    let drops = split == Split::Train && data.empty == EmptyImages::Drop;
    let least = if split == Split::Train { data.min_keypoints } else { 0 };
    let extents: Vec<bool> = match drops {
        true => (0..store.len()).map(|i| store.has_extent(i)).collect::<Result<_, _>>()?,
        false => vec![true; store.len()],
    };
    let is_used = |i: &usize| extents[*i] && has_keypoints(store, *i, least);
    let mut images: Vec<usize> = if data.ids.is_empty() || split == Split::Val {
        (0..store.len()).filter(is_used).collect()
    } else {
        named(&data.ids, store, drops)?
    };
    images.retain(|i| is_in_split(data, split, store.stable_id(*i)));
    if images.is_empty() && data.val_fraction > 0.0 {
        return usage(format!(
            "data.val_fraction = {} of the images in the store {store} leaves none to {}; use more \
             images, or a different fraction",
            data.val_fraction,
            if split == Split::Train { "train on" } else { "validate on" }
        ));
    }
    if split == Split::Val && data.val_fraction > 0.0 {
        progress.say(&format!(
            "store {store}: {} held out for validation (data.val_fraction)",
            counted(images.len(), "image")
        ));
    }
    if drops && (num_empty > 0 || !images.is_empty()) && !have_objects(store, &images) {
        let (of, mend) = match data.classes.is_empty() {
            true => ("", ""),
            false => (" of a class in data.classes", "name other classes, or "),
        };
        return usage(format!(
            "the store {store} contains no image with an object{of} to train on, not counting \
             crowds (`iscrowd`); {mend}set data.empty=keep to train on images without objects"
        ));
    }
    if images.is_empty() {
        return usage(format!("the store {store} contains no image that can be used"));
    }
    let is_left_out = |i: &usize| !extents[*i] && is_in_split(data, split, store.stable_id(*i));
    let left_out = (0..store.len()).filter(is_left_out).count();
    if data.ids.is_empty() && left_out > 0 {
        progress.say(&format!(
            "store {store}: {} without objects left out (data.empty=drop)",
            counted(left_out, "image")
        ));
    }
    Ok(images)
}

/// Limits training to the first `data.max_images` images. Warns if `data.max_images`,
/// `eval.max_images` or `data.ids` selects more images than are available, or if no image has an
/// object.
fn limit(config: &Config, split: Split, store: &Stores, images: &mut Vec<usize>) -> Vec<String> {
    let (found, ids) = (images.len(), config.data.ids.len());
    let (key, most, none) = match split {
        Split::Train => {
            let most = config.data.max_images;
            images.truncate(if most > 0 { most } else { found });
            ("data", most, "no object to train on, so every image is background")
        }
        Split::Val => {
            let most = config.eval.max_images;
            ("eval", most, "no object to evaluate on, so every score will be undefined (-1)")
        }
    };
    let mut warnings = Vec::new();
    if most > found {
        let found = counted(found, "image");
        warnings.push(format!("{key}.max_images = {most} has no effect on {found}; remove it"));
    }
    if split == Split::Train && ids > found {
        warnings.push(format!(
            "{} of the {ids} images of data.ids are not trained on: data.val_fraction holds them \
             out for validation",
            ids - found
        ));
    }
    if !have_objects(store, images) {
        warnings.push(format!("store {store}: {none}"));
    }
    warnings
}

/// True if some of these images have an object that is not a crowd.
fn have_objects(store: &Stores, images: &[usize]) -> bool {
    // If there are more non-empty images than crowds, some image has an object that is not a crowd.
    // This test comes first because a timed run must not read objects before its clock starts.
    let has_any = |image: &&usize| !store.image(**image).objects.is_empty();
    let mut objects = images.iter().flat_map(|image| store.image(*image).objects);
    images.iter().filter(has_any).count() > store.contents().num_crowd
        || objects.any(|object| !store.object(object).crowd)
}

/// True if the objects of an image together have at least `least` labelled keypoints.
fn has_keypoints(store: &Stores, image: usize, least: usize) -> bool {
    let labelled = |object: usize| {
        let object = store.object(object);
        let points = if object.crowd { &[] } else { object.keypoints };
        points.iter().filter(|point| point[2] > 0.0).count()
    };
    least == 0 || store.image(image).objects.map(labelled).sum::<usize>() >= least
}

/// Indices of the images with these ids, in this order. With `drops`, each must have an object.
fn named(ids: &[u64], store: &Stores, drops: bool) -> Result<Vec<usize>, EngineError> {
    let place_of: HashMap<u64, usize> =
        (0..store.len()).map(|i| (store.image(i).image_id, i)).collect();
    let lacks_empty = drops && store.contents().num_empty_images == 0;
    let find = |id: &u64| match place_of.get(id) {
        Some(&place) if drops && store.image(place).objects.is_empty() => {
            Err("has no objects: set data.empty=keep to train on it")
        }
        Some(&place) => Ok(place),
        None if lacks_empty => {
            Err("is not in the training store; data.empty=drop may have left it out")
        }
        None => Err("is not in the training store"),
    };
    let find = |id| {
        find(id).map_err(|which| {
            EngineError::Usage(format!("data.ids names image {id}, which {which}"))
        })
    };
    ids.iter().map(find).collect()
}
