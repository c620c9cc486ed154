//! Opens a store, and checks its contents before they are used.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::columns;
use super::format::{self, Capacities, FORMAT_VERSION, Header, ImageRow, ObjectRow, PartRow};
use super::keypoints::{self, Keypoints};
use super::mmap::Mapped;
use super::reader::{Store, fault_in};
use crate::error::DaliError;

/// The files that [`Store::open_index`] reads.
const INDEX: [&str; 2] = [format::IMAGES, format::NAMES];

impl Store {
    /// Maps the store at `dir`. Checks the version, the lengths, all checksums except that of the
    /// pixels, and every index, so that later reads cannot be out of bounds.
    ///
    /// # Errors
    /// [`DaliError::Store`] with the file and the error, even if a file is missing;
    /// [`DaliError::Io`] if the folder does not exist or cannot be read.
    pub fn open(dir: &Path) -> Result<Store, DaliError> {
        let store = Self::open_index(dir)?;
        store.verify_objects()?;
        Ok(Store { is_index: false, ..store })
    }

    /// Like [`Self::open`], but reads only the header and each image's size, name and number of
    /// objects. The objects must be checked by [`Self::verify_objects`] before they are used.
    ///
    /// # Errors
    /// As for [`Self::open`].
    pub fn open_index(dir: &Path) -> Result<Store, DaliError> {
        let header = read_header(dir)?;
        let map = |(name, _)| match Mapped::open(&dir.join(name)) {
            Ok(file) => Ok((name, file)),
            Err(error) => Err(missing_in(dir, name, error)),
        };
        let files = header.data_files().map(map).collect::<Result<_, DaliError>>()?;
        let path = dir.to_path_buf();
        let store = Store { path, header, files, arrival: None, is_index: true };
        for (name, record) in store.header.data_files() {
            store.check_file(name, INDEX.contains(&name))?;
            if !store.bytes(name).len().is_multiple_of(record) {
                return Err(store.fault(name, "its length is not a multiple of the record size"));
            }
        }
        store.check_images()?;
        let path = dir.display();
        tracing::info!(%path, images = store.len(), "opened a store");
        Ok(store)
    }

    /// Checks the objects and their masks and keypoints against their checksums, the header, and
    /// their images. Every keypoint must have a finite position and a visibility of 0, 1 or 2.
    ///
    /// # Errors
    /// [`DaliError::Store`] with the file and the error.
    pub fn verify_objects(&self) -> Result<(), DaliError> {
        let names = self.header.data_files().map(|(name, _)| name);
        for name in names.filter(|name| *name != format::PIXELS && !INDEX.contains(name)) {
            self.check_file(name, true)?;
        }
        self.check_objects()?;
        self.check_runs()?;
        self.check_keypoints()
    }

    /// Compares the length and, if requested, the checksum of one file with the header.
    pub(super) fn check_file(
        &self,
        name: &'static str,
        with_checksum: bool,
    ) -> Result<(), DaliError> {
        let bytes = self.bytes(name);
        let Some(expected) = self.header.files.get(name) else {
            return Err(self.fault(name, &format!("not listed in {}", format::HEADER)));
        };
        if bytes.len() as u64 != expected.bytes {
            let fault = format!("{} bytes long, but {} in the header", bytes.len(), expected.bytes);
            return Err(self.fault(name, &fault));
        }
        if with_checksum && crc32fast::hash(bytes) != expected.crc32 {
            return Err(self.fault(name, "its checksum does not match the header's"));
        }
        Ok(())
    }

    /// Checks the index: sizes, names, the offsets of pixels and objects, and the counts in the
    /// header. Reads no object.
    fn check_images(&self) -> Result<(), DaliError> {
        let (images, num_objects) = (self.image_rows(), self.object_rows().len());
        let (mut next_object, mut num_empty) = (0, 0);
        for (idx, image) in images.iter().enumerate() {
            let fault = |fault: &str| self.fault(format::IMAGES, &format!("record {idx}: {fault}"));
            self.check_image(image).map_err(fault)?;
            if image.first_object != next_object {
                return Err(fault("its objects do not follow the previous image's"));
            }
            next_object += u64::from(image.num_objects);
            if next_object > num_objects as u64 {
                return Err(fault("its objects are outside objects.bin"));
            }
            num_empty += usize::from(image.num_objects == 0);
        }
        self.check_lengths()?;
        let counts = [images.len(), next_object as usize, num_empty];
        let Header { num_images, num_annotations, num_empty_images, .. } = self.header;
        if counts != [num_images, num_annotations, num_empty_images]
            || num_objects != next_object as usize
        {
            return Err(self.wrong_counts());
        }
        Ok(())
    }

    fn check_image(&self, image: &ImageRow) -> Result<(), &'static str> {
        let pixels = u64::from(image.height) * u64::from(image.width);
        if pixels == 0 {
            return Err("an image without pixels");
        }
        in_bounds(image.pixel_offset, image.pixel_len, self.bytes(format::PIXELS))
            .ok_or("its pixels are outside pixels.bin")?;
        match image.encoding {
            format::ENCODING_JPEG => {}
            format::ENCODING_RAW if pixels.checked_mul(3) == Some(image.pixel_len) => {}
            format::ENCODING_RAW => return Err("its raw pixels do not match its size"),
            _ => return Err("an unknown pixel encoding"),
        }
        let name = in_bounds(image.name_offset, image.name_len.into(), self.bytes(format::NAMES))
            .ok_or("its name is outside names.bin")?;
        std::str::from_utf8(name).map(drop).map_err(|_| "its name is not UTF-8")
    }

    /// Checks that `sources.bin` has one record per image, and that the files of columns and
    /// keypoints have one record per object.
    fn check_lengths(&self) -> Result<(), DaliError> {
        let (num_images, num_objects) = (self.image_rows().len(), self.object_rows().len());
        if self.source_rows().len() != num_images {
            let fault = format!("it does not have one record for each of {num_images} images");
            return Err(self.fault(format::SOURCES, &fault));
        }
        let (width, num_named) =
            (columns::width(&self.header.columns), self.header.num_keypoints());
        let (columns, keypoints) = (self.records::<f32>(format::COLUMNS), self.all_keypoints());
        for (file, width, have, what) in [
            (format::COLUMNS, width, columns.len(), "numbers"),
            (format::KEYPOINTS, num_named, keypoints.len(), "keypoints"),
        ] {
            if Some(have) != width.checked_mul(num_objects) {
                let fault = format!("it does not have {width} {what} for each object");
                return Err(self.fault(file, &fault));
            }
        }
        Ok(())
    }

    /// Checks every object, and the counts and capacities in the header. [`Self::check_images`]
    /// must have succeeded. Reads no mask.
    fn check_objects(&self) -> Result<(), DaliError> {
        let mut next = Next {
            num_classes: self.header.categories.len(),
            parts: self.records(format::PARTS),
            coords: self.records(format::COORDS),
            runs: self.records(format::RUNS),
            ends: [0; 3],
        };
        let mut capacities = Capacities::default();
        let (mut num_crowd, mut num_without_mask) = (0, 0);
        for (image, objects) in self.by_image() {
            let pixels = image.height as usize * image.width as usize;
            let mut of_image = Capacities { pixels, ..Capacities::default() };
            for object in objects {
                let parts = next.check(object).map_err(|fault| {
                    let fault = format!("annotation {}: {fault}", object.annotation_id);
                    self.fault(format::OBJECTS, &fault)
                })?;
                let (is_crowd, len) = (object.crowd != 0, |part: &PartRow| part.len as usize);
                num_crowd += usize::from(is_crowd);
                num_without_mask += usize::from(parts.is_empty());
                of_image.add(is_crowd, object.kind, parts.len(), parts.iter().map(len).sum());
            }
            capacities = capacities.max(of_image);
        }
        let Capacities { objects, parts, coords, runs, .. } = capacities;
        if [objects, parts, coords, runs].into_iter().any(|count| i32::try_from(count).is_err()) {
            let fault = "an image has more than 2^31 objects or values";
            return Err(self.fault(format::HEADER, fault));
        }
        let header = &self.header;
        let said = (header.num_crowd, header.num_without_mask, header.capacities);
        if (num_crowd, num_without_mask, capacities) != said {
            return Err(self.wrong_counts());
        }
        Ok(())
    }

    fn wrong_counts(&self) -> DaliError {
        self.fault(format::HEADER, "its counts or capacities differ from the records")
    }

    /// The images with their objects; [`Self::check_images`] must have succeeded.
    fn by_image(&self) -> impl Iterator<Item = (&ImageRow, &[ObjectRow])> {
        let objects = self.object_rows();
        self.image_rows().iter().map(|image| {
            (image, &objects[image.first_object as usize..][..image.num_objects as usize])
        })
    }

    /// Checks that the run lengths of each mask cover its image; [`Self::check_objects`] must have
    /// succeeded.
    fn check_runs(&self) -> Result<(), DaliError> {
        let (all_parts, all_runs) =
            (self.records::<PartRow>(format::PARTS), self.records::<u32>(format::RUNS));
        for (image, objects) in self.by_image() {
            let pixels = u64::from(image.height) * u64::from(image.width);
            for object in objects.iter().filter(|object| object.kind == format::KIND_RUNS) {
                let part = all_parts[object.first_part as usize];
                let runs = in_bounds(part.offset, part.len, all_runs).unwrap_or_default();
                if runs.iter().map(|run| u64::from(*run)).sum::<u64>() != pixels {
                    let id = object.annotation_id;
                    let fault = format!("annotation {id}: its runs do not cover the image");
                    return Err(self.fault(format::OBJECTS, &fault));
                }
            }
        }
        Ok(())
    }

    /// Checks the values of all keypoints, and the count of objects with keypoints in the header;
    /// [`Self::check_objects`] must have succeeded.
    fn check_keypoints(&self) -> Result<(), DaliError> {
        let num_named = self.header.num_keypoints().max(1);
        let mut num_with_keypoints = 0;
        let all = self.all_keypoints().chunks(num_named);
        for (object, own) in self.object_rows().iter().zip(all) {
            if !own.iter().all(keypoints::is_sound) {
                let id = object.annotation_id;
                let fault = format!(
                    "annotation {id}: a keypoint has no finite position, or a visibility other \
                     than 0, 1 and 2"
                );
                return Err(self.fault(format::KEYPOINTS, &fault));
            }
            num_with_keypoints += usize::from(object.crowd == 0 && keypoints::is_labelled(own));
        }
        if num_with_keypoints != self.header.num_with_keypoints {
            let fault = "its count of objects with keypoints differs from the records";
            return Err(self.fault(format::HEADER, fault));
        }
        Ok(())
    }
}

/// The contents of the mask files, and the offsets at which the next object's masks must begin.
/// Masks must be in order without overlap, so that a store cannot contain more mask data than bytes
/// in its files.
struct Next<'a> {
    num_classes: usize,
    parts: &'a [PartRow],
    coords: &'a [f32],
    runs: &'a [u32],
    /// Numbers of parts, coordinates and runs of the objects checked so far.
    ends: [u64; 3],
}

impl<'a> Next<'a> {
    /// Checks one object and returns its parts.
    fn check(&mut self, object: &ObjectRow) -> Result<&'a [PartRow], &'static str> {
        let [next_part, next_coord, next_run] = &mut self.ends;
        if !(1..=self.num_classes).contains(&(object.label as usize)) {
            return Err("its label is not a category");
        }
        if object.first_part != *next_part {
            return Err("its parts do not follow the previous object's");
        }
        let parts = in_bounds(object.first_part, object.num_parts.into(), self.parts)
            .ok_or("its parts are outside parts.bin")?;
        *next_part += parts.len() as u64;
        match object.kind {
            format::KIND_POLYGONS => {
                for part in parts {
                    let ring = in_bounds(part.offset, part.len, self.coords);
                    if ring.is_none_or(|ring| !ring.len().is_multiple_of(2)) {
                        return Err("a polygon is outside coords.bin, or lacks a coordinate");
                    }
                    if part.offset != *next_coord {
                        return Err("its polygons do not follow the previous object's");
                    }
                    *next_coord += part.len;
                }
            }
            format::KIND_RUNS => {
                let [part] = parts else { return Err("its runs are not in one part") };
                in_bounds(part.offset, part.len, self.runs)
                    .ok_or("its runs are outside runs.bin")?;
                if part.offset != *next_run {
                    return Err("its runs do not follow the previous object's");
                }
                *next_run += part.len;
            }
            _ => return Err("an unknown kind of segmentation"),
        }
        Ok(parts)
    }
}

/// Reads `header.json`. The version is checked first, as it determines the other fields.
fn read_header(dir: &Path) -> Result<Header, DaliError> {
    let path = dir.join(format::HEADER);
    let fault = |fault| fault_in(dir, format::HEADER, fault);
    let text = std::fs::read(&path)
        .map_err(DaliError::io("read the store's", &path))
        .map_err(|error| missing_in(dir, format::HEADER, error))?;
    let value: serde_json::Value =
        serde_json::from_slice(&text).map_err(|error| fault(format!("not JSON: {error}")))?;
    let version = value.get("version").and_then(serde_json::Value::as_u64);
    if version != Some(u64::from(FORMAT_VERSION)) {
        let found = version.map_or("none".to_string(), |version| version.to_string());
        return Err(fault(format!(
            "format version {found}, this program reads version {FORMAT_VERSION}"
        )));
    }
    let header: Header =
        serde_json::from_value(value).map_err(|error| fault(format!("unreadable: {error}")))?;
    check_header(&header).map_err(fault)?;
    Ok(header)
}

/// Checks the header's seal (its SHA-256) and consistency.
fn check_header(header: &Header) -> Result<(), String> {
    if !header.is_as_sealed().map_err(|error| error.to_string())? {
        return Err("it was changed after it was written: its seal is wrong".into());
    }
    if header.categories.is_empty() {
        return Err("it has no category".into());
    }
    let (mut ids, mut names) = (HashSet::new(), HashSet::new());
    for (category, label) in header.categories.iter().zip(1..) {
        if category.label != label {
            return Err("labels are not 1..K in order".into());
        }
        if !ids.insert(category.coco_id) {
            return Err(format!("two categories have the id {}", category.coco_id));
        }
        if !names.insert(&category.name) {
            return Err(format!("two categories are named {:?}", category.name));
        }
    }
    if header.files.contains_key(format::KEYPOINTS) != header.keypoints.is_some() {
        return Err("there are keypoints without names, or names without keypoints".into());
    }
    if header.files.contains_key(format::COLUMNS) == header.columns.is_empty() {
        return Err("there are columns without names, or names without columns".into());
    }
    header.keypoints.as_ref().map_or(Ok(()), Keypoints::check)
}

/// The source key of the store at `dir`; `None` if there is no store, or its header has no key.
pub(crate) fn source_of(dir: &Path) -> Option<String> {
    read_header(dir).ok()?.source
}

/// The files of the store at `dir`; `None` if the folder does not seem to be a store. A damaged
/// store is accepted too: its header may be unreadable, or lack one of its keys.
pub(crate) fn manifest(dir: &Path) -> Option<Vec<PathBuf>> {
    let text = std::fs::read(dir.join(format::HEADER)).unwrap_or_default();
    let data_files = format::DATA_FILES.map(|(name, _)| name);
    let names: Vec<&str> = match serde_json::from_slice::<serde_json::Value>(&text) {
        Ok(header) => {
            let is_there = |key: &&str| header.get(key).is_some();
            let keys = ["version", "categories", "num_images", "capacities", "files"];
            if keys.iter().filter(|key| is_there(key)).count() + 1 < keys.len() {
                return None;
            }
            let files = header.get("files").and_then(serde_json::Value::as_object);
            let is_listed = |name: &&str| files.is_none_or(|files| files.contains_key(*name));
            data_files.into_iter().filter(is_listed).collect()
        }
        // Without a readable header, the folder is a store if it has at least half of the data
        // files.
        Err(_) => {
            let is_there = |name: &&str| dir.join(name).is_file();
            let present = data_files.iter().filter(|name| is_there(name)).count();
            if 2 * present < data_files.len() {
                return None;
            }
            data_files.into()
        }
    };
    Some(names.into_iter().chain([format::HEADER]).map(PathBuf::from).collect())
}

/// Converts the error: a file that is missing in an existing folder means that the store is
/// damaged.
fn missing_in(dir: &Path, file: &'static str, error: DaliError) -> DaliError {
    match error {
        DaliError::Io { source, .. } if source.kind() == ErrorKind::NotFound && dir.is_dir() => {
            fault_in(dir, file, "it is missing")
        }
        error => error,
    }
}

fn in_bounds<T>(offset: u64, len: u64, values: &[T]) -> Option<&[T]> {
    let end = offset.checked_add(len)?;
    values.get(usize::try_from(offset).ok()?..usize::try_from(end).ok()?)
}
