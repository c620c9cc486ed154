//! The images that a prediction is asked for.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::EngineError;
use crate::run_dir::io;

/// Formats by extension that are images, but not ones that onegraph reads.
const UNSUPPORTED: [(&str, &str); 11] = [
    ("avif", "AVIF"),
    ("bmp", "BMP"),
    ("gif", "GIF"),
    ("heic", "HEIC"),
    ("heif", "HEIF"),
    ("jp2", "JPEG 2000"),
    ("jxl", "JPEG XL"),
    ("ppm", "PPM"),
    ("tif", "TIFF"),
    ("tiff", "TIFF"),
    ("webp", "WebP"),
];

/// Images to predict on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Inputs {
    /// JPEG and PNG files of folders, and all files that were named.
    pub(super) files: Vec<PathBuf>,
    /// Images of folders in a format that is not read, with its name.
    pub(super) unsupported: Vec<(PathBuf, &'static str)>,
}

impl Inputs {
    /// The files named, and those inside the folders named and their subfolders, each folder's
    /// sorted. What lies under `out` is no input: an earlier run may have drawn it.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if a path does not exist or no image is found.
    pub(super) fn collect(paths: &[PathBuf], out: &Path) -> Result<Self, EngineError> {
        let out = fs::canonicalize(out).ok();
        let mut inputs = Self::default();
        for path in paths {
            if path.is_dir() {
                inputs.add_folder(path, out.as_deref())?;
            } else if path.is_file() {
                inputs.files.push(path.clone());
            } else {
                let what = if path.exists() { "is no file or folder" } else { "does not exist" };
                return Err(EngineError::Usage(format!("{} {what}", path.display())));
            }
        }
        if inputs.files.is_empty() {
            let mut text = "there is no JPEG or PNG file among the images".to_string();
            if let Some((path, format)) = inputs.unsupported.first() {
                text += &format!("; {} is {format}: convert it", path.display());
            }
            return Err(EngineError::Usage(text));
        }
        Ok(inputs)
    }

    fn add_folder(&mut self, folder: &Path, out: Option<&Path>) -> Result<(), EngineError> {
        let entries = fs::read_dir(folder).map_err(io(folder))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
        paths.sort();
        for path in paths {
            // A link to a folder may lead back up, and is not followed.
            let is_folder = path.is_dir() && !path.is_symlink();
            if is_folder && fs::canonicalize(&path).ok().as_deref() != out {
                self.add_folder(&path, out)?;
            } else if path.is_file() {
                let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
                let extension = extension.unwrap_or_default();
                let known = UNSUPPORTED.iter().find(|(known, _)| *known == extension);
                match (extension.as_str(), known) {
                    ("jpg" | "jpeg" | "png", _) => self.files.push(path),
                    (_, Some((_, format))) => self.unsupported.push((path, format)),
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Ids of the images in the results: those in COCO's file names, so that `eval --gt` knows
    /// them; positions if a name is no number or comes twice.
    pub(super) fn ids(&self) -> Vec<u64> {
        let id = |file: &PathBuf| file.file_stem()?.to_str()?.parse().ok();
        let named: Option<Vec<u64>> = self.files.iter().map(id).collect();
        let distinct = |ids: &Vec<u64>| ids.iter().collect::<BTreeSet<_>>().len() == ids.len();
        named.filter(distinct).unwrap_or_else(|| (0..self.files.len() as u64).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_ids_are_the_numbers_of_coco_names_or_positions() {
        let ids = |names: &[&str]| {
            let files = names.iter().map(PathBuf::from).collect();
            Inputs { files, ..Inputs::default() }.ids()
        };
        assert_eq!(ids(&["a/000000000139.jpg", "a/000000000285.jpg"]), [139, 285]);
        assert_eq!(ids(&["a/000000000139.jpg", "street.jpg"]), [0, 1], "a name is no number");
        assert_eq!(ids(&["a/7.jpg", "b/7.png"]), [0, 1], "an id would come twice");
    }

    #[test]
    fn folders_are_searched_to_the_bottom_but_for_the_output() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["b.png", "sub/deep/a.JPG", "sub/anim.gif", "out/0000_b.png", "notes.txt"] {
            fs::create_dir_all(at(name).parent().unwrap()).unwrap();
            fs::write(at(name), "").unwrap();
        }
        std::os::unix::fs::symlink(folder.path(), at("sub/up")).unwrap();
        let inputs = Inputs::collect(&[folder.path().into()], &at("out")).unwrap();
        assert_eq!(inputs.files, [at("b.png"), at("sub/deep/a.JPG")]);
        assert_eq!(inputs.unsupported, [(at("sub/anim.gif"), "GIF")]);
        let error = Inputs::collect(&[at("none")], &at("out")).unwrap_err().to_string();
        assert!(error.ends_with("none does not exist"), "{error}");
        fs::remove_dir_all(at("sub/deep")).unwrap();
        let error = Inputs::collect(&[at("sub")], &at("out")).unwrap_err().to_string();
        assert!(error.contains("no JPEG or PNG") && error.contains("anim.gif is GIF"), "{error}");
    }
}
