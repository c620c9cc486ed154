//! BMP, TIFF and WebP through the `image` crate, of 8 bits a channel; grey becomes RGB, alpha is
//! dropped.

use std::io::Cursor;

use image::codecs::bmp::BmpDecoder;
use image::codecs::tiff::TiffDecoder;
use image::codecs::webp::WebPDecoder;
use image::{DynamicImage, ExtendedColorType, ImageDecoder, ImageError, Limits};

use super::{DecodeFault, ImageFormat, ImageInfo, exif};

/// Memory for everything but the pixels.
const MAX_REST_BYTES: usize = 64 << 20;
/// It has 8 bits and alpha.
const MAX_BYTES_PER_PIXEL: usize = 4;

pub(super) fn probe(format: ImageFormat, bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    opened(format, bytes, |mut decoder| {
        let (width, height) = decoder.dimensions();
        let exif_orientation = match format {
            ImageFormat::Tiff => decoder.orientation().ok().map(|turn| turn.to_exif().into()),
            _ => decoder.exif_metadata().ok().flatten().and_then(|tiff| exif::orientation(&tiff)),
        };
        Ok(ImageInfo { format, height, width, exif_orientation })
    })
}

pub(super) fn decode_rgb_into(
    format: ImageFormat,
    bytes: &[u8],
    out: &mut [u8],
) -> Result<(), DecodeFault> {
    opened(format, bytes, |mut decoder| {
        let (width, height) = decoder.dimensions();
        let pixels = usize::try_from(u64::from(width) * u64::from(height)).unwrap_or(usize::MAX);
        let need = pixels.saturating_mul(3);
        if need != out.len() {
            return Err(DecodeFault::Size { need, have: out.len() });
        }
        // The caller has memory for so many pixels, so its size is one that was agreed to.
        let max_bytes = pixels.saturating_mul(MAX_BYTES_PER_PIXEL).saturating_add(MAX_REST_BYTES);
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(max_bytes as u64);
        decoder.set_limits(limits).map_err(corrupt)?;
        let mut native =
            vec![0; usize::try_from(decoder.total_bytes()).unwrap_or(usize::MAX).min(max_bytes)];
        let colours = decoder.color_type();
        decoder.read_image_boxed(&mut native).map_err(corrupt)?;
        let picture = match colours.channel_count() {
            1 => image::GrayImage::from_raw(width, height, native).map(DynamicImage::from),
            2 => image::GrayAlphaImage::from_raw(width, height, native).map(DynamicImage::from),
            3 => image::RgbImage::from_raw(width, height, native).map(DynamicImage::from),
            _ => image::RgbaImage::from_raw(width, height, native).map(DynamicImage::from),
        };
        let rgb = picture.map(DynamicImage::into_rgb8).filter(|rgb| rgb.as_raw().len() == need);
        let rgb =
            rgb.ok_or_else(|| DecodeFault::Corrupt("it has fewer pixels than it claims".into()))?;
        out.copy_from_slice(rgb.as_raw());
        Ok(())
    })
}

fn opened<T>(
    format: ImageFormat,
    bytes: &[u8],
    use_it: impl FnOnce(Box<dyn ImageDecoder + '_>) -> Result<T, DecodeFault>,
) -> Result<T, DecodeFault> {
    let bytes = Cursor::new(bytes);
    let decoder: Box<dyn ImageDecoder + '_> = match format {
        ImageFormat::Bmp => Box::new(BmpDecoder::new(bytes).map_err(corrupt)?),
        ImageFormat::Tiff => Box::new(TiffDecoder::new(bytes).map_err(corrupt)?),
        _ => Box::new(WebPDecoder::new(bytes).map_err(corrupt)?),
    };
    match decoder.original_color_type() {
        ExtendedColorType::Cmyk8 | ExtendedColorType::Cmyk16 => {
            Err(DecodeFault::Colours("holds CMYK"))
        }
        _ if decoder.color_type().bytes_per_pixel() != decoder.color_type().channel_count() => {
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
