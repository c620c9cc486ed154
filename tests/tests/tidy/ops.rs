//! One op, one folder: each folder of a kind in `kernels/src/ops` is complete and registered.

use std::collections::BTreeMap;

use super::files::File;
use super::rust::function_length;

const OPS: &str = "kernels/src/ops/";
/// The longest function that may stay in `mod.rs` instead of a file of its own: what fits below
/// the contract without hiding it.
const MAX_LINES_IN_MOD: usize = 30;

/// Ops whose CUDA kernels are another op's, or not ours.
const SHARED_KERNELS: [(&str, &str); 3] = [
    ("all_reduce", "a task of the device's own: NVIDIA's library sums"),
    ("linear", "a convolution of images of one pixel"),
    ("conv_transpose", "the gradient of the input of a convolution of stride 2"),
];

/// Ops whose CPU reference and launches are in `products/product.rs`, once for all.
const PRODUCTS: [&str; 3] = ["conv2d", "linear", "conv_transpose"];

/// Parts of an op's folder: the file, the function that it holds, and the words for it.
const PARTS: [(&str, &str, &str); 2] =
    [("cpu.rs", "run_cpu", "CPU reference"), ("cases.rs", "cases", "cases")];

/// Folders without contract, CPU reference or cases, and ops that the table of ops leaves out.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let mut folders: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
    let mut registries: BTreeMap<&str, &str> = BTreeMap::new();
    for file in files {
        let Some((kind, rest)) = file.path.strip_prefix(OPS).and_then(|r| r.split_once('/')) else {
            continue;
        };
        match rest.split_once('/') {
            Some((op, name)) => {
                folders.entry((kind, op)).or_default().insert(name, &file.text);
            }
            None if rest == "mod.rs" => {
                registries.insert(kind, &file.text);
            }
            None => {}
        }
    }
    if folders.is_empty() {
        return vec![format!("{OPS}: holds no op; this check proves nothing")];
    }
    let all = files.iter().find(|file| file.path == format!("{OPS}mod.rs"));
    let all = all.map_or("", |file| file.text.as_str());
    let kinds = registries.keys().flat_map(|kind| {
        let wanted =
            [format!("mod {kind};"), format!("pub use {kind}::*;"), format!("{kind}::cases()")];
        unregistered(OPS, kind, all, &wanted)
    });
    let of = |((kind, op), files): (&(&str, &str), &_)| {
        folder_faults(kind, op, files, registries.get(kind).unwrap_or(&""))
    };
    folders.iter().flat_map(of).chain(kinds).collect()
}

/// Faults of what a folder's `mod.rs` lacks of `wanted`: whole lines, or entries of a list.
fn unregistered(folder: &str, name: &str, registry: &str, wanted: &[String]) -> Vec<String> {
    let has = |wanted: &str| {
        let mut entries = registry.split(|c: char| c.is_whitespace() || "[],".contains(c));
        registry.lines().any(|line| line == wanted) || entries.any(|entry| entry == wanted)
    };
    let missing = wanted.iter().filter(|wanted| !has(wanted));
    let fault = |wanted| format!("{folder}mod.rs: `{name}` is not registered; add `{wanted}`");
    missing.map(fault).collect()
}

fn folder_faults(
    kind: &str,
    op: &str,
    files: &BTreeMap<&str, &str>,
    registry: &str,
) -> Vec<String> {
    let Some(contract) = files.get("mod.rs") else {
        return vec![format!("{OPS}{kind}/{op}: has no mod.rs; write the op's contract there")];
    };
    let mut faults = Vec::new();
    for (file, function, words) in PARTS {
        let is_shared = function == "run_cpu" && PRODUCTS.contains(&op);
        if files.contains_key(file) || is_shared {
            continue;
        }
        match function_length(contract, function) {
            Some(lines) if lines <= MAX_LINES_IN_MOD => {}
            Some(lines) => faults.push(format!(
                "{OPS}{kind}/{op}/mod.rs: `{function}` has {lines} lines; move the {words} to \
                 {file} (up to {MAX_LINES_IN_MOD} lines may stay)"
            )),
            None => faults.push(format!("{OPS}{kind}/{op}: has no {words}; write them in {file}")),
        }
    }
    faults.extend(cuda_faults(kind, op, files));
    let wanted = [format!("pub mod {op};"), format!("{op}::cases()")];
    faults.extend(unregistered(&format!("{OPS}{kind}/"), op, registry, &wanted));
    faults
}

/// An op without launches or CUDA source, and a source without its head or of another's name.
fn cuda_faults(kind: &str, op: &str, files: &BTreeMap<&str, &str>) -> Vec<String> {
    let mut faults = Vec::new();
    if !files.contains_key("cuda.rs") && !PRODUCTS.contains(&op) {
        faults.push(format!("{OPS}{kind}/{op}: has no CUDA launch; write it in cuda.rs"));
    }
    let sources: Vec<_> = files.iter().filter(|(name, _)| name.ends_with(".cu")).collect();
    let shares = SHARED_KERNELS.iter().any(|(name, _)| *name == op);
    if sources.is_empty() != shares {
        faults.push(match shares {
            true => format!("{OPS}{kind}/{op}: has kernels of its own; take it off SHARED_KERNELS"),
            false => format!("{OPS}{kind}/{op}: has no CUDA source; write it in {op}.cu"),
        });
    }
    for (name, text) in sources {
        if !name.starts_with(op) {
            faults.push(format!("{OPS}{kind}/{op}/{name}: is not named after its op"));
        }
        if !text.starts_with("// ") {
            faults.push(format!("{OPS}{kind}/{op}/{name}: has no head that says what it computes"));
        }
    }
    faults
}
