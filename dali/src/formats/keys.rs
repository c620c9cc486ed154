//! Finds the keys in JSON text, which may be truncated.

/// Each key: its depth (1 at the top), its text, and the position after its colon.
pub(super) fn keys(json: &[u8]) -> impl Iterator<Item = (usize, &[u8], usize)> {
    let (mut at, mut depth) = (0, 0_usize);
    std::iter::from_fn(move || {
        while let Some(byte) = json.get(at) {
            at += 1;
            match byte {
                b'{' | b'[' => depth += 1,
                b'}' | b']' => depth = depth.saturating_sub(1),
                b'"' => {
                    let start = at;
                    while let Some(byte) = json.get(at).filter(|byte| **byte != b'"') {
                        at += if *byte == b'\\' { 2 } else { 1 };
                    }
                    let (text, rest) = (json.get(start..at)?, json.get(at + 1..)?);
                    at += 1;
                    if let Some(value) = rest.trim_ascii_start().strip_prefix(b":") {
                        return Some((depth, text, json.len() - value.len()));
                    }
                }
                _ => {}
            }
        }
        None
    })
}

/// True if one of the wanted keys is at this depth.
pub(super) fn has(json: &str, depth: usize, wanted: &[&str]) -> bool {
    keys(json.as_bytes())
        .any(|(at, key, _)| at == depth && wanted.iter().any(|k| k.as_bytes() == key))
}
