//! Declarations are used: dependencies by their package, fields of the config by a reader.

use super::files::File;
use super::rust::{code_only, is_word};

const SCHEMA: &str = "configs/src/schema/";
/// Rooms that read the config for a user.
const READERS: [&str; 2] = ["engine/src/", "bench/src/"];
/// Fields that nothing reads yet, each with the reason.
pub(crate) const UNREAD: &[(&str, &str)] = &[];

/// Dependencies of a Cargo.toml that no source of its package names.
pub(crate) fn dependency_faults(files: &[File]) -> Vec<String> {
    let is_package = |file: &&File| file.name() == "Cargo.toml" && file.text.contains("[package]");
    let manifests: Vec<&File> = files.iter().filter(is_package).collect();
    let folder = |manifest: &File| manifest.path.trim_end_matches("Cargo.toml").to_owned();
    let mut faults = Vec::new();
    for manifest in &manifests {
        let own = folder(manifest);
        // A package within this one's folder has sources of its own.
        let inner: Vec<String> = manifests
            .iter()
            .map(|other| folder(other))
            .filter(|other| *other != own && other.starts_with(&own))
            .collect();
        let of_package = |file: &&File| {
            let within = |folder: &String| file.path.starts_with(folder.as_str());
            file.path.ends_with(".rs") && within(&own) && !inner.iter().any(within)
        };
        let code: Vec<String> =
            files.iter().filter(of_package).map(|file| code_only(&file.text)).collect();
        for dependency in dependencies(&manifest.text) {
            let name = dependency.replace('-', "_");
            if !code.iter().any(|code| names_crate(code, &name)) {
                let path = &manifest.path;
                faults.push(format!(
                    "{path}: depends on `{dependency}`, which no source of the package names; \
                     take it out"
                ));
            }
        }
    }
    if manifests.is_empty() {
        faults.push("Cargo.toml: no package is found; this check proves nothing".into());
    }
    faults
}

/// Keys of the tables of dependencies.
fn dependencies(manifest: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_table = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            in_table = line.trim_end_matches(']').ends_with("dependencies");
        } else if in_table && let Some((key, _)) = line.split_once('=') {
            names.extend(key.trim().split('.').next());
        }
    }
    names
}

/// True if a path begins with the crate, or it is imported as a whole.
fn names_crate(code: &str, name: &str) -> bool {
    code.match_indices(name).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + name.len()..]);
        let begins = !before.ends_with(|c: char| is_word(c) || c == '.');
        let path = after.starts_with("::");
        let whole = before.ends_with("use ") && after.starts_with([';', ' ']);
        begins && (path || whole)
    })
}

/// Fields of the config that no room reads, and fields of `unread` that some does.
pub(crate) fn config_faults(files: &[File], unread: &[(&str, &str)]) -> Vec<String> {
    let reads = |file: &&File| READERS.iter().any(|reader| file.path.starts_with(reader));
    let code: Vec<String> = files.iter().filter(reads).map(|file| code_only(&file.text)).collect();
    let is_read = |field: &str| code.iter().any(|code| reads_field(code, field));
    let mut faults = Vec::new();
    let mut fields = 0;
    for file in files.iter().filter(|file| file.path.starts_with(SCHEMA)) {
        for field in public_fields(&file.text) {
            fields += 1;
            let (path, listed) = (&file.path, unread.iter().any(|(name, _)| *name == field));
            match (is_read(field), listed) {
                (false, false) => faults.push(format!(
                    "{path}: nothing in {} reads `{field}`; read it where it matters, or take it \
                     out",
                    READERS.join(" or ")
                )),
                (true, true) => faults.push(format!(
                    "{path}: `{field}` is read; take it off UNREAD in tests/tests/tidy/used.rs"
                )),
                _ => {}
            }
        }
    }
    if fields == 0 {
        faults.push(format!("{SCHEMA}: holds no field; this check proves nothing"));
    }
    faults
}

/// Fields of the structs in `table!`.
fn public_fields(source: &str) -> impl Iterator<Item = &str> {
    let fields = source.lines().filter_map(|line| line.strip_prefix("        pub "));
    let names = fields.filter_map(|rest| rest.split_once(':').map(|(name, _)| name));
    names.filter(|name| name.chars().all(is_word))
}

/// True if the code has `.field`, as a value and not as a call.
fn reads_field(code: &str, field: &str) -> bool {
    code.match_indices(field).any(|(at, _)| {
        let (before, after) = (&code[..at], &code[at + field.len()..]);
        before.ends_with('.') && !after.starts_with(|c: char| is_word(c) || c == '(')
    })
}
