//! The pictures in a prediction's output folder. Only files that onegraph wrote are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use image::RgbImage;

use crate::EngineError;
use crate::checkpoint::hex_digest;
use crate::draw::png;
use crate::run_dir::{io, write_whole};

/// Maximum length of a name in bytes. With number and extension, it stays within file systems'
/// limit of 255 bytes.
const LONGEST_NAME: usize = 200;
/// File that lists the pictures that a run wrote, in the format of `sha256sum`.
const LIST: &str = "pictures.sha256";

/// Writes the pictures of one prediction run.
#[derive(Debug)]
pub(super) struct Pictures {
    folder: PathBuf,
    list: File,
}

impl Pictures {
    /// Opens a folder. Removes the pictures that an earlier run wrote there, unless they were
    /// changed since.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(super) fn begin(folder: &Path) -> Result<Self, EngineError> {
        let path = folder.join(LIST);
        for (name, digest) in listed(&fs::read_to_string(&path).unwrap_or_default()) {
            let old = folder.join(&name);
            let is_ours = fs::read(&old).is_ok_and(|bytes| hex_digest(&bytes) == digest);
            if is_ours {
                fs::remove_file(&old).map_err(io(&old))?;
            }
        }
        write_whole(&path, b"")?;
        let list = OpenOptions::new().append(true).open(&path).map_err(io(&path))?;
        Ok(Self { folder: folder.to_path_buf(), list })
    }

    /// Writes a picture as `NAME.png`, or as `NAME-2.png` etc. if a file with that name exists.
    ///
    /// # Errors
    /// [`EngineError::Io`] names the file.
    pub(super) fn add(&mut self, name: &str, picture: &RgbImage) -> Result<(), EngineError> {
        let end = (0..=LONGEST_NAME.min(name.len())).rev().find(|at| name.is_char_boundary(*at));
        let name = &name[..end.unwrap_or(0)];
        let file =
            |n: usize| if n == 1 { format!("{name}.png") } else { format!("{name}-{n}.png") };
        let is_free = |file: &String| !self.folder.join(file).exists();
        let Some(file) = (1..).map(file).find(is_free) else {
            unreachable!("names do not run out")
        };
        let path = self.folder.join(&file);
        let bytes = png(picture)?;
        // The list is written first: a picture that is not listed would never be removed.
        let line = format!("{}  {file}\n", hex_digest(&bytes));
        let listed = self.list.write_all(line.as_bytes());
        listed.map_err(io(&self.folder.join(LIST)))?;
        write_whole(&path, &bytes)
    }
}

/// Names of the pictures that earlier runs wrote into a folder.
pub(super) fn drawn_in(folder: &Path) -> BTreeSet<String> {
    let list = fs::read_to_string(folder.join(LIST)).unwrap_or_default();
    listed(&list).into_keys().collect()
}

/// Parses a list into names and digests. Names that point outside the folder are ignored.
fn listed(text: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.split_once("  "));
    let inside = lines.filter(|(_, name)| Path::new(name).file_name() == Some(name.as_ref()));
    inside.map(|(digest, name)| (name.to_string(), digest.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use image::Rgb;

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn only_unchanged_pictures_of_earlier_run_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let picture = RgbImage::from_pixel(2, 2, Rgb([1, 2, 3]));
        let mut first = Pictures::begin(folder.path()).unwrap();
        ["0000_a", "0001_b"].iter().for_each(|name| first.add(name, &picture).unwrap());
        fs::write(folder.path().join("0001_b.png"), "painted over").unwrap();
        fs::write(folder.path().join("0003_d.png"), "another's").unwrap();
        let mut second = Pictures::begin(folder.path()).unwrap();
        assert_eq!(names(folder.path()), ["0001_b.png", "0003_d.png", LIST]);
        second.add("0003_d", &picture).unwrap();
        assert_eq!(fs::read(folder.path().join("0003_d.png")).unwrap(), b"another's");
        assert!(names(folder.path()).contains(&"0003_d-2.png".to_string()));
        // An edited list must not cause files outside the folder to be removed.
        let outside = folder.path().join("outside");
        fs::write(&outside, "x").unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        fs::write(inner.join(LIST), format!("{}  ../outside\n", hex_digest(b"x"))).unwrap();
        Pictures::begin(&inner).unwrap();
        assert!(outside.exists());
    }
}
