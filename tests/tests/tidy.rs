//! Repository checks beyond the compiler and its lints: allowed imports between crates, where
//! `unsafe` may be used, the format of source files, and the correctness of documents.
//!
//! Each check is a function from files to a list of errors, one line each with the file.

mod tidy {
    pub(crate) mod circles;
    pub(crate) mod crates;
    pub(crate) mod cuda;
    pub(crate) mod docs;
    pub(crate) mod files;
    pub(crate) mod ops;
    pub(crate) mod ptx;
    pub(crate) mod rust;
    pub(crate) mod unsafety;
    pub(crate) mod used;
    pub(crate) mod words;
}

use tidy::files::{File, tracked};
use tidy::{circles, crates, cuda, docs, ops, ptx, unsafety, used, words};

/// Maximum lines of a source file, and maximum characters of a line.
const MAX_LINES: usize = 600;
const MAX_COLUMNS: usize = 100;

/// Fails with all errors at once, so that one run shows everything to fix.
fn hold(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn rust_files() -> Vec<File> {
    tracked().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// Rust, CUDA and C++.
fn source_files() -> Vec<File> {
    let is_source = |file: &File| file.path.ends_with(".rs") || cuda::is_cuda(file);
    let files: Vec<File> = tracked().into_iter().filter(is_source).collect();
    assert!(files.len() > 500, "only {} source files were found", files.len());
    files
}

#[test]
fn crate_imports_follow_layers() {
    hold(crates::faults(&tracked()));
}

#[test]
fn modules_have_no_import_cycle() {
    hold(circles::faults(&rust_files()));
}

#[test]
fn unsafe_is_only_in_listed_files() {
    hold(unsafety::faults(&rust_files()));
}

#[test]
fn every_source_file_has_a_header() {
    let begins = |file: &File| {
        let mark = if file.path.ends_with(".rs") { "//! " } else { "// " };
        file.text.starts_with(mark)
    };
    let without = source_files().into_iter().filter(|file| !begins(file));
    hold(
        without
            .map(|file| format!("{}: its first line must state its purpose", file.path))
            .collect(),
    );
}

#[test]
fn source_files_are_at_most_600_lines() {
    let long = source_files().into_iter().filter(|file| file.text.lines().count() > MAX_LINES);
    hold(long.map(|file| format!("{}: split it at {MAX_LINES} lines", file.path)).collect());
}

/// Lines with a URL, and lines that contain only a string literal, may be longer.
#[test]
fn lines_are_at_most_100_columns() {
    let is_wide = |line: &&str| {
        let may = line.contains("://") || line.trim_start().starts_with('"');
        line.chars().count() > MAX_COLUMNS && !may
    };
    let wide = |file: &File| {
        let line = file.text.lines().find(is_wide)?;
        Some(format!("{}: break the line at {MAX_COLUMNS} columns: {line}", file.path))
    };
    hold(source_files().iter().filter_map(wide).collect());
}

#[test]
fn graph_has_no_detection_terms() {
    hold(tracked().iter().flat_map(words::graph_faults).collect());
}

#[test]
fn limit_names_do_not_begin_with_most_or_least() {
    hold(source_files().iter().flat_map(words::limit_faults).collect());
}

#[test]
fn prose_uses_standard_terms() {
    let documents = tracked().into_iter().filter(|file| file.path.ends_with(".md"));
    hold(
        source_files().into_iter().chain(documents).flat_map(|f| words::prose_faults(&f)).collect(),
    );
}

#[test]
fn no_file_contains_a_machine_path() {
    hold(tracked().iter().flat_map(words::machine_faults).collect());
}

#[test]
fn every_op_folder_is_complete() {
    hold(ops::faults(&tracked()));
}

#[test]
fn compiled_kernels_match_sources() {
    hold(ptx::faults(&tracked()));
}

#[test]
fn every_kernel_has_its_header() {
    hold(cuda::header_faults(&tracked()));
}

#[test]
fn glossary_explains_each_letter_and_noun_once() {
    hold(cuda::glossary_faults(&tracked()));
}

#[test]
fn names_in_cuda_comments_exist() {
    hold(cuda::comment_faults(&tracked()));
}

#[test]
fn every_dependency_is_used() {
    hold(used::dependency_faults(&tracked()));
}

#[test]
fn every_config_field_is_read() {
    hold(used::config_faults(&tracked()));
}

#[test]
fn documents_name_paths_that_exist() {
    hold(docs::path_faults(&tracked()));
}

#[test]
fn every_invariant_names_an_existing_test() {
    hold(docs::invariant_faults(&tracked()));
}

#[test]
fn changelog_starts_with_current_version() {
    let log = tracked().into_iter().find(|file| file.path == "CHANGELOG.md").expect("a changelog");
    let mut headings = log.text.lines().filter_map(|line| line.strip_prefix("## "));
    let newest = headings.find(|heading| *heading != "[Unreleased]").expect("a version");
    assert!(newest.starts_with(concat!("[", env!("CARGO_PKG_VERSION"), "] - ")), "{newest}");
}
