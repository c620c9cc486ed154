//! The size and the EXIF data of a PNG.

use super::{DecodeFault, ImageFormat, ImageInfo, orientation};

const SIGNATURE_BYTES: usize = 8;
/// Length of the checksum at the end of each chunk.
const CHECKSUM_BYTES: usize = 4;

pub(super) fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    let (height, width) = size(bytes)?;
    let exif_orientation = exif_chunk(bytes).and_then(orientation);
    Ok(ImageInfo { format: ImageFormat::Png, height, width, exif_orientation })
}

/// The data of the chunk `eXIf`, which may be before or after the pixels.
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

/// Height and width from the header, the first chunk of every PNG. They are checked before the
/// decoder is created, which allocates memory for this size.
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
