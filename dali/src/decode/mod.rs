//! Image files to RGB: JPEG through zune-jpeg, PNG through `image`; grey becomes RGB.
//!
//! Pixels come out as stored in the file. An EXIF rotation is reported but not applied, because
//! COCO annotations refer to the stored orientation.

mod jpeg;
mod png;

/// File format, detected from the first bytes and never from the name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageFormat {
    /// JPEG, baseline or progressive.
    Jpeg,
    /// PNG of any depth and colour type.
    Png,
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

/// Why a file does not decode.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeFault {
    /// The first bytes match neither format.
    #[error("is neither JPEG nor PNG")]
    UnknownFormat,
    /// The file ends before the picture does.
    #[error("is truncated ({0} bytes, no end of the picture)")]
    Truncated(usize),
    /// The decoder failed.
    #[error("does not decode: {0}")]
    Corrupt(String),
    /// The caller's buffer has the wrong size.
    #[error("decodes to {need} bytes where {have} were expected")]
    Size {
        /// Bytes of the picture.
        need: usize,
        /// Bytes of the buffer.
        have: usize,
    },
}

/// Reads format, size and orientation, and checks that a JPEG reaches its end marker.
///
/// # Errors
/// [`DecodeFault`] if the file is of another format, truncated or without a size.
pub fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    match format_of(bytes)? {
        ImageFormat::Jpeg => jpeg::probe(bytes),
        ImageFormat::Png => png::probe(bytes),
    }
}

/// Decodes into `out`, `[H, W, 3]` RGB u8; `out` must have exactly that size.
///
/// # Errors
/// [`DecodeFault`] if the file does not decode or `out` has another size.
pub fn decode_rgb_into(bytes: &[u8], out: &mut [u8]) -> Result<(), DecodeFault> {
    match format_of(bytes)? {
        ImageFormat::Jpeg => jpeg::decode_rgb_into(bytes, out),
        ImageFormat::Png => png::decode_rgb_into(bytes, out),
    }
}

fn format_of(bytes: &[u8]) -> Result<ImageFormat, DecodeFault> {
    if bytes.starts_with(&[0xFF, 0xD8]) {
        Ok(ImageFormat::Jpeg)
    } else if bytes.starts_with(b"\x89PNG\r\n\x1a\n") {
        Ok(ImageFormat::Png)
    } else {
        Err(DecodeFault::UnknownFormat)
    }
}
