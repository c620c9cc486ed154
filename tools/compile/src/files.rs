//! Reads, writes and compares the files in a folder of compiled kernels.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::Fault;

/// Names (relative to the folder) and contents of all files in a folder.
pub type Files = BTreeMap<String, Vec<u8>>;

/// The files currently in the folder; empty if it does not exist.
///
/// # Errors
/// A file cannot be read.
pub fn present(folder: &Path) -> Result<Files, Fault> {
    let mut files = Files::new();
    if folder.exists() {
        collect(folder, "", &mut files)?;
    }
    Ok(files)
}

fn collect(folder: &Path, prefix: &str, files: &mut Files) -> Result<(), Fault> {
    let fault = |e| Fault(format!("{}: {e}", folder.display()));
    for entry in fs::read_dir(folder).map_err(fault)? {
        let entry = entry.map_err(fault)?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().map_err(fault)?.is_dir() {
            collect(&entry.path(), &format!("{name}/"), files)?;
        } else {
            files.insert(name, fs::read(entry.path()).map_err(fault)?);
        }
    }
    Ok(())
}

/// Writes `files` and removes all other files in the folder; unchanged files are not touched, so
/// that they cause no rebuild.
///
/// # Errors
/// A file cannot be written or removed.
pub fn write(folder: &Path, files: &Files) -> Result<(), Fault> {
    let fault = |e| Fault(format!("{}: {e}", folder.display()));
    fs::create_dir_all(folder).map_err(fault)?;
    let old = present(folder)?;
    for name in old.keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder.join(name)).map_err(fault)?;
    }
    for (name, text) in files.iter().filter(|(name, text)| old.get(*name) != Some(text)) {
        let file = folder.join(name);
        fs::create_dir_all(file.parent().unwrap_or(folder)).map_err(fault)?;
        fs::write(file, text).map_err(fault)?;
    }
    Ok(())
}

/// A one-line message per file that differs between `folder` and the compiled result.
pub fn differences(folder: &str, compiled: &Files, present: &Files) -> Vec<String> {
    let mut sentences = Vec::new();
    for (name, text) in compiled {
        match present.get(name) {
            None => sentences.push(format!("{folder}/{name} is missing")),
            Some(old) if old != text => {
                let place = match (std::str::from_utf8(old), std::str::from_utf8(text)) {
                    (Ok(old), Ok(text)) => {
                        let (line, was, is) = first_difference(old, text);
                        format!(": line {line} is `{was}` and should be `{is}`")
                    }
                    _ => String::new(),
                };
                sentences.push(format!(
                    "{folder}/{name} differs from the compiled result of its source{place}"
                ));
            }
            Some(_) => {}
        }
    }
    let extra = present.keys().filter(|name| !compiled.contains_key(*name));
    sentences.extend(extra.map(|name| format!("{folder}/{name} has no source")));
    sentences
}

/// The first line that differs: its number (from 1), and its beginning in both texts.
fn first_difference(old: &str, new: &str) -> (usize, String, String) {
    let begin = |line: Option<&str>| line.unwrap_or("").trim().chars().take(60).collect();
    let (mut old, mut new) = (old.lines(), new.lines());
    for number in 1.. {
        let (a, b) = (old.next(), new.next());
        if a != b || a.is_none() {
            return (number, begin(a), begin(b));
        }
    }
    (0, String::new(), String::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        list.iter().map(|(name, text)| (name.to_string(), text.as_bytes().to_vec())).collect()
    }

    #[test]
    fn each_differing_file_is_reported_in_one_line() {
        let compiled = files(&[("a.ptx", "1\n2\n"), ("b.ptx", "1"), ("c.ptx", "1")]);
        let present = files(&[("a.ptx", "1\n3\n"), ("c.ptx", "1"), ("d.ptx", "1")]);
        assert_eq!(
            differences("ptx", &compiled, &present),
            [
                "ptx/a.ptx differs from the compiled result of its source: line 2 is `3` and \
                 should be `2`",
                "ptx/b.ptx is missing",
                "ptx/d.ptx has no source",
            ]
        );
        assert!(differences("ptx", &compiled, &compiled).is_empty());
    }

    #[test]
    fn writing_removes_files_that_were_not_compiled() {
        let folder = std::env::temp_dir().join(format!("compile-kernels-{}", std::process::id()));
        write(&folder, &files(&[("a.ptx", "1"), ("x/old.ptx", "1")])).unwrap();
        let compiled = files(&[("a.ptx", "2"), ("x/b.ptx", "1")]);
        write(&folder, &compiled).unwrap();
        assert_eq!(present(&folder).unwrap(), compiled);
        fs::remove_dir_all(folder).unwrap();
    }
}
