//! Decodes image files to RGB: JPEG with zune-jpeg; PNG, BMP, TIFF and WebP with `image`. Grey
//! becomes RGB.
//!
//! Pixels are returned in the file's orientation, to which COCO annotations refer. An EXIF rotation
//! is reported, and only applied if `prep` requests it.

mod foreign;
mod jpeg;
mod other;
mod png;

use std::panic::{AssertUnwindSafe, catch_unwind};

use image::metadata::Orientation;
use image::{DynamicImage, RgbImage};
use serde::{Deserialize, Serialize};

/// How an EXIF rotation is treated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exif {
    /// Pixels keep the file's orientation, to which COCO annotations refer; the rotation is
    /// reported.
    #[default]
    Ignore,
    /// `prep` rotates the pixels and stores them uncompressed; for annotations that refer to the
    /// displayed orientation.
    Apply,
}

/// File format, detected from the first bytes; the file name is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// JPEG, baseline or progressive.
    Jpeg,
    /// PNG with any bit depth and colour type.
    Png,
    /// BMP.
    Bmp,
    /// TIFF with 8 bits per channel.
    Tiff,
    /// WebP, without animation.
    WebP,
}

/// The header of an image file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageInfo {
    /// File format.
    pub format: ImageFormat,
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
    /// EXIF orientation (2 to 8) if it is a rotation or flip; `None` if it is 1 or absent.
    pub exif_orientation: Option<u16>,
}

/// The reason why a file cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// A common format that is not supported.
    #[error("is {0}; onegraph reads JPEG, PNG, BMP, TIFF and WebP: convert it")]
    Unsupported(&'static str),
    /// The first bytes do not match any known format.
    #[error("is neither JPEG nor PNG, BMP, TIFF or WebP")]
    UnknownFormat,
    /// An unsupported colour type.
    #[error("{0}; onegraph reads RGB and grey of 8 bits: convert it")]
    Colours(&'static str),
    /// The file is truncated.
    #[error("is truncated: the picture does not end within its {0} bytes")]
    Truncated(usize),
    /// The file declares more pixels than allowed, or none.
    #[error(
        "declares {height}x{width} pixels (height x width), but 1 to {max} are allowed \
        (data.max_image_pixels, --max-image-pixels)"
    )]
    Pixels {
        /// Rows of pixels.
        height: u32,
        /// Columns of pixels.
        width: u32,
        /// The limit.
        max: usize,
    },
    /// The decoder failed.
    #[error("does not decode: {0}")]
    Corrupt(String),
    /// The bytes in the store have changed since they were written.
    #[error("its checksum does not match: the bytes changed after they were stored")]
    Checksum,
    /// The caller's buffer has the wrong size.
    #[error("decodes to {need} bytes where {have} were expected")]
    Size {
        /// Bytes of the picture.
        need: usize,
        /// Bytes of the buffer.
        have: usize,
    },
}

/// Maximum number of pixels that [`probe`] accepts, 512 MiB as RGB: PIL's limit against
/// decompression bombs.
pub const MAX_PIXELS: usize = 178_956_970;

/// [`probe_within`] with the limit [`MAX_PIXELS`].
///
/// # Errors
/// As [`probe_within`].
pub fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    probe_within(bytes, MAX_PIXELS)
}

/// Reads format, size and orientation, and checks that a JPEG has its end marker. Allocates no
/// memory for pixels, whichever size the file declares.
///
/// # Errors
/// [`DecodeFault`] if the file has an unsupported format, is truncated, has no size, or declares
/// more than `max_pixels` pixels.
pub fn probe_within(bytes: &[u8], max_pixels: usize) -> Result<ImageInfo, DecodeFault> {
    let mut info = match format_of(bytes)? {
        ImageFormat::Jpeg => jpeg::probe(bytes)?,
        ImageFormat::Png => png::probe(bytes)?,
        format => guarded(|| other::probe(format, bytes))?,
    };
    info.exif_orientation = info.exif_orientation.filter(|turn| (2..=8).contains(turn));
    within(info.height, info.width, max_pixels)?;
    Ok(info)
}

/// Height and width of an image file, of which `bytes` may be only the beginning.
///
/// # Errors
/// [`DecodeFault`] if the bytes have an unsupported format, contain no size, or declare more than
/// `max_pixels` pixels.
pub(crate) fn size_within(bytes: &[u8], max_pixels: usize) -> Result<[u32; 2], DecodeFault> {
    let (height, width) = match format_of(bytes)? {
        ImageFormat::Jpeg => jpeg::size(bytes).ok_or(DecodeFault::Truncated(bytes.len()))?,
        ImageFormat::Png => png::size(bytes)?,
        format => guarded(|| other::probe(format, bytes)).map(|info| (info.height, info.width))?,
    };
    within(height, width, max_pixels)?;
    Ok([height, width])
}

fn within(height: u32, width: u32, max: usize) -> Result<(), DecodeFault> {
    match (1..=max as u64).contains(&(u64::from(height) * u64::from(width))) {
        true => Ok(()),
        false => Err(DecodeFault::Pixels { height, width, max }),
    }
}

/// Decodes into `out`, `[H, W, 3]` RGB u8; `out` must have exactly that size. If the conversion to
/// 8 bits loses levels, returns a message for the user, to be printed after the file name.
///
/// # Errors
/// [`DecodeFault`] if the file does not decode or `out` has the wrong size.
pub fn decode_rgb_into(bytes: &[u8], out: &mut [u8]) -> Result<Option<String>, DecodeFault> {
    let format = format_of(bytes)?;
    guarded(|| match format {
        ImageFormat::Jpeg => jpeg::decode_rgb_into(bytes, out).map(|()| None),
        format => other::decode_rgb_into(format, bytes, out),
    })
}

/// Converts a decoder's panic into an error, so that one malicious file does not end a command that
/// reads many files.
fn guarded<T>(decode: impl FnOnce() -> Result<T, DecodeFault>) -> Result<T, DecodeFault> {
    let decoded = catch_unwind(AssertUnwindSafe(decode));
    decoded.unwrap_or_else(|_| Err(DecodeFault::Corrupt("the decoder panics on it".to_string())))
}

/// Height and width of a picture after the EXIF orientation `turn` is applied.
pub fn turned_size([height, width]: [u32; 2], turn: Option<u16>) -> [u32; 2] {
    if turn.is_some_and(|turn| turn >= 5) { [width, height] } else { [height, width] }
}

/// RGB pixels `[H, W, 3]` after the EXIF orientation `turn` (2 to 8) is applied.
pub fn turned(rgb: Vec<u8>, [height, width]: [u32; 2], turn: u16) -> Vec<u8> {
    let orientation = u8::try_from(turn).ok().and_then(Orientation::from_exif);
    let Some(picture) = RgbImage::from_raw(width, height, rgb) else {
        unreachable!("three bytes a pixel were decoded");
    };
    let mut picture = DynamicImage::ImageRgb8(picture);
    picture.apply_orientation(orientation.unwrap_or(Orientation::NoTransforms));
    picture.into_rgb8().into_raw()
}

/// The orientation in EXIF data, which has the format of a TIFF file.
fn orientation(tiff: &[u8]) -> Option<u16> {
    Orientation::from_exif_chunk(tiff).map(|turn| turn.to_exif().into())
}

fn format_of(bytes: &[u8]) -> Result<ImageFormat, DecodeFault> {
    if bytes.starts_with(&[0xFF, 0xD8]) {
        Ok(ImageFormat::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(ImageFormat::Png)
    } else {
        match foreign::name(bytes) {
            Some("BMP") => Ok(ImageFormat::Bmp),
            Some("TIFF") => Ok(ImageFormat::Tiff),
            Some("WebP") => Ok(ImageFormat::WebP),
            Some(name) => Err(DecodeFault::Unsupported(name)),
            None => Err(DecodeFault::UnknownFormat),
        }
    }
}
