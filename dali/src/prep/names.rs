//! The files of images whose names the annotations write in another way: with Windows separators,
//! in another Unicode normal form, or in other upper and lower case.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use unicode_normalization::UnicodeNormalization;

use super::group::ImageTask;

/// The names in a folder, by their form for comparison.
type Listing = HashMap<String, Vec<String>>;

/// The files in a folder of images, which is listed once and only if a name is not found.
pub(super) struct Names<'a> {
    folder: &'a Path,
    /// How many of the names in the annotations have one form.
    forms: HashMap<String, usize>,
    listings: Mutex<HashMap<PathBuf, Listing>>,
}

impl<'a> Names<'a> {
    pub(super) fn new(folder: &'a Path, tasks: &'a [ImageTask]) -> Self {
        let names: HashSet<_> = tasks.iter().map(|task| &task.image.file_name).collect();
        let mut forms = HashMap::new();
        names.into_iter().for_each(|name| *forms.entry(form(name)).or_default() += 1);
        Names { folder, forms, listings: Mutex::default() }
    }

    /// The name of the file that is meant by `name`: itself, or the only one that differs from it
    /// in such a way.
    ///
    /// # Errors
    /// There is none, or there are several; two names of the annotations mean one file.
    pub(super) fn find(&self, name: &str) -> io::Result<String> {
        let fault = match self.folder.join(name).symlink_metadata() {
            Err(fault) if fault.kind() == io::ErrorKind::NotFound => fault,
            // Any other fault comes again when the file is read.
            _ => return Ok(name.to_string()),
        };
        let mut found = PathBuf::new();
        for part in name.split(['/', '\\']).filter(|part| !["", "."].contains(part)) {
            let alike = self.alike(&self.folder.join(&found), part);
            match alike.as_slice() {
                [] if !name.contains('\\') => return Err(fault),
                [one] => found.push(one),
                alike => return Err(other(&alike.join(", "))),
            }
        }
        match self.forms.get(&form(name)) {
            Some(2..) => Err(other("a file that another file_name means")),
            _ => Ok(found.to_string_lossy().into_owned()),
        }
    }

    /// The names in a folder that may be meant by another.
    fn alike(&self, folder: &Path, name: &str) -> Vec<String> {
        if folder.join(name).symlink_metadata().is_ok() {
            return vec![name.to_string()];
        }
        let mut listings = self.listings.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = listings.entry(folder.to_path_buf()).or_insert_with(|| {
            let mut listing = Listing::new();
            let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
            for name in entries.filter_map(|entry| entry.file_name().into_string().ok()) {
                listing.entry(form(&name)).or_default().push(name);
            }
            listing
        });
        let mut alike = listing.get(&form(name)).cloned().unwrap_or_default();
        alike.sort();
        alike
    }
}

fn other(alike: &str) -> io::Error {
    let alike = if alike.is_empty() { "nothing" } else { alike };
    io::Error::other(format!(
        "no such file; but for case, Unicode form and Windows separators there is {alike}; correct \
         file_name"
    ))
}

/// A name as it is compared.
fn form(name: &str) -> String {
    name.replace('\\', "/").nfc().collect::<String>().to_lowercase().nfc().collect()
}
