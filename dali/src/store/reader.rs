//! Reads an open store, whose contents have been checked, through slices of the mapping.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use rayon::prelude::*;

use super::columns;
use super::format::{
    self, Header, ImageRow, KIND_POLYGONS, ObjectRow, PartRow, PixelEncoding, SourceRow,
};
use super::mmap::Mapped;
use crate::decode::{self, DecodeFault};
use crate::error::DaliError;

/// An open store; cheap to share between threads (`Arc<Store>`).
#[derive(Debug)]
pub struct Store {
    pub(super) path: PathBuf,
    pub(super) header: Header,
    pub(super) files: BTreeMap<&'static str, Mapped>,
    pub(super) arrival: Option<Arc<dyn Arrival>>,
    /// True if only the index has been checked, not the objects.
    pub(super) is_index: bool,
}

/// One image of the index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageRecord {
    /// COCO image id.
    pub image_id: u64,
    /// Rows of source pixels.
    pub height: u32,
    /// Columns of source pixels.
    pub width: u32,
    /// Length of the stored pixels in bytes.
    pub pixel_bytes: u64,
    /// How the pixels are stored.
    pub encoding: PixelEncoding,
    /// Indices of the image's objects, including crowds, for [`Store::object`].
    pub objects: Range<usize>,
}

/// One object, borrowed from the mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct ObjectView<'a> {
    /// COCO annotation id.
    pub annotation_id: u64,
    /// Class, 1..K.
    pub label: u32,
    /// True for a crowd object, which is only used in evaluation.
    pub crowd: bool,
    /// Area in source pixels, from the annotation file.
    pub area: f32,
    /// x, y, width, height in source pixels, clipped to the image.
    pub bbox_xywh: [f32; 4],
    /// The mask.
    pub segmentation: Segmentation<'a>,
    /// x, y in source pixels and visibility (0, 1 or 2) of each of the store's keypoints. All three
    /// are 0 for a keypoint of visibility 0, and for all keypoints of an object without any. Empty
    /// if the store has no keypoints.
    pub keypoints: &'a [[f32; 3]],
    /// The object's numbers in all columns of the store; see [`super::column`].
    pub columns: &'a [f32],
}

/// The mask of one object, in source pixels.
#[derive(Debug, Clone, PartialEq)]
pub enum Segmentation<'a> {
    /// Polygon rings of x, y pairs; the mask is the union of the rings.
    Polygons(Vec<&'a [f32]>),
    /// Run lengths in column order, beginning with zeros; their sum is `H * W`.
    Runs(&'a [u32]),
}

/// A download of a store's pixels that may still be in progress.
pub trait Arrival: std::fmt::Debug + Send + Sync {
    /// Waits until a range of bytes of `pixels.bin` is available.
    ///
    /// # Errors
    /// A message with the reason if the download failed.
    fn wait(&self, bytes: Range<u64>) -> Result<(), String>;
}

impl Store {
    /// This store with a `pixels.bin` that is still being downloaded (its length is already final).
    /// Reading an image waits until its bytes are available.
    #[must_use]
    pub fn arriving(self, pixels: Arc<dyn Arrival>) -> Store {
        Store { arrival: Some(pixels), ..self }
    }

    /// All errors in the pixels: one per image whose bytes have changed or cannot be decoded; or
    /// one for `pixels.bin` if its checksum differs although no image has an error. Reads and
    /// decodes all images.
    pub fn pixel_faults(&self) -> Vec<DaliError> {
        let decoded: Vec<_> = (0..self.len())
            .into_par_iter()
            .map_init(Vec::new, |out, idx| self.decode_rgb(idx, out))
            .collect();
        let mut faults: Vec<_> = decoded.into_iter().filter_map(Result::err).collect();
        if faults.is_empty() {
            let whole = self.wait_for(0..self.bytes(format::PIXELS).len() as u64);
            faults.extend(whole.and_then(|()| self.check_file(format::PIXELS, true)).err());
        }
        faults
    }

    /// Checks the pixels, which are not checked when a store is opened.
    ///
    /// # Errors
    /// The first error of [`Store::pixel_faults`].
    pub fn verify_all(&self) -> Result<(), DaliError> {
        self.pixel_faults().into_iter().next().map_or(Ok(()), Err)
    }

    /// Path of the store.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of images.
    pub fn len(&self) -> usize {
        self.header.num_images
    }

    /// True if the store has no images.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Image `idx`, in the order of image ids. Panics if `idx` is not below [`Store::len`].
    pub fn image(&self, idx: usize) -> ImageRecord {
        let row = self.image_row(idx);
        let first = row.first_object as usize;
        ImageRecord {
            image_id: row.image_id,
            height: row.height,
            width: row.width,
            pixel_bytes: row.pixel_len,
            encoding: match row.encoding {
                format::ENCODING_JPEG => PixelEncoding::Jpeg,
                _ => PixelEncoding::Raw,
            },
            objects: first..first + row.num_objects as usize,
        }
    }

    /// True if an object of image `idx`, crowds included, has a box with both sides longer than one
    /// pixel: torchvision and maskrcnn-benchmark train only on such images. Panics if `idx` is not
    /// below [`Store::len`].
    ///
    /// # Errors
    /// [`DaliError::Store`] if an older version wrote the store, and only the index was opened.
    pub fn has_extent(&self, idx: usize) -> Result<bool, DaliError> {
        let boxes = |obj: usize| self.object_rows()[obj].bbox_xywh;
        match self.image_row(idx).extent {
            0 if self.is_index => Err(self.fault(
                format::IMAGES,
                "an older version wrote it without noting which images have objects, which a \
                 timed run reads before its clock starts",
            )),
            0 => Ok(format::extent_of(self.image(idx).objects.map(boxes)) == format::EXTENT_SOME),
            extent => Ok(extent == format::EXTENT_SOME),
        }
    }

    /// File name of image `idx`, as in the annotation file. Panics if `idx` is not below
    /// [`Store::len`].
    pub fn file_name(&self, idx: usize) -> &str {
        let row = self.image_row(idx);
        let bytes = &self.bytes(format::NAMES)[range(row.name_offset, u64::from(row.name_len))];
        // The name is valid UTF-8, which was checked when the store was opened.
        std::str::from_utf8(bytes).unwrap_or_default()
    }

    /// Decodes image `idx` into `out`, `[H, W, 3]` RGB u8; `out` is resized.
    ///
    /// # Errors
    /// [`DaliError::StorePixels`] if the pixels are damaged.
    pub fn decode_rgb(&self, idx: usize, out: &mut Vec<u8>) -> Result<(), DaliError> {
        let row = self.image_row(idx);
        out.resize(row.height as usize * row.width as usize * 3, 0);
        self.decode_rgb_into(idx, out)
    }

    /// Decodes image `idx` into `out`, which must have exactly `H * W * 3` bytes.
    ///
    /// # Errors
    /// [`DaliError::StorePixels`] if the pixels are damaged or have changed, or `out` has the wrong
    /// size; [`DaliError::Truncated`] if the file was truncated after the store was opened.
    pub fn decode_rgb_into(&self, idx: usize, out: &mut [u8]) -> Result<(), DaliError> {
        let row = self.image_row(idx);
        self.wait_for(row.pixel_offset..row.pixel_offset + row.pixel_len)?;
        let stored = &self.bytes(format::PIXELS)[range(row.pixel_offset, row.pixel_len)];
        let result = if crc32c::crc32c(stored) != row.pixel_crc32c {
            Err(DecodeFault::Checksum)
        } else if row.encoding == format::ENCODING_JPEG {
            decode::decode_rgb_into(stored, out).map(drop)
        } else if stored.len() == out.len() {
            out.copy_from_slice(stored);
            Ok(())
        } else {
            Err(DecodeFault::Size { need: stored.len(), have: out.len() })
        };
        result.map_err(|fault| DaliError::StorePixels {
            path: self.path.clone(),
            image_id: row.image_id,
            file_name: self.file_name(idx).to_string(),
            fault,
        })
    }

    /// Checks that `pixels.bin` has not been truncated, and waits for these bytes if it is still
    /// being downloaded.
    fn wait_for(&self, bytes: Range<u64>) -> Result<(), DaliError> {
        if let Some(pixels) = self.files.get(format::PIXELS) {
            pixels.check_length(&self.path.join(format::PIXELS))?;
        }
        let Some(arrival) = &self.arrival else { return Ok(()) };
        arrival.wait(bytes).map_err(|fault| self.fault(format::PIXELS, &fault))
    }

    pub(super) fn fault(&self, file: &'static str, fault: &str) -> DaliError {
        fault_in(&self.path, file, fault)
    }

    /// CRC-32C of the stored bytes of image `idx`. Panics if `idx` is not below [`Store::len`].
    pub fn pixel_checksum(&self, idx: usize) -> u32 {
        self.image_row(idx).pixel_crc32c
    }

    /// Object `obj`, counted over the whole store (see [`ImageRecord::objects`]). Panics if there
    /// is no such object.
    pub fn object(&self, obj: usize) -> ObjectView<'_> {
        let row = self.object_rows()[obj];
        let parts = self.records::<PartRow>(format::PARTS);
        let parts = &parts[range(row.first_part, u64::from(row.num_parts))];
        let segmentation = if row.kind == KIND_POLYGONS {
            let coords = self.records::<f32>(format::COORDS);
            let ring = |part: &PartRow| &coords[range(part.offset, part.len)];
            Segmentation::Polygons(parts.iter().map(ring).collect())
        } else {
            let runs = self.records::<u32>(format::RUNS);
            Segmentation::Runs(&runs[range(parts[0].offset, parts[0].len)])
        };
        let width = columns::width(&self.header.columns);
        ObjectView {
            annotation_id: row.annotation_id,
            label: row.label,
            crowd: row.crowd != 0,
            area: row.area,
            bbox_xywh: row.bbox_xywh,
            segmentation,
            keypoints: self.keypoints_of(obj),
            columns: &self.records(format::COLUMNS)[obj * width..][..width],
        }
    }

    pub(super) fn keypoints_of(&self, obj: usize) -> &[[f32; 3]] {
        let count = self.header.num_keypoints();
        &self.all_keypoints()[obj * count..][..count]
    }

    /// The keypoints of all objects, consecutively.
    pub(super) fn all_keypoints(&self) -> &[[f32; 3]] {
        self.records(format::KEYPOINTS)
    }

    /// Size and time of each image's file when the image was stored.
    pub(super) fn source_rows(&self) -> &[SourceRow] {
        self.records(format::SOURCES)
    }

    pub(super) fn object_rows(&self) -> &[ObjectRow] {
        self.records(format::OBJECTS)
    }

    pub(super) fn image_rows(&self) -> &[ImageRow] {
        self.records(format::IMAGES)
    }

    fn image_row(&self, idx: usize) -> ImageRow {
        self.image_rows()[idx]
    }

    /// All records of a file, whose length was checked when the store was opened; empty if the
    /// store has no such file.
    pub(super) fn records<T: AnyBitPattern>(&self, file: &str) -> &[T] {
        self.files.get(file).and_then(Mapped::records).unwrap_or(&[])
    }

    pub(super) fn bytes(&self, file: &str) -> &[u8] {
        self.records(file)
    }
}

/// An error in a file of the store at `dir`.
pub(super) fn fault_in(dir: &Path, file: &'static str, fault: impl Into<String>) -> DaliError {
    DaliError::Store { path: dir.to_path_buf(), file, fault: fault.into() }
}

fn range(offset: u64, len: u64) -> Range<usize> {
    offset as usize..(offset + len) as usize
}
