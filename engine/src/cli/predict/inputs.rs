//! The input images of a prediction.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::pictures::drawn_in;
use crate::EngineError;
use crate::remote::local;
use crate::run_dir::io;

/// Extensions of image files in folders. The actual format is determined from a file's contents.
const EXTENSIONS: [&str; 19] = [
    "avif", "bmp", "gif", "heic", "heif", "jfif", "jif", "jp2", "jpe", "jpeg", "jpg", "jxl", "pgm",
    "png", "pnm", "ppm", "tif", "tiff", "webp",
];

/// The images to predict on.
#[derive(Debug, Default)]
pub(super) struct Inputs {
    /// The image files found in folders, and all files given explicitly.
    pub(super) files: Vec<PathBuf>,
    /// Errors about given paths that do not exist, and folders that cannot be read.
    pub(super) faults: Vec<EngineError>,
    /// Number of skipped pictures that an earlier run wrote into the folders.
    pub(super) drawn: usize,
}

impl Inputs {
    /// Collects the given files, and the image files in the given folders and their subfolders,
    /// sorted within each folder. Pictures that an earlier run wrote, and files under `out`, are
    /// skipped.
    ///
    /// # Errors
    /// As for [`local`]. If no image is found: the error about the first unreadable path, or
    /// [`EngineError::Usage`].
    pub(super) fn collect(paths: &[PathBuf], out: &Path) -> Result<Self, EngineError> {
        let out = fs::canonicalize(out).ok();
        let mut inputs = Self::default();
        for path in paths {
            let path = local(path)?;
            if path.is_dir() {
                inputs.add_folder(&path, out.as_deref());
            } else if path.is_file() {
                inputs.files.push(path);
            } else {
                inputs.faults.push(absent(&path));
            }
        }
        if inputs.files.is_empty() {
            let text = "no image file was found in the given paths";
            return Err(match inputs.faults.is_empty() {
                true => EngineError::Usage(text.into()),
                false => inputs.faults.swap_remove(0),
            });
        }
        Ok(inputs)
    }

    fn add_folder(&mut self, folder: &Path, out: Option<&Path>) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(fault) => return self.faults.push(io(folder)(fault)),
        };
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.sort();
        let drawn = drawn_in(folder);
        for path in paths {
            // Symbolic links to folders are not followed: they may form a cycle.
            let is_folder = path.is_dir() && !path.is_symlink();
            if is_folder && fs::canonicalize(&path).ok().as_deref() != out {
                self.add_folder(&path, out);
            } else if path.is_file() && is_image(&path) {
                match path.file_name().and_then(|name| name.to_str()) {
                    Some(name) if drawn.contains(name) => self.drawn += 1,
                    _ => self.files.push(path),
                }
            }
        }
    }
}

fn is_image(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    extension.is_some_and(|extension| EXTENSIONS.contains(&extension.as_str()))
}

fn absent(path: &Path) -> EngineError {
    let what = match fs::metadata(path) {
        Ok(_) => "is not a file or folder".to_string(),
        Err(fault) if fault.kind() == ErrorKind::NotFound => "does not exist".to_string(),
        Err(fault) => format!("cannot be read: {fault}"),
    };
    EngineError::Usage(format!("{} {what}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn predict_searches_subfolders_and_skips_its_own_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let names =
            ["b.png", "sub/deep/a.JPG", "sub/c.jfif", "sub/d.gif", "out/0000_b.png", "notes.txt"];
        for name in names {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), at("sub/up")).unwrap();
        let inputs = Inputs::collect(&[folder.path().into()], &at("out")).unwrap();
        let files = ["b.png", "sub/c.jfif", "sub/d.gif", "sub/deep/a.JPG"].map(at);
        assert_eq!((inputs.files.as_slice(), inputs.drawn), (files.as_slice(), 0));
    }
}
