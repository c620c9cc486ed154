//! Names of image formats, including unsupported ones, for error messages.

/// A format's name, the offset of its magic number in the file, and the magic number.
const FORMATS: [(&str, usize, &[u8]); 17] = [
    ("GIF", 0, b"GIF87a"),
    ("GIF", 0, b"GIF89a"),
    ("TIFF", 0, b"II*\0"),
    ("TIFF", 0, b"MM\0*"),
    ("TIFF", 0, b"II+\0"),
    ("TIFF", 0, b"MM\0+"),
    ("WebP", 8, b"WEBP"),
    ("AVIF", 4, b"ftypavi"),
    ("HEIC", 4, b"ftyphei"),
    ("HEIC", 4, b"ftyphev"),
    ("HEIC", 4, b"ftypmif1"),
    ("HEIC", 4, b"ftypmsf1"),
    ("JPEG 2000", 0, b"\0\0\0\x0CjP  \r\n\x87\n"),
    ("JPEG 2000", 0, b"\xFF\x4F\xFF\x51"),
    ("JPEG XL", 0, b"\0\0\0\x0CJXL \r\n\x87\n"),
    ("JPEG XL", 0, b"\xFF\x0A"),
    ("BMP", 6, b"\0\0\0\0"),
];

/// The name of a file's format, for common formats except JPEG and PNG.
pub(super) fn name(bytes: &[u8]) -> Option<&'static str> {
    let begins = |at: usize, magic: &[u8]| bytes.get(at..).is_some_and(|b| b.starts_with(magic));
    let is_netpbm = matches!(bytes, [b'P', b'1'..=b'6', b' ' | b'\n' | b'\r' | b'\t', ..]);
    let known = FORMATS.iter().find(|(name, at, magic)| {
        let begins_alike = match *name {
            "WebP" => begins(0, b"RIFF"),
            // Text files may also start with these two letters, so the reserved fields after the
            // size must be zero.
            "BMP" => begins(0, b"BM"),
            _ => true,
        };
        begins_alike && begins(*at, magic)
    });
    known.map(|(name, ..)| *name).or(is_netpbm.then_some("PNM"))
}

#[cfg(test)]
mod tests {
    use super::name;

    #[test]
    fn format_is_detected_by_leading_bytes() {
        let files: [(&[u8], Option<&str>); 11] = [
            (b"RIFF\x1a\0\0\0WEBPVP8L", Some("WebP")),
            (b"RIFF\x1a\0\0\0WAVEfmt ", None),
            (b"GIF89a\x01\0\x01\0", Some("GIF")),
            (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", Some("HEIC")),
            (b"\0\0\0\x1cftypavif\0\0\0\0", Some("AVIF")),
            (b"\0\0\0\x18ftypmp42\0\0\0\0", None),
            (b"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0", Some("BMP")),
            (b"BMW and other cars", None),
            (b"II*\0\x08\0\0\0", Some("TIFF")),
            (b"P6\n2 2\n255\n", Some("PNM")),
            (b"", None),
        ];
        for (bytes, format) in files {
            assert_eq!(name(bytes), format, "{bytes:?}");
        }
    }
}
