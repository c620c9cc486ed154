//! PNG through the `image` crate; 16 bits become 8, grey and palette become RGB, alpha is dropped.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{DynamicImage, Limits};

use super::{DecodeFault, ImageFormat, ImageInfo, exif};

const SIGNATURE_BYTES: usize = 8;
/// At the end of each chunk.
const CHECKSUM_BYTES: usize = 4;
/// Memory for everything in a PNG but its pixels: text, colour profiles and the like, which a small
/// file can inflate.
const MAX_CHUNK_BYTES: usize = 64 << 20;
/// RGB and alpha of 16 bits each.
const MAX_BYTES_PER_PIXEL: usize = 8;
/// Values of 16 bits that take up at most so many lose most of their levels in 8 bits.
const FEW_BITS: u32 = 14;

pub(super) fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    let (height, width) = size(bytes)?;
    let exif_orientation = exif_chunk(bytes).and_then(exif::orientation);
    Ok(ImageInfo { format: ImageFormat::Png, height, width, exif_orientation })
}

pub(super) fn decode_rgb_into(bytes: &[u8], out: &mut [u8]) -> Result<Option<String>, DecodeFault> {
    let (height, width) = size(bytes)?;
    let pixels = usize::try_from(u64::from(width) * u64::from(height)).unwrap_or(usize::MAX);
    let need = pixels.saturating_mul(3);
    if need != out.len() {
        return Err(DecodeFault::Size { need, have: out.len() });
    }
    // The caller has memory for so many pixels, so its size is one that was agreed to.
    let max_bytes = pixels.saturating_mul(MAX_BYTES_PER_PIXEL).saturating_add(MAX_CHUNK_BYTES);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(max_bytes as u64);
    let picture = PngDecoder::with_limits(Cursor::new(bytes), limits)
        .and_then(DynamicImage::from_decoder)
        .map_err(|error| DecodeFault::Corrupt(error.to_string()))?;
    let doubt = lost_levels(&picture);
    let picture = picture.into_rgb8();
    if picture.as_raw().len() != out.len() {
        return Err(DecodeFault::Size { need: picture.as_raw().len(), have: out.len() });
    }
    out.copy_from_slice(picture.as_raw());
    Ok(doubt)
}

/// The loss in a 16-bit picture that uses only the low bits, as cameras and microscopes of 10 or 12
/// bits write. A multiple of 257 is a value of 8 bits, of which nothing is lost.
fn lost_levels(picture: &DynamicImage) -> Option<String> {
    let colour = picture.color();
    if colour.bytes_per_pixel() != 2 * colour.channel_count() {
        return None;
    }
    let values = picture.to_rgb16().into_raw();
    let bits = u16::BITS - values.iter().max()?.leading_zeros();
    let is_lossy = bits <= FEW_BITS && values.iter().any(|value| value % 257 != 0);
    is_lossy.then(|| {
        let left = 1 << bits.saturating_sub(8);
        format!("uses {bits} of its 16 bits, so {left} levels are left in 8 bits; scale its values")
    })
}

/// The data of the chunk `eXIf`, which may also follow the pixels.
fn exif_chunk(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.get(SIGNATURE_BYTES..)?;
    loop {
        let (length, after) = rest.split_first_chunk()?;
        let (kind, after) = after.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        match kind {
            b"eXIf" => return after.get(..length),
            b"IEND" => return None,
            _ => rest = after.get(length..)?.get(CHECKSUM_BYTES..)?,
        }
    }
}

/// Height and width in the header, which comes first in every PNG. The decoder takes memory as soon
/// as it has read them, so they are read before it.
pub(super) fn size(bytes: &[u8]) -> Result<(u32, u32), DecodeFault> {
    let Some((b"IHDR", rest)) = bytes.get(12..).and_then(|bytes| bytes.split_first_chunk()) else {
        return Err(DecodeFault::Corrupt("no header in the PNG".to_string()));
    };
    let side = |rest: &mut &[u8]| {
        let (side, after) = rest.split_first_chunk().ok_or(DecodeFault::Truncated(bytes.len()))?;
        *rest = after;
        Ok(u32::from_be_bytes(*side))
    };
    let mut rest = rest;
    let width = side(&mut rest)?;
    Ok((side(&mut rest)?, width))
}
