//! PNG, BMP, TIFF and WebP through the `image` crate; grey and palette become RGB, alpha is
//! dropped, and 16-bit PNGs become 8-bit.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::png::PngDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageError, Limits};

use super::{DecodeFault, ImageFormat, ImageInfo, orientation};

/// Memory for everything but the pixels: text, colour profiles etc., which a small file can
/// inflate.
const MAX_REST_BYTES: usize = 64 << 20;
/// RGB and alpha with 16 bits each.
const MAX_BYTES_PER_PIXEL: usize = 8;
/// 16-bit values that use at most this many bits lose most of their levels in 8 bits.
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
    // The caller has allocated this many pixels, so their number was checked.
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

/// The loss in a 16-bit picture that uses only the low bits, as written by 10-bit or 12-bit cameras
/// and microscopes. A multiple of 257 is an 8-bit value, which loses nothing.
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

fn opened<T>(
    format: ImageFormat,
    bytes: &[u8],
    limits: Limits,
    use_it: impl FnOnce(Box<dyn ImageDecoder + '_>) -> Result<T, DecodeFault>,
) -> Result<T, DecodeFault> {
    let bytes = Cursor::new(bytes);
    let decoder: Box<dyn ImageDecoder + '_> = match format {
        // Allocates memory as soon as it has read the header.
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
            Err(DecodeFault::Colours("holds 16 bits or more a channel"))
        }
        _ => use_it(decoder),
    }
}

fn corrupt(error: ImageError) -> DecodeFault {
    match error {
        ImageError::Unsupported(_) => {
            DecodeFault::Colours("holds other colours, or a compression that is not read")
        }
        error => DecodeFault::Corrupt(error.to_string()),
    }
}
