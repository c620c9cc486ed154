//! Several stores as one data set: images concatenated, classes joined by name.

use std::collections::{HashMap, HashSet};
use std::fmt;

use super::columns::Column;
use super::keypoints::{Keypoints, is_labelled};
use super::{Capacities, Category, ImageRecord, ObjectView, Segmentation, Store, format};
use crate::decode::Exif;
use crate::error::DaliError;

/// Ids of images and annotations of the k-th joined store (from 0) are increased by k times this
/// number; the ids in each store are smaller.
const IDS_PER_STORE: u64 = 1_000_000_000_000_000;
/// Name and id of the class that all categories are merged into.
const ONE_CLASS: (&str, u64) = ("object", 1);

/// The classes selected from stores.
#[derive(Debug, Clone, Default)]
pub struct Classes {
    /// Names of the classes; if empty, all classes are selected.
    pub names: Vec<String>,
    /// Merges all selected classes into one class, `object`.
    pub as_one: bool,
}

/// Images and objects of one or several stores. The classes are the distinct category names of the
/// stores, in the order in which the stores list them.
#[derive(Debug)]
pub struct Stores {
    parts: Vec<Part>,
    contents: Contents,
    /// The selected objects, if some are omitted because of their class.
    kept: Option<Kept>,
}

/// The combined contents of stores, counted as in a store's header.
#[derive(Debug, Clone, Default)]
pub struct Contents {
    /// Classes, by label.
    pub categories: Vec<Category>,
    /// Objects, including crowds.
    pub num_annotations: usize,
    /// Crowd objects.
    pub num_crowd: usize,
    /// Objects with a box but no mask.
    pub num_without_mask: usize,
    /// Objects that are not crowds and have a keypoint of visibility 1 or 2.
    pub num_with_keypoints: usize,
    /// Names and skeleton of the objects' keypoints, if a store has any; [`ObjectView::keypoints`]
    /// is empty for objects of a store without keypoints.
    pub keypoints: Option<Keypoints>,
    /// Columns with additional numbers of the objects; all stores have the same columns.
    pub columns: Vec<Column>,
    /// Images without any object.
    pub num_empty_images: usize,
    /// Numbers of images whose EXIF rotation was applied, and was not applied.
    pub num_turned: [usize; 2],
    /// Objects omitted because of their class.
    pub num_left_out: usize,
    /// Capacities sufficient for every image, including omitted objects.
    pub capacities: Capacities,
}

/// One of the stores.
#[derive(Debug)]
struct Part {
    store: Store,
    first_image: usize,
    first_object: usize,
    /// Offset that is added to the ids of the store's images and annotations.
    first_id: u64,
    /// The common label for each label of the store; 0 for an omitted class.
    label_of: Vec<u32>,
    /// The keypoints of the store's objects in the common order, if the store's own order differs.
    keypoints: Option<Vec<[f32; 3]>>,
}

/// The objects of the selected classes, over all stores.
#[derive(Debug, Default)]
struct Kept {
    /// Indices among all objects of the stores.
    objects: Vec<usize>,
    /// For each image, the index of its first object in `objects`, followed by the total number of
    /// objects.
    firsts: Vec<usize>,
}

impl Stores {
    /// Joins stores by the names of their categories.
    ///
    /// A category keeps its id from the first store that contains the category, or gets a new id if
    /// an earlier category has this id. A single store keeps its ids; the second store's images and
    /// annotations are numbered from 10^15 on, the third's from 2 * 10^15. Stores with and without
    /// keypoints can be joined; the order and skeleton of the keypoints come from the first store
    /// with keypoints.
    ///
    /// # Errors
    /// [`DaliError::Store`] if one of several stores has an id of 10^15 or more, or if its keypoint
    /// names or columns differ from those of earlier stores.
    pub fn new(stores: Vec<Store>, classes: &Classes) -> Result<Self, DaliError> {
        let (mut parts, mut contents) = (Vec::new(), Contents::default());
        let (mut first_image, mut first_object) = (0, 0);
        let is_join = stores.len() > 1;
        let mut labels = Labels::new(classes);
        for (store, first_id) in stores.into_iter().zip((0..).step_by(IDS_PER_STORE as usize)) {
            if is_join {
                check_ids(&store)?;
            }
            let keypoints = contents.join_keypoints(&store)?;
            contents.join_columns(&store, parts.is_empty())?;
            let header = store.header();
            let own = header.categories.iter();
            let label_of = own.map(|category| labels.label(category));
            let label_of = std::iter::once(0).chain(label_of).collect();
            contents.capacities = contents.capacities.max(header.capacities);
            contents.num_turned[0] += header.num_turned;
            contents.num_turned[1] += header.num_unturned;
            let (images, objects) = (store.len(), header.num_annotations);
            parts.push(Part { store, first_image, first_object, first_id, label_of, keypoints });
            first_image += images;
            first_object += objects;
        }
        contents.categories = labels.categories;
        let mut joined = Self { parts, contents, kept: None };
        match joined.parts.iter().any(|part| part.label_of[1..].contains(&0)) {
            true => joined.leave_out(),
            false => joined.count_all(),
        }
        Ok(joined)
    }

    /// Checks the objects, like [`Store::verify_objects`].
    ///
    /// # Errors
    /// [`DaliError::Store`] with the file and the error.
    pub fn verify_objects(&self) -> Result<(), DaliError> {
        self.stores().try_for_each(Store::verify_objects)
    }

    /// Like [`Store::has_extent`], for the selected objects.
    ///
    /// # Errors
    /// As for [`Store::has_extent`].
    pub fn has_extent(&self, idx: usize) -> Result<bool, DaliError> {
        if self.kept.is_some() {
            let boxes = self.image(idx).objects.map(|obj| self.object(obj).bbox_xywh);
            return Ok(format::extent_of(boxes) == format::EXTENT_SOME);
        }
        let (part, at) = self.place(idx);
        part.store.has_extent(at)
    }

    /// The stores.
    pub fn stores(&self) -> impl ExactSizeIterator<Item = &Store> {
        self.parts.iter().map(|part| &part.store)
    }

    /// The counts and classes of all stores.
    pub fn contents(&self) -> &Contents {
        &self.contents
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.store.len()).sum()
    }

    /// True if there are no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Image `idx`, counted over all stores, each in the order of its image ids. Panics if `idx` is
    /// not below [`Stores::len`].
    pub fn image(&self, idx: usize) -> ImageRecord {
        let (part, at) = self.place(idx);
        let record = part.store.image(at);
        let objects = match &self.kept {
            Some(kept) => kept.firsts[idx]..kept.firsts[idx + 1],
            None => {
                let first = part.first_object;
                first + record.objects.start..first + record.objects.end
            }
        };
        ImageRecord { image_id: part.first_id + record.image_id, objects, ..record }
    }

    /// An identifier of image `idx` that does not depend on other images: the image id in its
    /// store, or, if the reader assigned the ids, a hash of the file name (FNV-1a). Panics if `idx`
    /// is not below [`Stores::len`].
    pub fn stable_id(&self, idx: usize) -> u64 {
        let (part, at) = self.place(idx);
        if !part.store.header().ids_by_path {
            return part.store.image(at).image_id;
        }
        let add = |hash: u64, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3);
        part.store.file_name(at).bytes().fold(0xCBF2_9CE4_8422_2325, add)
    }

    /// Index of the store with image `idx`. Panics if `idx` is not below [`Stores::len`].
    pub fn store_of(&self, idx: usize) -> usize {
        self.parts.partition_point(|part| part.first_image <= idx) - 1
    }

    /// File name of image `idx`, as in the annotation file. Panics if `idx` is not below
    /// [`Stores::len`].
    pub fn file_name(&self, idx: usize) -> &str {
        let (part, at) = self.place(idx);
        part.store.file_name(at)
    }

    /// Object `obj` of the selected objects (see [`ImageRecord::objects`]). Panics if there is no
    /// such object.
    pub fn object(&self, obj: usize) -> ObjectView<'_> {
        let obj = self.kept.as_ref().map_or(obj, |kept| kept.objects[obj]);
        let part = self.parts.partition_point(|part| part.first_object <= obj) - 1;
        let part = &self.parts[part];
        let object = part.store.object(obj - part.first_object);
        ObjectView {
            annotation_id: part.first_id + object.annotation_id,
            label: part.label_of[object.label as usize],
            keypoints: match (&part.keypoints, object.keypoints.len()) {
                (Some(all), count) => &all[(obj - part.first_object) * count..][..count],
                (None, _) => object.keypoints,
            },
            ..object
        }
    }

    /// Reorders the keypoints of every object to the order of `names`; returns false if the sets of
    /// names differ.
    pub fn order_keypoints(&mut self, names: &[String]) -> bool {
        let Some(known) = &mut self.contents.keypoints else { return false };
        let Some(order) = known.order_of(names) else { return false };
        for end in known.skeleton.iter_mut().flatten() {
            *end = order.iter().position(|from| from == end).unwrap_or(*end);
        }
        known.names = names.to_vec();
        for part in &mut self.parts {
            part.keypoints = reordered(&part.store, known).unwrap_or_default();
        }
        true
    }

    /// CRC-32C of the stored bytes of image `idx`. Panics if `idx` is not below [`Stores::len`].
    pub fn pixel_checksum(&self, idx: usize) -> u32 {
        let (part, at) = self.place(idx);
        part.store.pixel_checksum(at)
    }

    /// Decodes image `idx` into `out`, `[H, W, 3]` RGB u8; `out` is resized.
    ///
    /// # Errors
    /// As for [`Store::decode_rgb`].
    pub fn decode_rgb(&self, idx: usize, out: &mut Vec<u8>) -> Result<(), DaliError> {
        let (part, at) = self.place(idx);
        part.store.decode_rgb(at, out)
    }

    /// Decodes image `idx` into `out`, which must have exactly `H * W * 3` bytes.
    ///
    /// # Errors
    /// As for [`Store::decode_rgb_into`].
    pub fn decode_rgb_into(&self, idx: usize, out: &mut [u8]) -> Result<(), DaliError> {
        let (part, at) = self.place(idx);
        part.store.decode_rgb_into(at, out)
    }

    /// For each store, the number of objects by label in the joined stores; label 0 counts omitted
    /// objects.
    pub fn objects_by_class(&self) -> Vec<Vec<usize>> {
        let count = |part: &Part| {
            let mut counts = vec![0; 1 + self.contents.categories.len()];
            for obj in 0..part.store.header().num_annotations {
                counts[part.label_of[part.store.object(obj).label as usize] as usize] += 1;
            }
            counts
        };
        self.parts.iter().map(count).collect()
    }

    fn place(&self, idx: usize) -> (&Part, usize) {
        let part = &self.parts[self.store_of(idx)];
        (part, idx - part.first_image)
    }

    /// Sums the counts in the headers, if no object is omitted.
    fn count_all(&mut self) {
        for part in &self.parts {
            let header = part.store.header();
            self.contents.num_annotations += header.num_annotations;
            self.contents.num_crowd += header.num_crowd;
            self.contents.num_without_mask += header.num_without_mask;
            self.contents.num_with_keypoints += header.num_with_keypoints;
            self.contents.num_empty_images += header.num_empty_images;
        }
    }

    /// Lists and counts the objects of the selected classes.
    fn leave_out(&mut self) {
        let (mut kept, contents) = (Kept::default(), &mut self.contents);
        for part in &self.parts {
            for image in 0..part.store.len() {
                let first = kept.objects.len();
                kept.firsts.push(first);
                for obj in part.store.image(image).objects {
                    let object = part.store.object(obj);
                    if part.label_of[object.label as usize] == 0 {
                        contents.num_left_out += 1;
                        continue;
                    }
                    kept.objects.push(part.first_object + obj);
                    let masks = &object.segmentation;
                    let has_mask = !matches!(masks, Segmentation::Polygons(p) if p.is_empty());
                    contents.num_crowd += usize::from(object.crowd);
                    contents.num_without_mask += usize::from(!has_mask);
                    let counts = !object.crowd && is_labelled(object.keypoints);
                    contents.num_with_keypoints += usize::from(counts);
                }
                contents.num_empty_images += usize::from(kept.objects.len() == first);
            }
        }
        contents.num_annotations = kept.objects.len();
        kept.firsts.push(kept.objects.len());
        self.kept = Some(kept);
    }
}

impl From<Store> for Stores {
    /// A complete store.
    fn from(store: Store) -> Self {
        Self::new(vec![store], &Classes::default())
            .unwrap_or_else(|fault| unreachable!("ids of one store: {fault}"))
    }
}

impl fmt::Display for Stores {
    /// The paths of its stores.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, store) in self.stores().enumerate() {
            write!(f, "{}{}", if i > 0 { " + " } else { "" }, store.path().display())?;
        }
        Ok(())
    }
}

impl Contents {
    /// How EXIF rotations were treated, if an image has one; `Ignore` if any rotation was not
    /// applied.
    pub fn exif(&self) -> Option<Exif> {
        match self.num_turned {
            [0, 0] => None,
            [_, 0] => Some(Exif::Apply),
            _ => Some(Exif::Ignore),
        }
    }

    /// Adds the columns of a store.
    fn join_columns(&mut self, store: &Store, is_first: bool) -> Result<(), DaliError> {
        let own = &store.header().columns;
        if is_first {
            self.columns.clone_from(own);
        }
        if self.columns == *own {
            return Ok(());
        }
        let text = "its columns differ from those of earlier stores; recreate all stores";
        Err(store.fault(format::HEADER, text))
    }

    /// Adds the keypoints of a store. If their order differs from the common order, returns the
    /// reordered keypoints of all objects.
    fn join_keypoints(&mut self, store: &Store) -> Result<Option<Vec<[f32; 3]>>, DaliError> {
        let Some(own) = &store.header().keypoints else { return Ok(None) };
        let known = self.keypoints.get_or_insert_with(|| own.clone());
        reordered(store, known).ok_or_else(|| {
            let (own, known) = (own.names.join(", "), known.names.join(", "));
            let text = format!(
                "its keypoints are {own}, but earlier stores have {known}; join stores with \
                 equal keypoint names"
            );
            store.fault(format::HEADER, &text)
        })
    }
}

/// Assigns each category its label in the joined stores.
struct Labels<'a> {
    as_one: bool,
    /// Names of the selected classes; if empty, all classes are selected.
    wanted: HashSet<&'a str>,
    of: HashMap<String, u32>,
    taken: HashSet<u64>,
    /// All ids from 1 to `last` are used.
    last: u64,
    categories: Vec<Category>,
}

impl<'a> Labels<'a> {
    fn new(classes: &'a Classes) -> Self {
        let wanted = classes.names.iter().map(String::as_str).collect();
        let (of, taken, categories) = (HashMap::new(), HashSet::new(), Vec::new());
        Self { as_one: classes.as_one, wanted, of, taken, last: 0, categories }
    }

    /// The label in the joined stores of one store's category, which is added if it is new; 0 if
    /// the category is not selected.
    fn label(&mut self, category: &Category) -> u32 {
        let Category { name, coco_id, .. } = category;
        if !self.wanted.is_empty() && !self.wanted.contains(name.as_str()) {
            return 0;
        }
        let (name, mut coco_id) = match self.as_one {
            true => ONE_CLASS,
            false => (name.as_str(), *coco_id),
        };
        if let Some(known) = self.of.get(name) {
            return *known;
        }
        let label = 1 + self.categories.len() as u32;
        if !self.taken.insert(coco_id) {
            while !self.taken.insert(self.last + 1) {
                self.last += 1;
            }
            coco_id = self.last + 1;
        }
        self.of.insert(name.to_string(), label);
        self.categories.push(Category { name: name.to_string(), coco_id, label });
        label
    }
}

/// The keypoints of a store's objects in the order of `known`; `Some(None)` if they already have
/// this order, and `None` if the sets of names differ.
fn reordered(store: &Store, known: &Keypoints) -> Option<Option<Vec<[f32; 3]>>> {
    let Some(own) = store.header().keypoints.as_ref().filter(|own| own.names != known.names) else {
        return Some(None);
    };
    let order = own.order_of(&known.names)?;
    let objects = (0..store.header().num_annotations).map(|object| store.keypoints_of(object));
    Some(Some(objects.flat_map(|own| order.iter().map(|from| own[*from])).collect()))
}

/// Checks that the ids of a store are below [`IDS_PER_STORE`], so that they do not overlap those of
/// the next store.
fn check_ids(store: &Store) -> Result<(), DaliError> {
    let images = (0..store.len()).map(|i| store.image(i).image_id);
    let objects = (0..store.header().num_annotations).map(|i| store.object(i).annotation_id);
    match images.chain(objects).find(|id| *id >= IDS_PER_STORE) {
        None => Ok(()),
        Some(id) => {
            let text = format!(
                "id {id} is too large to join the store with others: number images and \
                 annotations below 10^15"
            );
            Err(store.fault(format::IMAGES, &text))
        }
    }
}
