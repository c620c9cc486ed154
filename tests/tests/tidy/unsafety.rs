//! Where `unsafe` may stand.

use super::files::File;
use super::rust::{code_only, lines_with_word};

/// The files that may hold `unsafe`, each with the reason that safe Rust does not do.
pub(crate) const LISTED: &[(&str, &str)] = &[
    (
        "dali/src/store/mmap.rs",
        "mapping a file is unsafe by nature: another process may change it under us, or cut it",
    ),
    (
        "emulator/nccl/src/api.rs",
        "NCCL is an interface of C functions, whose callers vouch for their pointers",
    ),
    ("emulator/nccl/src/group.rs", "sums reach the memory of the test driver by address"),
    (
        "emulator/nccl/src/hook.rs",
        "the test driver is reached through C functions, found at run time",
    ),
    ("emulator/nccl/src/interface.rs", "the C library lists the network interfaces"),
    ("emulator/nccl/tests/nccl.rs", "C functions are called with the mistakes of programs"),
    ("emulator/nccl/tests/nccl/driver.rs", "a driver of C functions for the tests"),
    (
        "emulator/src/cuda/api/device.rs",
        "the driver is an interface of C functions: devices and contexts",
    ),
    ("emulator/src/cuda/api/exit.rs", "the C library calls a function when the process ends"),
    ("emulator/src/cuda/api/hook.rs", "the NCCL of tests enqueues operations through C functions"),
    (
        "emulator/src/cuda/api/memory.rs",
        "the driver is an interface of C functions: memory and copies",
    ),
    (
        "emulator/src/cuda/api/mod.rs",
        "the driver is an interface of C functions, whose callers vouch for their pointers",
    ),
    ("emulator/src/cuda/api/in_process.rs", "tests of the process ask through C functions"),
    (
        "emulator/src/cuda/api/module.rs",
        "the driver is an interface of C functions: modules and launches",
    ),
    (
        "emulator/src/cuda/api/nvml.rs",
        "the management library is an interface of C functions, whose callers vouch for pointers",
    ),
    (
        "emulator/src/cuda/api/tensor.rs",
        "the driver is an interface of C functions: maps of tensors",
    ),
    ("emulator/src/cuda/work.rs", "copies and operations of others reach memory by address"),
    ("emulator/src/exec/access.rs", "kernels reach memory by address, which is checked here"),
    ("emulator/src/exec/bulk.rs", "bulk copies reach memory by address, which is checked before"),
    ("emulator/src/exec/float.rs", "vectors of the processor are taken as lists of their elements"),
    ("emulator/src/exec/hopper.rs", "shared memory is reached by address, which is checked before"),
    (
        "emulator/src/exec/mod.rs",
        "calls functions compiled for the processor's features, asked at run time",
    ),
    ("emulator/src/exec/warp.rs", "registers are read as floats"),
    ("emulator/src/memory.rs", "device memory is memory of this process, reached by address"),
    ("emulator/src/ptx/mod.rs", "the variables of a module are written to device memory"),
    ("emulator/test_gpu/src/library.rs", "the driver is loaded, and asked through C functions"),
    (
        "emulator/tests/planted/cuda.rs",
        "C functions are called as programs do, with their mistakes",
    ),
    ("emulator/tests/planted/host.rs", "pinned memory is written while a copy may read it"),
    (
        "engine/src/main.rs",
        "an allocator is unsafe by nature; this one ends the process where there is no memory",
    ),
    (
        "graph/src/exec/arena.rs",
        "one allocation is lent out in several disjoint mutable pieces at a time",
    ),
    ("tools/compile/src/nvrtc.rs", "NVRTC is a library of C functions, loaded at run time"),
    (
        "kernels/device/src/cuda/context.rs",
        "the driver is reached through C functions; here: version, GPU, context",
    ),
    (
        "kernels/device/src/cuda/memory.rs",
        "the driver gives memory by address; what the GPU writes too is read by volatile reads",
    ),
    (
        "kernels/device/src/cuda/module.rs",
        "the driver is reached through C functions; here: code and its attributes",
    ),
    (
        "kernels/device/src/cuda/nccl/library.rs",
        "NCCL is a library of C functions, loaded at run time",
    ),
    (
        "kernels/device/src/cuda/nccl/member.rs",
        "NCCL is reached through C functions; here: a communicator that one thread gives up",
    ),
    (
        "kernels/device/src/cuda/nccl/mod.rs",
        "NCCL is reached through C functions; here: joining a group, and its sums",
    ),
    ("kernels/device/src/cuda/nvml.rs", "NVML is a library of C functions, loaded at run time"),
    (
        "kernels/device/src/cuda/staging.rs",
        "memory of the driver's is reached by reference where no copy reads it",
    ),
    (
        "kernels/device/src/cuda/stream.rs",
        "the driver is reached through C functions; here: launches, copies, captured graphs",
    ),
    (
        "kernels/src/isa.rs",
        "calls functions compiled for the processor's features, asked at run time",
    ),
    (
        "kernels/src/matmul/grid.rs",
        "threads write rectangles of one matrix, whose rows interleave in memory",
    ),
    (
        "kernels/src/matmul/tile/avx2.rs",
        "SIMD intrinsics on rows that are reached by pointer, in the innermost loop",
    ),
    (
        "kernels/src/matmul/tile/avx512.rs",
        "SIMD intrinsics on rows that are reached by pointer, in the innermost loop",
    ),
    (
        "kernels/src/matmul/tile/mod.rs",
        "calls the tile that the processor's features, asked at run time, allow",
    ),
    (
        "kernels/src/matmul/tile/portable.rs",
        "the same signature and the same pointers as the SIMD tile that it stands in for",
    ),
    (
        "kernels/src/matmul/transpose.rs",
        "SIMD intrinsics on rows that are reached by pointer, a square at a time",
    ),
];

/// `unsafe`, or leave for it, in files that are not listed; `unsafe` without its argument; and
/// entries of the list that no longer hold any.
pub(crate) fn faults(files: &[File], listed: &[(&str, &str)]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let code = code_only(&file.text);
        let mut lines = lines_with_word(&code, "unsafe");
        if listed.iter().any(|(path, _)| *path == file.path) {
            faults.extend(lines.iter().filter_map(|line| argument_fault(file, &code, *line)));
            continue;
        }
        lines.extend(lines_with_word(&code, "unsafe_code"));
        if let Some(line) = lines.first() {
            let path = &file.path;
            faults.push(format!(
                "{path}:{line}: `unsafe` outside the listed files; write it safely, or list the \
                 file with its reason in tests/tests/tidy/unsafety.rs"
            ));
        }
    }
    for (path, _) in listed {
        let file = files.iter().find(|file| file.path == *path);
        let used = |file: &File| !lines_with_word(&code_only(&file.text), "unsafe").is_empty();
        if !file.is_some_and(used) {
            faults.push(format!(
                "{path}: is listed for `unsafe` but holds none; take it off the list in \
                 tests/tests/tidy/unsafety.rs"
            ));
        }
    }
    faults
}

/// `unsafe` on this line (from 1) without an argument: a block or impl wants `SAFETY:` in the
/// comment above its statement, a function a `# Safety` section.
fn argument_fault(file: &File, code: &str, line: usize) -> Option<String> {
    let own = code.lines().nth(line - 1).unwrap_or("");
    if names_a_type(own) {
        return None;
    }
    let wanted = if own.contains("unsafe fn") { "# Safety" } else { "SAFETY:" };
    let text: Vec<&str> = file.text.lines().take(line).collect();
    let code: Vec<&str> = code.lines().take(line).collect();
    // Upwards: the rest of the statement, then the comments and attributes on top of it.
    let mut in_comments = false;
    for i in (0..line).rev() {
        if text[i].contains(wanted) {
            return None;
        }
        let blank = code[i].trim().is_empty();
        let comment = blank && !text[i].trim().is_empty();
        let attribute = code[i].trim_start().starts_with("#[");
        let ends = code[i].trim_end().ends_with([';', '{', '}']);
        let other_statement = i + 1 < line && ends;
        if other_statement || (in_comments && !comment && !attribute) || (blank && !comment) {
            break;
        }
        in_comments |= comment;
    }
    let path = &file.path;
    Some(format!("{path}:{line}: `unsafe` without its argument; say why it holds: `{wanted} ...`"))
}

/// True if `unsafe` on this line is part of a function pointer's type and does nothing.
fn names_a_type(line: &str) -> bool {
    let Some((_, rest)) = line.split_once("unsafe") else { return false };
    let rest = rest.trim_start();
    let rest = rest.strip_prefix("extern").unwrap_or(rest);
    rest.trim_start().starts_with("fn(")
}

#[cfg(test)]
mod tests {
    use super::faults;
    use crate::tidy::files::File;

    const LIST: &[(&str, &str)] = &[("a/in.rs", "a reason")];
    const GOOD: &str = "fn f() {\n    // SAFETY: it holds.\n    unsafe { g() }\n}\n";

    fn with(text: &str) -> Vec<String> {
        faults(&[File::new("a/in.rs", GOOD), File::new("a/out.rs", text)], LIST)
    }

    #[test]
    fn unsafe_outside_the_list_is_a_fault() {
        for text in ["unsafe { x() }", "#![allow(unsafe_code)]", "unsafe impl Send for X {}"] {
            let found = with(text);
            assert_eq!(found.len(), 1, "{text}");
            assert!(found[0].starts_with("a/out.rs:1: `unsafe` outside"), "{}", found[0]);
        }
        for text in ["// unsafe", "f(\"unsafe\")", "fn not_unsafe() {}"] {
            assert!(with(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn an_entry_without_unsafe_is_a_fault() {
        assert!(faults(&[File::new("a/in.rs", "fn f() {}")], LIST)[0].contains("holds none"));
        assert!(faults(&[], LIST)[0].contains("holds none"));
    }

    #[test]
    fn unsafe_without_an_argument_is_a_fault() {
        let within = |text: &str| faults(&[File::new("a/in.rs", text)], LIST);
        for good in [
            GOOD,
            "// SAFETY: both\n// lines.\nlet x =\n    unsafe { g() };\n",
            "/// Does.\n///\n/// # Safety\n/// As said.\n#[inline]\npub unsafe fn f() {}\n",
            "// SAFETY: never shared.\nunsafe impl Send for X {}\n",
            "// SAFETY: x.\nunsafe impl X {}\n\ntype F = unsafe extern \"C\" fn(i32);\n",
            "// SAFETY: x.\nunsafe impl X {}\n\nstruct S {\n    f: unsafe fn(),\n}\n",
        ] {
            assert!(within(good).is_empty(), "{good}: {:?}", within(good));
        }
        for bad in [
            "fn f() {\n    unsafe { g() }\n}\n",
            "// SAFETY: of another statement.\nlet y = 1;\nlet x = unsafe { g() };\n",
            "// SAFETY: too far up.\n\nunsafe impl Send for X {}\n",
            "// SAFETY: a function wants a section.\nunsafe fn f() {}\n",
            "unsafe extern \"C\" fn f(x: i32) {}\n",
        ] {
            assert_eq!(within(bad).len(), 1, "{bad}");
        }
    }
}
