//! The orientation in EXIF data, which is a small TIFF file inside a JPEG or PNG.

const ORIENTATION_TAG: u16 = 0x0112;

/// The orientation tag in the first directory.
pub(super) fn orientation(tiff: &[u8]) -> Option<u16> {
    let little = tiff.starts_with(b"II");
    let u16_at = |at: usize| -> Option<u16> {
        let pair = tiff.get(at..at + 2)?.try_into().ok()?;
        Some(if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
    };
    let (high, low) = if little { (6, 4) } else { (4, 6) };
    let directory = usize::from(u16_at(high)?) << 16 | usize::from(u16_at(low)?);
    let entries = usize::from(u16_at(directory)?);
    (0..entries)
        .map(|entry| directory + 2 + 12 * entry)
        .find(|&at| u16_at(at) == Some(ORIENTATION_TAG))
        .and_then(|at| u16_at(at + 8))
}
