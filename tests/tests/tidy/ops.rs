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

#[cfg(test)]
mod tests {
    use super::{MAX_LINES_IN_MOD, faults};
    use crate::tidy::files::File;

    const REGISTRY: &str = "pub mod add;\nfn cases() {\n    [\n        add::cases(),\n    ]\n}\n";

    const KINDS: &str = "mod sums;\npub use sums::*;\nfn cases() {\n    sums::cases()\n}\n";

    fn op(files: &[(&str, &str)], registry: &str) -> Vec<String> {
        let mut list = vec![
            File::new("kernels/src/ops/mod.rs", KINDS),
            File::new("kernels/src/ops/sums/mod.rs", registry),
        ];
        let path = |name| format!("kernels/src/ops/sums/add/{name}");
        list.extend(files.iter().map(|(name, text)| File::new(&path(name), text)));
        faults(&list)
    }

    /// The files, with the CUDA part of an op.
    fn on_both(files: &[(&str, &str)], registry: &str) -> Vec<String> {
        op(&[files, &[("cuda.rs", ""), ("add.cu", "// Adds.")]].concat(), registry)
    }

    #[test]
    fn each_missing_part_of_the_kernels_is_a_fault() {
        let cpu = [("mod.rs", "//! Add."), ("cpu.rs", ""), ("cases.rs", "")];
        let with = |cuda: &[(&str, &str)]| op(&[&cpu[..], cuda].concat(), REGISTRY);
        let only = |found: Vec<String>, words: &str| {
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(words), "{}", found[0]);
        };
        only(with(&[("add.cu", "// Adds.")]), "has no CUDA launch");
        only(with(&[("cuda.rs", "")]), "has no CUDA source");
        only(with(&[("cuda.rs", ""), ("sum.cu", "// Adds.")]), "not named after its op");
        only(with(&[("cuda.rs", ""), ("add_half.cu", "#include")]), "has no head");
    }

    fn run_cpu(lines: usize) -> String {
        format!("impl Op for Add {{\n    fn run_cpu(&self) {{\n{}    }}\n}}\n", "x\n".repeat(lines))
    }

    #[test]
    fn a_complete_folder_passes() {
        let whole = [("mod.rs", "//! Add."), ("cpu.rs", ""), ("cases.rs", "")];
        assert!(on_both(&whole, REGISTRY).is_empty());
        let short = run_cpu(MAX_LINES_IN_MOD - 2);
        assert!(on_both(&[("mod.rs", &short), ("cases.rs", "")], REGISTRY).is_empty());
    }

    #[test]
    fn each_missing_part_is_a_fault() {
        let missing = |files: &[(&str, &str)], registry: &str, words: &str| {
            let found = on_both(files, registry);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(words), "{}", found[0]);
        };
        missing(&[("cpu.rs", ""), ("cases.rs", "")], REGISTRY, "has no mod.rs");
        missing(&[("mod.rs", ""), ("cases.rs", "")], REGISTRY, "has no CPU reference");
        missing(&[("mod.rs", ""), ("cpu.rs", "")], REGISTRY, "has no cases");
        let long = run_cpu(MAX_LINES_IN_MOD - 1);
        missing(&[("mod.rs", &long), ("cases.rs", "")], REGISTRY, "has 31 lines");
        let whole = [("mod.rs", ""), ("cpu.rs", ""), ("cases.rs", "")];
        missing(&whole, "pub mod add;\n", "add `add::cases()`");
        missing(&whole, "        add::cases(),\n", "add `pub mod add;`");
        assert_eq!(faults(&[]).len(), 1, "nothing to check is a fault");
        for line in ["mod sums;", "pub use sums::*;", "    sums::cases()"] {
            let kinds = KINDS.replace(&format!("{line}\n"), "");
            let path = |name: &str| format!("kernels/src/ops/{name}");
            let mut list = vec![File::new(&path("mod.rs"), &kinds)];
            list.push(File::new(&path("sums/mod.rs"), REGISTRY));
            let complete = whole.iter().chain(&[("cuda.rs", ""), ("add.cu", "// Adds.")]);
            list.extend(complete.map(|(n, text)| File::new(&path(&format!("sums/add/{n}")), text)));
            let found = faults(&list);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(line.trim()), "{found:?}");
        }
    }
}
