//! Archives of compiled kernel files, compressed by zstd and embedded in the program.
//!
//! Uncompressed: one line per file (`name hash length`), an empty line, then the contents of the
//! files in the order of these lines.

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// Name, without white space.
    pub name: String,
    /// Hash of the file that it was made from; `-` for none.
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

/// The files of a decompressed archive; `None` if it is incomplete.
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
