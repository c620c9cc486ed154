//! Each op has its folder, cases in the table of ops, and a kernel or a reason for having none.

use super::files::File;

const OPS: &str = "kernels/src/ops/";
/// Ops without CUDA kernels in their folder, each with the kernel or library that computes it.
const WITHOUT_KERNELS: [(&str, &str); 3] = [
    ("all_reduce", "run by the device through NVIDIA's NCCL"),
    ("linear", "a convolution of one-pixel images"),
    ("conv_transpose", "the input gradient of a convolution with stride 2"),
];

/// Folders of components of an op.
const PARTS: [&str; 1] = ["rules"];

/// Ops missing from the table of cases, and folders without a kernel.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let of = |path: String| files.iter().find(|file| file.path == path);
    let folders = files.iter().filter_map(|file| {
        let (kind, rest) = file.path.strip_prefix(OPS)?.split_once('/')?;
        Some((kind, rest.strip_suffix("/mod.rs")?))
    });
    let ops = folders.filter(|(_, op)| !PARTS.contains(op));
    let faults = ops.flat_map(|(kind, op)| {
        let list = of(format!("{OPS}{kind}/mod.rs")).map_or("", |file| &file.text);
        let has_cases = list.contains(&format!("{op}::cases()"));
        let folder = format!("{OPS}{kind}/{op}/");
        let is_kernel = |file: &File| file.path.starts_with(&folder) && file.path.ends_with(".cu");
        let has_kernel = files.iter().any(is_kernel);
        let needs_none = WITHOUT_KERNELS.iter().any(|(name, _)| *name == op);
        let cases =
            (!has_cases).then(|| format!("{OPS}{kind}/mod.rs: add {op}::cases() to the list"));
        let kernel = (has_kernel == needs_none)
            .then(|| format!("{folder}: has no kernel; write {op}.cu, or the reason for none"));
        [cases, kernel].into_iter().flatten()
    });
    faults.collect()
}
