//! JPEG: scans the markers (size, EXIF orientation, end of image), and calls the decoder.
//!
//! The scan is needed because the decoder fills the missing part of a truncated file with grey,
//! without an error if only the last rows are missing.

use zune_core::bytestream::ZCursor;
use zune_core::colorspace::ColorSpace;
use zune_core::options::DecoderOptions;
use zune_jpeg::JpegDecoder;

use super::{DecodeFault, ImageFormat, ImageInfo, orientation};

/// A JPEG stores each side in 16 bits.
const LONGEST_SIDE: usize = 65_535;
const START_OF_SCAN: u8 = 0xDA;
const END_OF_IMAGE: u8 = 0xD9;
const APP1: u8 = 0xE1;
const EXIF: &[u8] = b"Exif\0\0";

pub(super) fn probe(bytes: &[u8]) -> Result<ImageInfo, DecodeFault> {
    let truncated = || DecodeFault::Truncated(bytes.len());
    let mut size = None;
    let mut exif_orientation = None;
    let mut at = 2;
    loop {
        let (marker, segment, after) = next_segment(bytes, at).ok_or_else(truncated)?;
        at = after;
        match marker {
            END_OF_IMAGE => break,
            START_OF_SCAN => at = skip_entropy_coded(bytes, at).ok_or_else(truncated)?,
            APP1 if exif_orientation.is_none() => {
                exif_orientation = segment.strip_prefix(EXIF).and_then(orientation);
            }
            _ if is_frame(marker) => {
                size = be16(segment, 1).zip(be16(segment, 3));
                check_sampling(segment)?;
            }
            _ => {}
        }
    }
    let (height, width) =
        size.ok_or_else(|| DecodeFault::Corrupt("no frame header in the JPEG".to_string()))?;
    Ok(ImageInfo {
        format: ImageFormat::Jpeg,
        height: u32::from(height),
        width: u32::from(width),
        exif_orientation,
    })
}

/// Rejects sampling factors that the decoder does not support: 0, more than 4, or chroma that is
/// sampled more finely than luma (the first component in the frame header).
fn check_sampling(frame: &[u8]) -> Result<(), DecodeFault> {
    let count = usize::from(frame.get(5).copied().unwrap_or(0));
    let factors = frame.iter().skip(7).step_by(3).take(count).map(|hv| [hv >> 4, hv & 15]);
    let factors: Vec<[u8; 2]> = factors.collect();
    let known = factors.iter().flatten().all(|factor| (1..=4).contains(factor));
    let is_finer = |[h, v]: &[u8; 2]| *h > factors[0][0] || *v > factors[0][1];
    if !known || factors.iter().any(is_finer) {
        let reason = format!("it has the unsupported sampling factors {factors:?}: save it again");
        return Err(DecodeFault::Corrupt(reason));
    }
    Ok(())
}

/// Height and width of a JPEG, which may be truncated after its frame header.
pub(super) fn size(bytes: &[u8]) -> Option<(u32, u32)> {
    let mut at = 2;
    loop {
        let (marker, segment, after) = next_segment(bytes, at)?;
        match marker {
            START_OF_SCAN | END_OF_IMAGE => return None,
            _ if is_frame(marker) => {
                return Some((be16(segment, 1)?.into(), be16(segment, 3)?.into()));
            }
            _ => at = after,
        }
    }
}

/// True for a start-of-frame marker; C4, C8 and CC in this range mark tables and an extension.
fn is_frame(marker: u8) -> bool {
    matches!(marker, 0xC0..=0xC3 | 0xC5..=0xC7 | 0xC9..=0xCB | 0xCD..=0xCF)
}

pub(super) fn decode_rgb_into(bytes: &[u8], out: &mut [u8]) -> Result<(), DecodeFault> {
    match decode_with(bytes, out, true) {
        // Extra bytes between headers are common in files from old cameras, and harmless. All other
        // errors of the decoder's strict mode are reported.
        Err(DecodeFault::Corrupt(reason)) if reason.contains("Extra bytes between headers") => {
            decode_with(bytes, out, false)
        }
        result => result,
    }
}

fn decode_with(bytes: &[u8], out: &mut [u8], strict: bool) -> Result<(), DecodeFault> {
    let corrupt = |reason: zune_jpeg::errors::DecodeErrors| {
        let reason = format!("{reason:?}").trim_matches('"').to_string();
        DecodeFault::Corrupt(reason)
    };
    let options =
        DecoderOptions::default().jpeg_set_out_colorspace(ColorSpace::RGB).set_strict_mode(strict);
    // The number of pixels has been checked already, so the limit on each side is raised: a
    // panorama may exceed the decoder's default.
    let options = options.set_max_width(LONGEST_SIDE).set_max_height(LONGEST_SIDE);
    let mut decoder = JpegDecoder::new_with_options(ZCursor::new(bytes), options);
    decoder.decode_headers().map_err(corrupt)?;
    let need = decoder.output_buffer_size().unwrap_or(0);
    if need != out.len() {
        return Err(DecodeFault::Size { need, have: out.len() });
    }
    decoder.decode_into(out).map_err(corrupt)
}

/// The next marker at or after `at` that has a segment or is the end of the image; returns the
/// marker, its segment, and the position after the segment.
fn next_segment(bytes: &[u8], mut at: usize) -> Option<(u8, &[u8], usize)> {
    loop {
        let (marker, after) = next_marker(bytes, at)?;
        match marker {
            // Markers without a segment: TEM, restarts, a repeated start of image.
            0x01 | 0xD0..=0xD8 => at = after,
            END_OF_IMAGE => return Some((marker, &[], after)),
            _ => {
                let end = after + usize::from(be16(bytes, after)?).max(2);
                return Some((marker, bytes.get(after + 2..end)?, end));
            }
        }
    }
}

/// Code of the next marker at or after `at`, and the position after it.
fn next_marker(bytes: &[u8], mut at: usize) -> Option<(u8, usize)> {
    loop {
        while *bytes.get(at)? != 0xFF {
            at += 1;
        }
        while *bytes.get(at)? == 0xFF {
            at += 1;
        }
        // FF00 is a stuffed data byte, not a marker.
        if bytes[at] != 0 {
            return Some((bytes[at], at + 1));
        }
    }
}

/// The position of the first marker after `at` that is not a restart.
fn skip_entropy_coded(bytes: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += bytes.get(at..)?.iter().position(|&byte| byte == 0xFF)?;
        match bytes.get(at + 1)? {
            0x00 | 0xD0..=0xD7 => at += 2,
            0xFF => at += 1,
            _ => return Some(at),
        }
    }
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
