//! The rules of the house, as tests: who may import whom, how a source file looks, where `unsafe`
//! may stand, and that the documents are true.
//!
//! Each rule is a function from files to a list of faults, one sentence each with the file and the
//! mend, and is itself tested on small inputs that break it.

mod tidy {
    pub(crate) mod changelog;
    pub(crate) mod circles;
    pub(crate) mod cuda;
    pub(crate) mod docs;
    pub(crate) mod files;
    pub(crate) mod machine;
    pub(crate) mod mirrors;
    pub(crate) mod ops;
    pub(crate) mod presets;
    pub(crate) mod ptx;
    pub(crate) mod rooms;
    pub(crate) mod rust;
    pub(crate) mod shape;
    pub(crate) mod unsafety;
    pub(crate) mod used;
    pub(crate) mod words;
}

use tidy::files::{File, root, tracked};
use tidy::{
    changelog, circles, cuda, docs, machine, mirrors, ops, presets, ptx, rooms, shape, unsafety,
    used, words,
};

/// Fails with all faults at once, so that one run shows all that is to be mended.
fn hold(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

fn rust_files() -> Vec<File> {
    tracked().into_iter().filter(|file| file.path.ends_with(".rs")).collect()
}

/// Rust, CUDA and C++.
fn source_files() -> Vec<File> {
    let is_source = |file: &File| file.path.ends_with(".rs") || cuda::is_cuda(file);
    tracked().into_iter().filter(is_source).collect()
}

#[test]
fn imports_point_down() {
    let workspace = rooms::read(&root());
    hold(rooms::import_faults(&workspace.packages, &workspace.edges));
}

#[test]
fn no_modules_import_one_another_in_a_circle() {
    hold(circles::faults(&rust_files()));
}

#[test]
fn every_room_takes_the_workspace_lints() {
    hold(rooms::lint_faults(&tracked()));
}

#[test]
fn every_source_file_says_what_it_is_for() {
    hold(source_files().iter().filter_map(shape::head_fault).collect());
}

#[test]
fn no_source_file_is_long() {
    hold(source_files().iter().filter_map(shape::length_fault).collect());
}

#[test]
fn no_line_is_wide() {
    hold(source_files().iter().flat_map(shape::width_faults).collect());
}

#[test]
fn every_preset_file_validates() {
    hold(presets::faults(&root().join("configs")));
}

#[test]
fn graph_knows_no_detection() {
    hold(words::graph_faults(&tracked()));
}

#[test]
fn unsafe_stands_only_where_it_is_listed() {
    hold(unsafety::faults(&rust_files(), unsafety::LISTED));
}

#[test]
fn no_file_names_a_machine() {
    hold(tracked().iter().flat_map(machine::faults).collect());
}

#[test]
fn every_op_folder_is_complete() {
    hold(ops::faults(&tracked()));
}

#[test]
fn compiled_kernels_are_those_of_the_sources() {
    hold(ptx::faults(&tracked()));
}

#[test]
fn every_kernel_has_its_header() {
    hold(cuda::header_faults(&tracked()));
}

#[test]
fn a_letter_has_one_meaning() {
    hold(cuda::glossary_faults(&tracked()));
}

#[test]
fn names_in_cuda_comments_exist() {
    hold(cuda::comment_faults(&tracked()));
}

#[test]
fn constants_of_rust_and_cuda_are_equal() {
    hold(mirrors::faults(&tracked()));
}

#[test]
fn every_dependency_is_used() {
    hold(used::dependency_faults(&tracked()));
}

#[test]
fn every_config_field_is_read() {
    hold(used::config_faults(&tracked(), used::UNREAD));
}

#[test]
fn limits_are_called_max_and_min() {
    hold(words::limit_faults(&source_files(), words::LEFT));
}

#[test]
fn no_sentence_begins_without_its_subject() {
    let documents = tracked().into_iter().filter(|file| file.path.ends_with(".md"));
    let files: Vec<File> = source_files().into_iter().chain(documents).collect();
    hold(words::opening_faults(&files));
}

#[test]
fn documents_name_paths_that_exist() {
    let files = tracked();
    hold(docs::path_faults(&files, &files));
}

#[test]
fn the_changelog_begins_with_this_version() {
    hold(changelog::faults(&tracked()));
}

#[test]
fn every_invariant_names_its_test() {
    hold(docs::invariant_faults(&tracked()));
}

#[test]
fn the_table_of_rooms_is_the_one_that_is_tested() {
    hold(docs::table_faults(&tracked(), rooms::ROOMS));
}
