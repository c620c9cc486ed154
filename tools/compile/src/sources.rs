//! Which files are compiled, and which files each depends on.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use device::Precision;
use device::architecture::{Architecture, NoArchitecture};
use sha2::{Digest, Sha256};

use crate::Fault;

/// Where headers are searched if they are not next to the including file.
pub const HEADERS: &str = "kernels/src/cuda";

/// SHA-256 in hexadecimal.
pub fn sha256(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// Hash of a source with every header that it includes, directly or indirectly; `None` if the
/// source does not exist. `read` returns the text of a file by its path from the checkout's root. A
/// header found neither next to the file nor in [`HEADERS`] is the compiler's own.
pub fn source_sha256(path: &str, read: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let mut texts = BTreeMap::from([(path.to_string(), read(path)?)]);
    let mut todo = vec![path.to_string()];
    while let Some(path) = todo.pop() {
        let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
        let includes: Vec<_> = quoted_includes(&texts[&path])
            .map(|name| [joined(folder, name), joined(HEADERS, name)])
            .collect();
        for places in includes {
            let found = places.into_iter().find_map(|place| Some((read(&place)?, place)));
            if let Some((text, place)) = found
                && texts.insert(place.clone(), text).is_none()
            {
                todo.push(place);
            }
        }
    }
    // The source first, then the headers by path.
    let own = texts.remove_entry(path);
    let parts = own.iter().map(|(path, text)| (path, text)).chain(&texts);
    let framed: String = parts.map(|(path, text)| format!("{path}\0{text}\0")).collect();
    Some(sha256(framed.as_bytes()))
}

/// The kernels that a source promises: names behind `KERNEL(..)` and `KERNEL_BLOCKS(..)` at the
/// head of a line, or on the line below. Kernels that a macro writes are not included.
pub fn exported(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut in_directive, mut begun) = (false, false);
    for line in text.lines().map(str::trim) {
        let directive = in_directive || line.starts_with('#');
        in_directive = directive && line.ends_with('\\');
        let head = line.starts_with("KERNEL").then(|| line.split_once(')')).flatten();
        let rest = head.map_or(line, |(_, rest)| rest.trim());
        if !directive && (begun || head.is_some()) {
            names.extend(rest.split_once('(').map(|(name, _)| name));
        }
        begun = !directive && head.is_some() && rest.is_empty();
    }
    names
}

/// The target architectures of a source: those in `ARCHITECTURES(compute_80, compute_90a)`, by
/// default `compute_80`.
///
/// # Errors
/// A name that is not an architecture.
pub fn architectures(text: &str) -> Result<Vec<Architecture>, NoArchitecture> {
    let list = text.lines().find_map(|line| line.trim().strip_prefix("ARCHITECTURES("));
    match list.and_then(|rest| rest.split_once(')')) {
        Some((names, _)) => names.split(',').map(|name| name.trim().parse()).collect(),
        None => Ok(vec![Architecture::COMPUTE_80]),
    }
}

/// The types of `real` in a source, which is compiled once for each: the names in
/// `REALS(fp16, fp32)`, by default fp16.
///
/// # Errors
/// A name that is not a precision.
pub fn reals(text: &str) -> Result<Vec<Precision>, Fault> {
    let precision = |name: &str| {
        let found = Precision::ALL.into_iter().find(|precision| precision.name() == name);
        found.ok_or_else(|| Fault(format!("`{name}` is not one of fp16, tf32, fp32")))
    };
    let list = text.lines().find_map(|line| line.strip_prefix("REALS("));
    match list.and_then(|rest| rest.split_once(')')) {
        Some((names, _)) => names.split(',').map(|name| precision(name.trim())).collect(),
        None => Ok(vec![Precision::Fp16]),
    }
}

/// CUDA sources below a folder, sorted, as paths from the checkout's root.
///
/// # Errors
/// A folder that cannot be read, or two sources of one name: a source's name is its PTX's.
pub fn find(root: &Path, folder: &str) -> Result<Vec<String>, Fault> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_string()];
    while let Some(folder) = folders.pop() {
        let fault = |e| Fault(format!("{folder}: {e}"));
        for entry in fs::read_dir(root.join(&folder)).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
            if entry.file_type().map_err(fault)?.is_dir() {
                folders.push(path);
            } else if path.ends_with(".cu") {
                found.push(path);
            }
        }
    }
    found.sort();
    for (i, path) in found.iter().enumerate() {
        if let Some(other) = found[..i].iter().find(|other| stem(other) == stem(path)) {
            return Err(Fault(format!("{path}: has the name of {other}; rename one of them")));
        }
    }
    Ok(found)
}

/// The name of a source without folder and `.cu`.
pub fn stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".cu").unwrap_or(name)
}

/// The names in `#include "..."`.
fn quoted_includes(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let directive = line.trim_start().strip_prefix('#')?.trim_start();
        let name = directive.strip_prefix("include")?.trim_start().strip_prefix('"')?;
        Some(name.split_once('"')?.0)
    })
}

/// `name` relative to `folder`, with `..` resolved.
fn joined(folder: &str, name: &str) -> String {
    let mut parts: Vec<&str> = folder.split('/').collect();
    for part in name.split('/') {
        match part {
            "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "kernels/src/ops/a/a.cu";

    fn hash(files: &[(&str, &str)]) -> String {
        let read = |path: &str| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| text.to_string())
        };
        source_sha256(SOURCE, &read).unwrap()
    }

    #[test]
    fn the_hash_follows_every_include_and_nothing_else() {
        let source = (SOURCE, "#include \"x.cuh\"\n  # include \"own.cuh\"\n");
        let x = ("kernels/src/cuda/x.cuh", "#include \"y.cuh\"\n#include \"x.cuh\"\n");
        let y = ("kernels/src/cuda/y.cuh", "1");
        let own = ("kernels/src/ops/a/own.cuh", "#include \"../b/far.cuh\"\n#include <z.h>\n");
        let far = ("kernels/src/ops/b/far.cuh", "2");
        let all = [source, x, y, own, far];
        let whole = hash(&all);
        for (i, (path, text)) in all.iter().enumerate() {
            let mut changed = all;
            let text = format!("{text}//");
            changed[i] = (path, &text);
            assert_ne!(hash(&changed), whole, "{path}");
        }
        let other = ("kernels/src/cuda/other.cuh", "3");
        assert_eq!(hash(&[all.as_slice(), &[other]].concat()), whole);
        assert_ne!(hash(&[source, x, y, far]), whole, "a header that is gone");
        assert_eq!(source_sha256("none.cu", &|_| None), None);
    }

    #[test]
    fn the_hash_is_that_of_sha256sum() {
        // printf 'kernels/src/ops/a/a.cu\0x\0' | sha256sum
        assert_eq!(hash(&[(SOURCE, "x")]), sha256(b"kernels/src/ops/a/a.cu\0x\0"));
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    #[test]
    fn a_source_names_its_architectures() {
        let both = [Architecture::COMPUTE_80, Architecture::COMPUTE_90A];
        assert_eq!(architectures("a\nARCHITECTURES(compute_80, compute_90a)\n").unwrap(), both);
        assert_eq!(architectures("// ARCHITECTURES(compute_90a)").unwrap(), both[..1]);
        let fault = architectures("ARCHITECTURES(sm_90a)").unwrap_err();
        assert!(fault.to_string().starts_with("`sm_90a` is not an architecture"), "{fault}");
    }

    #[test]
    fn a_source_names_what_its_reals_are() {
        let both = [Precision::Fp16, Precision::Fp32];
        assert_eq!(reals("a\nREALS(fp16, fp32)\n").unwrap(), both);
        assert_eq!(reals("// REALS(fp16, fp32)").unwrap(), both[..1]);
        let fault = reals("REALS(f32)").unwrap_err();
        assert_eq!(fault.to_string(), "`f32` is not one of fp16, tf32, fp32");
    }

    #[test]
    fn exports_are_found_at_the_head_of_a_line() {
        let text = "KERNEL(1) a(int x) {}\nKERNEL_BLOCKS(1, 2)\nb_f16(int x) {\n  f(x);\n}\n";
        assert_eq!(exported(text), ["a", "b_f16"]);
        let text = "#define BOTH(name) \\\n  KERNEL(1) name() {} \nBOTH(c)\nKERNEL(1) d() {}";
        assert_eq!(exported(text), ["d"]);
    }
}
