//! Checks that dependencies are used by their package, and that config fields are read.

use super::files::File;
use super::rust::{code_only, is_word};

/// Crates in which each config field must be read.
const READERS: [&str; 3] = ["engine/src/", "bench/src/", "kernels/src/"];

/// Dependencies of a Cargo.toml that no source in its folder refers to.
pub(crate) fn dependency_faults(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for manifest in files.iter().filter(|file| file.path.ends_with("/Cargo.toml")) {
        let folder = manifest.path.trim_end_matches("Cargo.toml");
        let is_own = |file: &&File| file.path.starts_with(folder) && file.path.ends_with(".rs");
        let code: String = files.iter().filter(is_own).map(|file| code_only(&file.text)).collect();
        let names = |name: &str| {
            let path = format!("{name}::");
            let begins = |(at, _)| !code[..at].ends_with(|c| is_word(c) || c == '.');
            code.match_indices(&path).any(begins) || code.contains(&format!("use {name}"))
        };
        let unused = dependencies(&manifest.text).filter(|name| !names(&name.replace('-', "_")));
        faults.extend(unused.map(|name| {
            format!("{}: no source of the package uses `{name}`; remove it", manifest.path)
        }));
    }
    faults
}

/// Keys of the dependency tables.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let tables = manifest.split("\n[").filter_map(|table| table.split_once("dependencies]\n"));
    let keys = tables.flat_map(|(_, table)| table.lines().filter_map(|line| line.split_once('=')));
    keys.filter_map(|(key, _)| key.trim().split('.').next())
}

/// Config fields that no crate reads.
pub(crate) fn config_faults(files: &[File]) -> Vec<String> {
    let reads = |file: &&File| READERS.iter().any(|reader| file.path.starts_with(reader));
    let code: String = files.iter().filter(reads).map(|file| code_only(&file.text)).collect();
    // The field is read as a value, not called.
    let is_read = |field: &str| {
        let ends = |(at, found): (usize, &str)| {
            !code[at + found.len()..].starts_with(|c| is_word(c) || c == '(')
        };
        code.match_indices(&format!(".{field}")).any(ends)
    };
    let tables = files.iter().filter(|file| file.text.contains("\ntable! {"));
    let fields = tables.flat_map(|file| public_fields(&file.text).map(move |of| (&file.path, of)));
    let unread = fields.filter(|(_, field)| !is_read(field));
    unread
        .map(|(path, field)| format!("{path}: nothing reads `{field}`; read it, or remove it"))
        .collect()
}

/// Fields of the structs in `table!`.
fn public_fields(source: &str) -> impl Iterator<Item = &str> {
    let fields = source.lines().filter_map(|line| line.strip_prefix("        pub "));
    let names = fields.filter_map(|rest| rest.split_once(':').map(|(name, _)| name));
    names.filter(|name| name.chars().all(is_word))
}
