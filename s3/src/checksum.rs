//! Compares bytes with ETags, which are the MD5 of an object that was written in one request, or
//! the MD5 of the MD5s of its parts. ETags of objects that are encrypted with an AWS KMS key are
//! not checksums.

use std::io::{Read, Result, Seek};

use md5::{Digest, Md5};

const MIB: u64 = 1 << 20;
/// Part sizes that clients commonly use, in MiB.
const PARTS: [u64; 10] = [5, 8, 10, 15, 16, 25, 32, 50, 64, 128];

/// Result of comparing bytes with an ETag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Match {
    /// The bytes match the ETag.
    Same,
    /// The bytes do not match, or the ETag only looks like an MD5.
    Other,
    /// The ETag is not a checksum, or is computed from parts whose size is unknown.
    Unknown,
}

/// Compares all `len` bytes of an object with its ETag.
///
/// # Errors
/// An error of the reader.
pub(crate) fn compare(bytes: &mut (impl Read + Seek), len: u64, etag: &str) -> Result<Match> {
    let etag = etag.trim_start_matches("W/").trim_matches('"');
    let (digest, parts) = match etag.split_once('-') {
        None => (etag, None),
        Some((digest, parts)) => match parts.parse::<u64>() {
            Ok(parts) if parts > 0 => (digest, Some(parts)),
            _ => return Ok(Match::Unknown),
        },
    };
    if digest.len() != 32 || hex::decode(digest).is_err() {
        return Ok(Match::Unknown);
    }
    let is_same = |found: [u8; 16]| hex::encode(found).eq_ignore_ascii_case(digest);
    let Some(parts) = parts else {
        bytes.rewind()?;
        return Ok(if is_same(md5(bytes)?) { Match::Same } else { Match::Other });
    };
    let sizes = PARTS.into_iter().map(|size| size * MIB);
    for size in sizes.filter(|size| len.div_ceil(*size) == parts) {
        bytes.rewind()?;
        if is_same(of_parts(bytes, size)?) {
            return Ok(Match::Same);
        }
    }
    Ok(Match::Unknown)
}

/// The MD5 of all bytes read.
///
/// # Errors
/// An error of the reader.
pub(crate) fn md5(bytes: &mut impl Read) -> Result<[u8; 16]> {
    let (mut sum, mut buffer) = (Md5::new(), vec![0; MIB as usize]);
    loop {
        match bytes.read(&mut buffer)? {
            0 => return Ok(sum.finalize().into()),
            read => sum.update(&buffer[..read]),
        }
    }
}

/// The digest in the ETag of an object that was written in parts of `size` bytes.
fn of_parts(bytes: &mut impl Read, size: u64) -> Result<[u8; 16]> {
    let mut sums = Vec::new();
    let empty = md5(&mut &b""[..])?;
    loop {
        match md5(&mut bytes.by_ref().take(size))? {
            sum if sum == empty => return md5(&mut &sums[..]),
            sum => sums.extend(sum),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::{Match, compare, of_parts};

    #[test]
    fn etag_matches_single_and_multipart_upload() {
        let compare = |bytes: &[u8], etag: &str| {
            compare(&mut Cursor::new(bytes), bytes.len() as u64, etag).unwrap()
        };
        // The MD5 is from `md5sum`.
        assert_eq!(compare(b"hello", "\"5d41402abc4b2a76b9719d911017c592\""), Match::Same);
        assert_eq!(compare(b"hellp", "5D41402ABC4B2A76B9719D911017C592"), Match::Other);
        assert_eq!(compare(b"hello", "0x8DB"), Match::Unknown);
        let bytes = vec![7; (9 << 20) + 1];
        let etag = format!("{}-2", hex::encode(of_parts(&mut &bytes[..], 8 << 20).unwrap()));
        assert_eq!(compare(&bytes, &etag), Match::Same);
        assert_eq!(compare(&bytes[1..], &etag), Match::Unknown, "not these, or other parts");
        assert_eq!(compare(&bytes, "d41d8cd98f00b204e9800998ecf8427e-x"), Match::Unknown);
    }
}
