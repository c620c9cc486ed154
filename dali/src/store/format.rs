//! The binary format of a store: the header and the fixed-size records.

use std::collections::BTreeMap;
use std::time::UNIX_EPOCH;

use bytemuck::{Pod, Zeroable};
pub use choices::PixelEncoding;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::columns::Column;
use super::keypoints::Keypoints;

/// Version of the format.
pub const FORMAT_VERSION: u32 = 2;

pub(crate) const HEADER: &str = "header.json";
pub(crate) const IMAGES: &str = "images.bin";
pub(crate) const OBJECTS: &str = "objects.bin";
pub(crate) const PARTS: &str = "parts.bin";
pub(crate) const COORDS: &str = "coords.bin";
pub(crate) const RUNS: &str = "runs.bin";
pub(crate) const NAMES: &str = "names.bin";
pub(crate) const PIXELS: &str = "pixels.bin";
pub(crate) const SOURCES: &str = "sources.bin";
/// Exists only in a store with keypoints.
pub(crate) const KEYPOINTS: &str = "keypoints.bin";
/// Exists only in a store with columns.
pub(crate) const COLUMNS: &str = "columns.bin";
/// The data files, whose length and checksum are in the header, with their bytes per record.
pub(crate) const DATA_FILES: [(&str, usize); 10] = [
    (IMAGES, size_of::<ImageRow>()),
    (OBJECTS, size_of::<ObjectRow>()),
    (PARTS, size_of::<PartRow>()),
    (COORDS, size_of::<f32>()),
    (RUNS, size_of::<u32>()),
    (NAMES, 1),
    (PIXELS, 1),
    (SOURCES, size_of::<SourceRow>()),
    (KEYPOINTS, size_of::<[f32; 3]>()),
    (COLUMNS, size_of::<f32>()),
];

/// One class of objects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Category {
    /// Name of the category; unique in a store.
    pub name: String,
    /// Id in the annotation file; ids may have gaps.
    pub coco_id: u64,
    /// Label in training: 1..K without gaps, in the order of the COCO ids.
    pub label: u32,
}

/// Maxima over images. Except for pixels, only objects that are not crowds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capacities {
    /// Objects.
    pub objects: usize,
    /// Polygon rings and run lists.
    pub parts: usize,
    /// Polygon coordinates, in f32 values (two per vertex).
    pub coords: usize,
    /// Run lengths.
    pub runs: usize,
    /// Source pixels, `H * W`.
    pub pixels: usize,
}

impl Capacities {
    /// The field-wise maximum.
    #[must_use]
    pub fn max(self, other: Capacities) -> Capacities {
        Capacities {
            objects: self.objects.max(other.objects),
            parts: self.parts.max(other.parts),
            coords: self.coords.max(other.coords),
            runs: self.runs.max(other.runs),
            pixels: self.pixels.max(other.pixels),
        }
    }

    /// Adds an object with `parts` parts, which have `values` values in total. Crowd objects do not
    /// count: training omits them, so slots need no space for them.
    pub(super) fn add(&mut self, is_crowd: bool, kind: u32, parts: usize, values: usize) {
        if is_crowd {
            return;
        }
        self.objects += 1;
        self.parts += parts;
        match kind {
            KIND_RUNS => self.runs += values,
            _ => self.coords += values,
        }
    }
}

/// Length and checksum of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileInfo {
    /// Length in bytes.
    pub bytes: u64,
    /// CRC-32 (IEEE) of all bytes.
    pub crc32: u32,
}

/// `header.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    /// [`FORMAT_VERSION`] with which the store was written.
    pub version: u32,
    /// Classes, by label.
    pub categories: Vec<Category>,
    /// Images.
    pub num_images: usize,
    /// Objects, including crowds.
    pub num_annotations: usize,
    /// Crowd objects: used for evaluation, but not for training.
    pub num_crowd: usize,
    /// Objects with a box but no mask; they cannot be used to train masks.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_without_mask: usize,
    /// Objects that are not crowds and have a keypoint of visibility 1 or 2.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_with_keypoints: usize,
    /// Images without any object.
    pub num_empty_images: usize,
    /// Images whose file has an EXIF rotation that was applied (`prep --exif apply`).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_turned: usize,
    /// Images whose file has an EXIF rotation that was not applied.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub num_unturned: usize,
    /// Names and skeleton of the objects' keypoints, if they have any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keypoints: Option<Keypoints>,
    /// Columns with additional numbers of the objects.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// The requested pixel encoding.
    pub pixels: PixelEncoding,
    /// The maxima over images.
    pub capacities: Capacities,
    /// Length and checksum of each data file.
    pub files: BTreeMap<String, FileInfo>,
    /// Key of the sources ([`crate::prep::source_key`]); absent in stores of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// True if the reader assigned the image ids in the order of the paths, so that ids change when
    /// a file is added. Absent if the ids come from a COCO file, and in older stores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ids_by_path: bool,
    /// Warnings about the source data, which are printed whenever the store is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub doubts: Vec<String>,
    /// SHA-256 of the header without the seal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<String>,
}

impl Header {
    /// The header with its seal, ready to be written.
    ///
    /// # Errors
    /// If the header cannot be serialized to JSON.
    pub fn sealed(mut self) -> Result<Header, serde_json::Error> {
        self.seal = Some(self.digest()?);
        Ok(self)
    }

    /// Keypoints per object.
    pub(super) fn num_keypoints(&self) -> usize {
        self.keypoints.as_ref().map_or(0, |keypoints| keypoints.names.len())
    }

    /// The data files that this store has, with their bytes per record.
    pub(super) fn data_files(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let (has_keypoints, has_columns) = (self.keypoints.is_some(), !self.columns.is_empty());
        DATA_FILES.into_iter().filter(move |(name, _)| match *name {
            KEYPOINTS => has_keypoints,
            COLUMNS => has_columns,
            _ => true,
        })
    }

    /// True if the header matches its seal.
    pub(super) fn is_as_sealed(&self) -> Result<bool, serde_json::Error> {
        Ok(self.seal == Some(self.digest()?))
    }

    fn digest(&self) -> Result<String, serde_json::Error> {
        let unsealed = Header { seal: None, ..self.clone() };
        let digest = Sha256::digest(serde_json::to_vec(&unsealed)?);
        Ok(hex::encode(digest))
    }
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// `objects.bin`: the segmentation is polygons.
pub(crate) const KIND_POLYGONS: u32 = 0;
/// `objects.bin`: the segmentation is one run list.
pub(crate) const KIND_RUNS: u32 = 1;
/// `images.bin`: pixels are JPEG bytes.
pub(crate) const ENCODING_JPEG: u16 = 0;
/// `images.bin`: pixels are RGB u8.
pub(crate) const ENCODING_RAW: u16 = 1;
/// `images.bin`: no object of the image has a box with both sides longer than one pixel.
pub(crate) const EXTENT_NONE: u16 = 1;
/// `images.bin`: an object of the image has a box with both sides longer than one pixel.
pub(crate) const EXTENT_SOME: u16 = 2;

/// The `extent` of an image; `boxes` are the boxes of its objects, including crowds.
pub(crate) fn extent_of(mut boxes: impl Iterator<Item = [f32; 4]>) -> u16 {
    let is_some = boxes.any(|[_, _, width, height]| width > 1.0 && height > 1.0);
    if is_some { EXTENT_SOME } else { EXTENT_NONE }
}

/// One record of `images.bin`, 64 bytes.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ImageRow {
    pub(crate) image_id: u64,
    /// Byte offset in `pixels.bin`.
    pub(crate) pixel_offset: u64,
    pub(crate) pixel_len: u64,
    /// Byte offset in `names.bin`.
    pub(crate) name_offset: u64,
    pub(crate) first_object: u64,
    pub(crate) num_objects: u32,
    pub(crate) name_len: u32,
    pub(crate) height: u32,
    pub(crate) width: u32,
    pub(crate) encoding: u16,
    /// Result of [`extent_of`]; 0 in stores of older versions.
    pub(crate) extent: u16,
    /// CRC-32C of the image's bytes in `pixels.bin`.
    pub(crate) pixel_crc32c: u32,
}

/// One record of `objects.bin`, 56 bytes.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct ObjectRow {
    pub(crate) annotation_id: u64,
    pub(crate) first_part: u64,
    pub(crate) num_parts: u32,
    pub(crate) label: u32,
    pub(crate) crowd: u32,
    pub(crate) kind: u32,
    pub(crate) area: f32,
    pub(crate) bbox_xywh: [f32; 4],
    pub(crate) reserved: u32,
}

/// One record of `parts.bin`, 16 bytes: a range of values in `coords.bin` or, for runs, in
/// `runs.bin`.
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct PartRow {
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// One record of `sources.bin`, 16 bytes: size and time of the image file when it was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(crate) struct SourceRow {
    pub(crate) bytes: u64,
    /// Modification time, in nanoseconds since 1970.
    pub(crate) modified_ns: u64,
}

impl SourceRow {
    pub(crate) fn of(meta: &std::fs::Metadata) -> SourceRow {
        let changed = meta.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let modified_ns = changed.map_or(0, |time| time.as_nanos() as u64);
        SourceRow { bytes: meta.len(), modified_ns }
    }
}
