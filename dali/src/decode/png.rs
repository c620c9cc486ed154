//! PNG through the `image` crate; 16 bits become 8, grey and palette become RGB, alpha is dropped.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{DynamicImage, ImageDecoder};

use super::{DecodeFault, ImageFormat, ImageInfo};

pub(super) fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    let (width, height) = open(bytes)?.dimensions();
    Ok(ImageInfo { format: ImageFormat::Png, height, width, exif_orientation: None })
}

pub(super) fn decode_rgb_into(bytes: &[u8], out: &mut [u8]) -> Result<(), DecodeFault> {
    let decoder = open(bytes)?;
    let (width, height) = decoder.dimensions();
    let need = width as usize * height as usize * 3;
    if need != out.len() {
        return Err(DecodeFault::Size { need, have: out.len() });
    }
    let picture = DynamicImage::from_decoder(decoder)
        .map_err(|error| DecodeFault::Corrupt(error.to_string()))?
        .into_rgb8();
    out.copy_from_slice(picture.as_raw());
    Ok(())
}

fn open(bytes: &[u8]) -> Result<PngDecoder<Cursor<&[u8]>>, DecodeFault> {
    PngDecoder::new(Cursor::new(bytes)).map_err(|error| DecodeFault::Corrupt(error.to_string()))
}
