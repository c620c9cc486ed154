//! Where `unsafe` may be used; clippy requires a comment at each block.

use super::files::File;
use super::rust::{code_only, is_word};

/// The files and folders that may contain `unsafe`, each with the reason why safe Rust is not
/// sufficient.
const LISTED: [(&str, &str); 10] = [
    (
        "dali/src/store/mmap.rs",
        "mapping a file is inherently unsafe: another process may change or truncate it meanwhile",
    ),
    (
        "emulator/",
        "a driver and an NCCL for tests: C functions, whose callers guarantee valid pointers, \
         and kernels that access memory by address",
    ),
    (
        "engine/src/main.rs",
        "an allocator is inherently unsafe; this one ends the process if memory is exhausted",
    ),
    (
        "graph/src/exec/arena.rs",
        "one allocation is borrowed as several disjoint mutable slices at a time",
    ),
    ("tools/compile/src/nvrtc.rs", "NVRTC is a library of C functions, loaded at run time"),
    (
        "kernels/device/src/cuda/",
        "the driver, NCCL and NVML are C libraries that return raw device addresses",
    ),
    (
        "kernels/src/isa.rs",
        "calls functions compiled for processor features that are detected at run time",
    ),
    (
        "kernels/src/matmul/grid.rs",
        "threads write rectangles of one matrix, whose rows interleave in memory",
    ),
    (
        "kernels/src/matmul/tile/",
        "SIMD intrinsics on rows that are accessed by pointer, in the innermost loop",
    ),
    (
        "kernels/src/matmul/transpose.rs",
        "SIMD intrinsics on rows that are accessed by pointer, one square at a time",
    ),
];

/// Files outside of the list that contain or allow `unsafe`, and list entries that no longer
/// contain it.
pub(crate) fn faults(files: &[File]) -> Vec<String> {
    let is_unsafe = |file: &&File| {
        let code = code_only(&file.text);
        code.split(|c| !is_word(c)).any(|word| word == "unsafe" || word == "unsafe_code")
    };
    let found: Vec<&File> = files.iter().filter(is_unsafe).collect();
    let is_outside = |file: &&&File| !LISTED.iter().any(|(path, _)| file.path.starts_with(path));
    let outside = found.iter().filter(is_outside).map(|file| {
        format!(
            "{}: `unsafe` outside the listed files; use safe Rust, or list the file with its \
             reason in tests/tests/tidy/unsafety.rs",
            file.path
        )
    });
    let is_gone = |path: &str| !found.iter().any(|file| file.path.starts_with(path));
    let gone = LISTED.iter().filter(|(path, _)| is_gone(path));
    outside.chain(gone.map(|(path, _)| format!("{path}: has no `unsafe`; unlist it"))).collect()
}
