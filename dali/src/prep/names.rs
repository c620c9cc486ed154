//! Finds image files whose names are spelled differently in the annotations: with Windows
//! separators, in a different Unicode normal form, or in different case.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::OnceLock;

use unicode_normalization::UnicodeNormalization;

use super::group::ImageTask;

/// The files in a folder of images. The folder is listed once, when a name is not found.
pub(super) struct Names<'a> {
    folder: &'a Path,
    /// For each normalized form, the number of names in the annotations.
    forms: HashMap<String, usize>,
    /// For each normalized form, the paths of files.
    files: OnceLock<HashMap<String, Vec<String>>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(folder: &'a Path, tasks: &'a [ImageTask]) -> Self {
        let names: HashSet<_> = tasks.iter().map(|task| &task.image.file_name).collect();
        let mut forms = HashMap::new();
        names.into_iter().for_each(|name| *forms.entry(form(name)).or_default() += 1);
        Names { folder, forms, files: OnceLock::new() }
    }

    /// The file for `name`: the file with this name, or the only file whose name differs only in
    /// spelling.
    ///
    /// # Errors
    /// If there is no such file, or several, or if several names in the annotations match the file.
    pub(super) fn find(&self, name: &str) -> io::Result<String> {
        let fault = match self.folder.join(name).symlink_metadata() {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => fault,
            // Other errors occur again when the file is read, and are reported then.
            _ => return Ok(name.to_string()),
        };
        let files = self.files.get_or_init(|| {
            let mut files = HashMap::new();
            // Links may lead to a parent folder, so the listing is no deeper than the nesting of
            // the names.
            let depth = self.forms.keys().map(|form| form.matches('/').count()).max();
            list(self.folder, "", depth.unwrap_or(0), &mut files);
            files
        });
        let form = form(name);
        let alike = files.get(&form).map_or(&[][..], Vec::as_slice);
        let meant = match (alike, self.forms.get(&form)) {
            ([_], Some(2..)) => "a file that matches several file_name".to_string(),
            ([one], _) => return Ok(one.clone()),
            ([], _) if !name.contains('\\') => return Err(fault),
            ([], _) => "nothing".to_string(),
            _ => alike.join(", "),
        };
        Err(io::Error::other(format!(
            "no such file; with different case, Unicode form or separators there is {meant}; \
             correct file_name"
        )))
    }
}

/// Lists the files under `prefix`, which ends in `/`, by their normalized form.
fn list(folder: &Path, prefix: &str, depth: usize, files: &mut HashMap<String, Vec<String>>) {
    let entries = std::fs::read_dir(folder.join(prefix)).into_iter().flatten().flatten();
    let mut names: Vec<_> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    for path in names.into_iter().map(|name| format!("{prefix}{name}")) {
        if depth > 0 && folder.join(&path).is_dir() {
            list(folder, &format!("{path}/"), depth - 1, files);
        } else {
            files.entry(form(&path)).or_default().push(path);
        }
    }
}

/// The normalized form of a name, for comparison.
fn form(name: &str) -> String {
    let parts = name.split(['/', '\\']).filter(|part| !["", "."].contains(part));
    let path = parts.collect::<Vec<_>>().join("/");
    path.nfc().collect::<String>().to_lowercase().nfc().collect()
}
