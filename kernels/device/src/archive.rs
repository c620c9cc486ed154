//! Several compiled kernel files in one: compressed by zstd, as a program embeds them.
//!
//! One line per file (`name hash length`), an empty line, then the files' bytes in this order.

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Its name, without white space.
    pub name: String,
    /// Hash of its source; `-` for none.
    pub made_from: String,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// The concatenated files, not yet compressed.
pub fn pack(files: &[Packed]) -> Vec<u8> {
    let line = |file: &Packed| format!("{} {} {}\n", file.name, file.made_from, file.bytes.len());
    let head: String = files.iter().map(line).collect();
    let bytes = files.iter().flat_map(|file| file.bytes.iter().copied());
    head.into_bytes().into_iter().chain([b'\n']).chain(bytes).collect()
}

/// The files of a decompressed archive; none if it is incomplete.
pub fn unpack(all: &[u8]) -> Option<Vec<Packed>> {
    let end = all.windows(2).position(|pair| pair == b"\n\n")?;
    let head = std::str::from_utf8(&all[..end]).ok()?;
    let mut rest = &all[end + 2..];
    let file = |line: &str| {
        let (name, others) = line.split_once(' ')?;
        let (made_from, len) = others.split_once(' ')?;
        let (bytes, after) = rest.split_at_checked(len.parse().ok()?)?;
        rest = after;
        let (name, made_from) = (name.into(), made_from.into());
        Some(Packed { name, made_from, bytes: bytes.to_vec() })
    };
    let files: Option<Vec<_>> = head.lines().map(file).collect();
    files.filter(|_| rest.is_empty())
}
