//! Options of `onegraph prep`.

use std::path::PathBuf;

use choices::{EmptyImages, PixelEncoding};

use crate::decode::{self, Exif};
use crate::error::DaliError;
use crate::store::Column;

/// How objects without a mask are treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Masks {
    /// Objects without a segmentation are dropped and counted.
    #[default]
    Required,
    /// Objects without a segmentation are stored with their box only.
    Optional,
}

/// Options of [`super::run`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrepOptions {
    /// Directory of the image files.
    pub images: PathBuf,
    /// COCO annotation file.
    pub annotations: PathBuf,
    /// The store to write.
    pub out: PathBuf,
    /// How pixels are stored; default JPEG.
    pub pixels: PixelEncoding,
    /// How images without objects are treated; default keep.
    pub empty: EmptyImages,
    /// How objects without a mask are treated; default required.
    pub masks: Masks,
    /// How an EXIF rotation is treated; default ignored.
    pub exif: Exif,
    /// Messages of the annotation reader, which are stored as well; default none.
    pub notes: Vec<String>,
    /// Additional numeric lists in COCO annotations, which are stored as well; default none.
    pub columns: Vec<Column>,
    /// Replace an existing store at `out`; default no.
    pub overwrite: bool,
    /// Drop unreadable images instead of failing; default no.
    pub skip_bad_images: bool,
    /// Largest image that is decoded, in pixels; default [`crate::decode::MAX_PIXELS`].
    pub max_image_pixels: usize,
    /// Short side in training, in pixels, for the padding report; default 800.
    pub min_size: u32,
    /// Maximum long side in training, in pixels, for the padding report; default 1333.
    pub max_size: u32,
}

impl PrepOptions {
    /// The defaults, for these paths.
    pub fn new(
        images: impl Into<PathBuf>,
        annotations: impl Into<PathBuf>,
        out: impl Into<PathBuf>,
    ) -> PrepOptions {
        PrepOptions {
            images: images.into(),
            annotations: annotations.into(),
            out: out.into(),
            pixels: PixelEncoding::Jpeg,
            empty: EmptyImages::Keep,
            masks: Masks::default(),
            exif: Exif::default(),
            notes: Vec::new(),
            columns: Vec::new(),
            overwrite: false,
            skip_bad_images: false,
            max_image_pixels: decode::MAX_PIXELS,
            min_size: 800,
            max_size: 1333,
        }
    }

    pub(super) fn check(&self) -> Result<(), DaliError> {
        if self.min_size == 0 || self.max_size < self.min_size {
            return Err(DaliError::Option {
                option: "min_size, max_size",
                got: format!("{}, {}", self.min_size, self.max_size),
                expected: "must be positive and in ascending order",
            });
        }
        Ok(())
    }
}
