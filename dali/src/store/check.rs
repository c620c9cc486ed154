//! The checks that a store must pass before anything is read from it.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::columns;
use super::format::{self, Capacities, FORMAT_VERSION, Header, ImageRow, ObjectRow, PartRow};
use super::keypoints::{self, Keypoints};
use crate::error::DaliError;

/// The mapped files as records.
pub(super) struct Tables<'a> {
    pub(super) dir: &'a Path,
    pub(super) header: &'a Header,
    pub(super) images: &'a [ImageRow],
    pub(super) objects: &'a [ObjectRow],
    pub(super) parts: &'a [PartRow],
    pub(super) num_coords: usize,
    pub(super) runs: &'a [u32],
    pub(super) names: &'a [u8],
    pub(super) pixel_bytes: usize,
    pub(super) num_sources: usize,
    pub(super) keypoints: &'a [[f32; 3]],
    pub(super) num_in_columns: usize,
}

/// Reads `header.json`; the version is checked first, since it says how to read the rest.
pub(super) fn read_header(dir: &Path) -> Result<Header, DaliError> {
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

/// Checks the seal, and what the header says by itself.
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
        return Err("its keypoints have no names, or its names no keypoints".into());
    }
    if header.files.contains_key(format::COLUMNS) == header.columns.is_empty() {
        return Err("its columns have no names, or its names no columns".into());
    }
    header.keypoints.as_ref().map_or(Ok(()), Keypoints::check)
}

/// The source key of the store at `dir`; `None` if there is no store, or one without a key.
pub(crate) fn source_of(dir: &Path) -> Option<String> {
    read_header(dir).ok()?.source
}

/// The files of the store at `dir`; `None` if nothing says that it is one. A damaged store is one
/// too: its header may be lost, or one of its keys.
pub(crate) fn manifest(dir: &Path) -> Option<Vec<PathBuf>> {
    let text = std::fs::read(dir.join(format::HEADER)).unwrap_or_default();
    let names: Vec<&str> = match serde_json::from_slice::<serde_json::Value>(&text) {
        Ok(header) => {
            let is_there = |key: &&str| header.get(key).is_some();
            let keys = ["version", "categories", "num_images", "capacities", "files"];
            if keys.iter().filter(|key| is_there(key)).count() + 1 < keys.len() {
                return None;
            }
            let files = header.get("files").and_then(serde_json::Value::as_object);
            let is_listed = |name: &&str| files.is_none_or(|files| files.contains_key(*name));
            format::DATA_FILES.into_iter().filter(is_listed).collect()
        }
        // Without a readable header, the data files next to it are evidence of a store.
        Err(_) => {
            let is_there = |name: &&str| dir.join(name).is_file();
            let present = format::DATA_FILES.iter().filter(|name| is_there(name)).count();
            if 2 * present < format::DATA_FILES.len() {
                return None;
            }
            format::DATA_FILES.into()
        }
    };
    Some(names.into_iter().chain([format::HEADER]).map(PathBuf::from).collect())
}

/// A file that is missing from a folder that exists is damage.
pub(super) fn missing_in(dir: &Path, file: &'static str, error: DaliError) -> DaliError {
    match error {
        DaliError::Io { source, .. } if source.kind() == ErrorKind::NotFound && dir.is_dir() => {
            fault_in(dir, file, "it is missing")
        }
        error => error,
    }
}

/// Compares length and, if asked, checksum of one file with the header's.
pub(super) fn check_file(
    dir: &Path,
    header: &Header,
    name: &'static str,
    bytes: &[u8],
    with_checksum: bool,
) -> Result<(), DaliError> {
    let Some(expected) = header.files.get(name) else {
        return Err(fault_in(dir, name, format!("not listed in {}", format::HEADER)));
    };
    if bytes.len() as u64 != expected.bytes {
        let fault = format!("{} bytes long, the header says {}", bytes.len(), expected.bytes);
        return Err(fault_in(dir, name, fault));
    }
    if with_checksum && crc32fast::hash(bytes) != expected.crc32 {
        return Err(fault_in(dir, name, "its checksum does not match the header's"));
    }
    Ok(())
}

/// Checks the index: sizes, names, the places of pixels and objects, and the counts in the header.
/// Reads no object.
pub(super) fn check_images(tables: &Tables<'_>) -> Result<(), DaliError> {
    let Tables { dir, header, .. } = *tables;
    let (mut next_object, mut num_empty) = (0, 0);
    for (idx, image) in tables.images.iter().enumerate() {
        let image_fault =
            |fault: &str| fault_in(dir, format::IMAGES, format!("record {idx}: {fault}"));
        check_image(image, tables).map_err(image_fault)?;
        if image.first_object != next_object {
            return Err(image_fault("its objects do not follow the previous image's"));
        }
        next_object += u64::from(image.num_objects);
        let objects = in_bounds(image.first_object, image.num_objects.into(), tables.objects)
            .ok_or_else(|| image_fault("its objects lie outside objects.bin"))?;
        num_empty += usize::from(objects.is_empty());
    }
    check_lengths(tables)?;
    let counts = [tables.images.len(), next_object as usize, num_empty];
    let said = [header.num_images, header.num_annotations, header.num_empty_images];
    if counts != said || tables.objects.len() != next_object as usize {
        return Err(wrong_counts(dir));
    }
    Ok(())
}

/// Checks every object of an index that [`check_images`] has passed, and the counts and capacities
/// in the header. Reads no mask.
pub(super) fn check_objects(tables: &Tables<'_>) -> Result<(), DaliError> {
    let Tables { dir, header, .. } = *tables;
    let mut next = Next::default();
    let mut capacities = Capacities::default();
    let mut num_crowd = 0;
    let mut num_without_mask = 0;
    for image in tables.images {
        let objects = in_bounds(image.first_object, image.num_objects.into(), tables.objects);
        let objects = objects.unwrap_or_default();
        let mut of_image = Capacities {
            pixels: image.height as usize * image.width as usize,
            ..Capacities::default()
        };
        for object in objects {
            let parts = check_object(object, &mut next, tables).map_err(|fault| {
                let id = object.annotation_id;
                fault_in(dir, format::OBJECTS, format!("annotation {id}: {fault}"))
            })?;
            num_crowd += usize::from(object.crowd != 0);
            num_without_mask += usize::from(parts.is_empty());
            if object.crowd == 0 {
                let values = parts.iter().map(|part| part.len as usize).sum::<usize>();
                of_image.objects += 1;
                of_image.parts += parts.len();
                *if object.kind == format::KIND_RUNS {
                    &mut of_image.runs
                } else {
                    &mut of_image.coords
                } += values;
            }
        }
        capacities = capacities.max(of_image);
    }
    let fits = |count: usize| i32::try_from(count).is_ok();
    let Capacities { objects, parts, coords, runs, .. } = capacities;
    if ![objects, parts, coords, runs].into_iter().all(fits) {
        let fault = "an image has more than 2^31 objects or values";
        return Err(fault_in(dir, format::HEADER, fault));
    }
    let said = (header.num_crowd, header.num_without_mask, header.capacities);
    if (num_crowd, num_without_mask, capacities) != said {
        return Err(wrong_counts(dir));
    }
    Ok(())
}

fn wrong_counts(dir: &Path) -> DaliError {
    fault_in(dir, format::HEADER, "its counts or capacities are not those of the records")
}

/// Checks that the sources have one record per image, and the keypoints a table per object.
fn check_lengths(tables: &Tables<'_>) -> Result<(), DaliError> {
    let Tables { dir, header, .. } = *tables;
    let num_images = tables.images.len();
    if tables.num_sources != num_images {
        let fault = format!("it does not have one record for each of {num_images} images");
        return Err(fault_in(dir, format::SOURCES, fault));
    }
    let width = columns::width(&header.columns);
    if Some(tables.num_in_columns) != width.checked_mul(tables.objects.len()) {
        let fault = format!("it does not have {width} numbers for each object");
        return Err(fault_in(dir, format::COLUMNS, fault));
    }
    let num_named = header.keypoints.as_ref().map_or(0, |keypoints| keypoints.names.len());
    if Some(tables.keypoints.len()) != num_named.checked_mul(tables.objects.len()) {
        let fault = format!("it does not have {num_named} keypoints for each object");
        return Err(fault_in(dir, format::KEYPOINTS, fault));
    }
    Ok(())
}

/// Checks the runs of records that [`check_objects`] has passed.
pub(super) fn check_runs(tables: &Tables<'_>) -> Result<(), DaliError> {
    for image in tables.images {
        let pixels = u64::from(image.height) * u64::from(image.width);
        let objects = in_bounds(image.first_object, image.num_objects.into(), tables.objects);
        let objects = objects.into_iter().flatten();
        for object in objects.filter(|object| object.kind == format::KIND_RUNS) {
            let parts = in_bounds(object.first_part, object.num_parts.into(), tables.parts);
            let runs = parts
                .into_iter()
                .flatten()
                .filter_map(|part| in_bounds(part.offset, part.len, tables.runs));
            if runs.flatten().map(|run| u64::from(*run)).sum::<u64>() != pixels {
                let fault =
                    format!("annotation {}: its runs do not cover the image", object.annotation_id);
                return Err(fault_in(tables.dir, format::OBJECTS, fault));
            }
        }
    }
    Ok(())
}

/// Checks the values of the keypoints of records that [`check_objects`] has passed, and their count
/// in the header.
pub(super) fn check_keypoints(tables: &Tables<'_>) -> Result<(), DaliError> {
    let Tables { dir, header, .. } = *tables;
    let num_named = header.keypoints.as_ref().map_or(1, |keypoints| keypoints.names.len());
    let mut num_with_keypoints = 0;
    for (object, own) in tables.objects.iter().zip(tables.keypoints.chunks(num_named)) {
        if !own.iter().all(keypoints::is_sound) {
            let fault = format!(
                "annotation {}: a keypoint is no place, or of a visibility other than 0, 1 and 2",
                object.annotation_id
            );
            return Err(fault_in(dir, format::KEYPOINTS, fault));
        }
        num_with_keypoints += usize::from(object.crowd == 0 && keypoints::is_labelled(own));
    }
    if num_with_keypoints != header.num_with_keypoints {
        let fault = "its count of objects with keypoints is not that of the records";
        return Err(fault_in(dir, format::HEADER, fault));
    }
    Ok(())
}

/// Where the next records and values begin: all lie in order and without overlap, so a store takes
/// no more memory than its files have bytes.
#[derive(Default)]
struct Next {
    part: u64,
    coord: u64,
    run: u64,
}

fn check_image(image: &ImageRow, tables: &Tables<'_>) -> Result<(), &'static str> {
    let pixels = u64::from(image.height) * u64::from(image.width);
    if pixels == 0 {
        return Err("an image without pixels");
    }
    if end_of(image.pixel_offset, image.pixel_len).is_none_or(|end| end > tables.pixel_bytes) {
        return Err("its pixels lie outside pixels.bin");
    }
    match image.encoding {
        format::ENCODING_JPEG => {}
        format::ENCODING_RAW if pixels.checked_mul(3) == Some(image.pixel_len) => {}
        format::ENCODING_RAW => return Err("its raw pixels do not have its size"),
        _ => return Err("an unknown pixel encoding"),
    }
    let name = in_bounds(image.name_offset, image.name_len.into(), tables.names)
        .ok_or("its name lies outside names.bin")?;
    std::str::from_utf8(name).map(|_| ()).map_err(|_| "its name is not UTF-8")
}

/// Checks one object and returns its parts.
fn check_object<'a>(
    object: &ObjectRow,
    next: &mut Next,
    tables: &Tables<'a>,
) -> Result<&'a [PartRow], &'static str> {
    if !(1..=tables.header.categories.len()).contains(&(object.label as usize)) {
        return Err("its label is no category");
    }
    if object.first_part != next.part {
        return Err("its parts do not follow the previous object's");
    }
    let parts = in_bounds(object.first_part, object.num_parts.into(), tables.parts)
        .ok_or("its parts lie outside parts.bin")?;
    next.part += parts.len() as u64;
    match object.kind {
        format::KIND_POLYGONS => {
            for part in parts {
                let fits =
                    end_of(part.offset, part.len).is_some_and(|end| end <= tables.num_coords);
                if !fits || !part.len.is_multiple_of(2) {
                    return Err("a polygon lies outside coords.bin or has half a vertex");
                }
                if part.offset != next.coord {
                    return Err("its polygons do not follow the previous object's");
                }
                next.coord += part.len;
            }
        }
        format::KIND_RUNS => {
            let [part] = parts else { return Err("runs in other than one part") };
            in_bounds(part.offset, part.len, tables.runs).ok_or("its runs lie outside runs.bin")?;
            if part.offset != next.run {
                return Err("its runs do not follow the previous object's");
            }
            next.run += part.len;
        }
        _ => return Err("an unknown kind of segmentation"),
    }
    Ok(parts)
}

fn end_of(offset: u64, len: u64) -> Option<usize> {
    usize::try_from(offset.checked_add(len)?).ok()
}

fn in_bounds<T>(offset: u64, len: u64, values: &[T]) -> Option<&[T]> {
    values.get(usize::try_from(offset).ok()?..end_of(offset, len)?)
}

pub(super) fn fault_in(dir: &Path, file: &'static str, fault: impl Into<String>) -> DaliError {
    DaliError::Store { path: dir.to_path_buf(), file, fault: fault.into() }
}
