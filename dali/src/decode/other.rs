//! PNG, BMP, TIFF and WebP with the `image` crate. Grey and palette images become RGB, alpha is
//! dropped, and 16-bit PNGs become 8-bit.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageError, Limits};

use super::{DecodeFault, ImageFormat, ImageInfo, orientation};

/// Memory limit for metadata (text, colour profiles etc.), whose decompressed size may be huge even
/// in a small file.
const MAX_REST_BYTES: usize = 64 << 20;
/// RGB and alpha with 16 bits each.
const MAX_BYTES_PER_PIXEL: usize = 8;
/// A 16-bit image whose values use at most this many bits loses most of its levels in the
/// conversion to 8 bits.
const FEW_BITS: u32 = 14;

pub(super) fn probe(format: ImageFormat, bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    opened(format, bytes, Limits::no_limits(), |mut decoder| {
        let (width, height) = decoder.dimensions();
        let exif_orientation = match format {
            ImageFormat::Tiff => decoder.orientation().ok().map(|turn| turn.to_exif().into()),
            _ => decoder.exif_metadata().ok().flatten().and_then(|tiff| orientation(&tiff)),
        };
        Ok(ImageInfo { format, height, width, exif_orientation })
    })
}

pub(super) fn decode_rgb_into(
    format: ImageFormat,
    bytes: &[u8],
    out: &mut [u8],
) -> Result<Option<String>, DecodeFault> {
    // The caller has checked the number of pixels and allocated `out` for them.
    let max_bytes = (out.len() / 3).saturating_mul(MAX_BYTES_PER_PIXEL);
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(max_bytes.saturating_add(MAX_REST_BYTES) as u64);
    opened(format, bytes, limits.clone(), |mut decoder| {
        let (width, height) = decoder.dimensions();
        let pixels = usize::try_from(u64::from(width) * u64::from(height)).unwrap_or(usize::MAX);
        let need = pixels.saturating_mul(3);
        if need != out.len() {
            return Err(DecodeFault::Size { need, have: out.len() });
        }
        decoder.set_limits(limits).map_err(corrupt)?;
        let picture = DynamicImage::from_decoder(decoder).map_err(corrupt)?;
        let doubt = lost_levels(&picture);
        out.copy_from_slice(picture.into_rgb8().as_raw());
        Ok(doubt)
    })
}

/// A message about lost levels in a 16-bit picture that uses only the low bits, such as pictures
/// from 10-bit and 12-bit cameras. Multiples of 257 are 8-bit values scaled to 16 bits, which lose
/// nothing.
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
        format!("uses {bits} of its 16 bits, so {left} levels remain in 8 bits; scale its values")
    })
}

fn opened<T>(
    format: ImageFormat,
    bytes: &[u8],
    limits: Limits,
    use_it: impl FnOnce(Box<dyn ImageDecoder + '_>) -> Result<T, DecodeFault>,
) -> Result<T, DecodeFault> {
    let bytes = Cursor::new(bytes);
    let decoder: Box<dyn ImageDecoder + '_> = match format {
        // This decoder allocates memory as soon as it has read the header.
        ImageFormat::Png => Box::new(PngDecoder::with_limits(bytes, limits).map_err(corrupt)?),
        ImageFormat::Bmp => Box::new(BmpDecoder::new(bytes).map_err(corrupt)?),
        ImageFormat::Tiff => Box::new(TiffDecoder::new(bytes).map_err(corrupt)?),
        _ => Box::new(WebPDecoder::new(bytes).map_err(corrupt)?),
    };
    match decoder.original_color_type() {
        ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16 => {
            Err(DecodeFault::Colours("holds CMYK"))
        }
        _ if format != ImageFormat::Png
            && decoder.color_type().bytes_per_pixel() != decoder.color_type().channel_count() =>
        {
            Err(DecodeFault::Colours("has 16 or more bits per channel"))
        }
        _ => use_it(decoder),
    }
}

fn corrupt(error: ImageError) -> DecodeFault {
    match error {
        ImageError::Unsupported(_) => {
            DecodeFault::Colours("has an unsupported colour type or compression")
        }
        error => DecodeFault::Corrupt(error.to_string()),
    }
}
