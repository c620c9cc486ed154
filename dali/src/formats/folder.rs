//! The contents of a folder: all files, sorted, and image sizes from their headers.

use std::collections::HashMap;
use std::fs::{self, File};
use std::hash::Hash;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{Request, fault};
use crate::decode;
use crate::error::DaliError;
use crate::prep::Exif;

/// Maximum nesting of folders in a data set.
const MAX_DEPTH: usize = 16;
/// Maximum number of files: ten times Open Images.
const MAX_FILES: usize = 100_000_000;
/// Extensions of images.
const IMAGES: [&str; 7] = ["jpg", "jpeg", "png", "bmp", "tif", "tiff", "webp"];
/// Extensions of annotation files.
const TEXTS: [&str; 6] = ["json", "xml", "yaml", "yml", "txt", "names"];
/// Bytes at the start of an image that usually contain its size.
const HEADER_BYTES: u64 = 1 << 16;
/// Bytes at the start of an annotation file that identify its format.
const SNIFFED_BYTES: u64 = 1 << 14;

/// The files of a folder.
#[derive(Debug)]
pub(super) struct Folder {
    pub(super) root: PathBuf,
    /// The absolute path of the root, without symbolic links.
    pub(super) full: PathBuf,
    /// Paths relative to the root, with `/` as separator, sorted bytewise so that the order is the
    /// same on every machine.
    pub(super) files: Vec<String>,
    /// Links to folders that are already listed: the path of the link and of the listed folder,
    /// both ending in `/`.
    again: Vec<(String, String)>,
}

impl Folder {
    /// Lists the files under `root`; hidden files and folders and `__MACOSX` are skipped.
    pub(super) fn list(root: &Path) -> Result<Folder, DaliError> {
        if !root.is_dir() {
            return Err(fault(root, "is not a folder; give the folder of images and annotations"));
        }
        let full = root.canonicalize().map_err(DaliError::io("read", root))?;
        let root = root.to_path_buf();
        let mut folder = Folder { root, full, files: vec![], again: vec![] };
        folder.walk("", 0, &mut HashMap::new())?;
        folder.files.sort_unstable();
        Ok(folder)
    }

    fn walk(
        &mut self,
        prefix: &str,
        depth: usize,
        seen: &mut HashMap<(u64, u64), String>,
    ) -> Result<(), DaliError> {
        let dir = self.root.join(prefix);
        let meta = fs::metadata(&dir).map_err(DaliError::io("read", &dir))?;
        // Each folder is listed once: a symbolic link may lead to a parent.
        let first = seen.entry((meta.dev(), meta.ino())).or_insert(prefix.to_string());
        if first.as_str() != prefix {
            self.again.push((prefix.to_string(), first.clone()));
            return Ok(());
        }
        if depth > MAX_DEPTH {
            return Err(fault(&dir, format!("is more than {MAX_DEPTH} folders deep; move it up")));
        }
        let mut folders = Vec::new();
        for entry in fs::read_dir(&dir).map_err(DaliError::io("read", &dir))? {
            let entry = entry.map_err(DaliError::io("read", &dir))?;
            let Ok(name) = entry.file_name().into_string() else {
                return Err(fault(&entry.path(), "has a name that is not UTF-8; rename it"));
            };
            if name.starts_with('.') || name == "__MACOSX" {
                continue;
            }
            let path = format!("{prefix}{name}");
            // Broken links and devices are listed too, so that reading them is an error.
            match fs::metadata(entry.path()) {
                Ok(meta) if meta.is_dir() => {
                    let is_link = entry.file_type().is_ok_and(|kind| kind.is_symlink());
                    folders.push((is_link, path));
                }
                _ => self.files.push(path),
            }
            if self.files.len() > MAX_FILES {
                return Err(fault(&self.root, format!("holds more than {MAX_FILES} files")));
            }
        }
        // Real folders are visited before symbolic links, so that a folder is listed by its own
        // path.
        folders.sort_unstable();
        for (_, path) in folders {
            let before = self.files.len();
            self.walk(&format!("{path}/"), depth + 1, seen)?;
            if self.files.len() == before && (is_text(&path) || is_image(&path)) {
                self.files.push(path);
            }
        }
        Ok(())
    }

    pub(super) fn path(&self, file: &str) -> PathBuf {
        self.root.join(file)
    }

    /// True if anything exists at this path, or if a parent of the path is a file: reading the path
    /// then fails, which must not be mistaken for a missing file.
    pub(super) fn has(&self, file: &str) -> bool {
        let is_listed =
            |file: &str| self.files.binary_search_by(|known| known.as_str().cmp(file)).is_ok();
        is_listed(file)
            || self.under(&format!("{file}/")).next().is_some()
            || file.match_indices('/').any(|(at, _)| is_listed(&file[..at]))
    }

    /// A path as in `files`: links are replaced by the folders to which they lead.
    pub(super) fn listed(&self, path: &str) -> String {
        let folder = format!("{path}/");
        let found = self.again.iter().find(|(link, _)| folder.starts_with(link));
        let path = found.map(|(link, first)| folder.replacen(link, first, 1));
        path.unwrap_or(folder).trim_end_matches('/').to_string()
    }

    fn under<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        let from = self.files.partition_point(|file| file.as_str() < prefix);
        let files = self.files[from..].iter().map(String::as_str);
        files.take_while(move |file| file.starts_with(prefix))
    }

    /// The files under `prefix` (which ends in `/`, or is empty) with this extension; case is
    /// ignored.
    pub(super) fn with<'a>(
        &'a self,
        prefix: &'a str,
        extension: &'a str,
    ) -> impl Iterator<Item = &'a str> {
        let fits = move |file: &&str| stem_and_extension(file).1.eq_ignore_ascii_case(extension);
        self.under(prefix).filter(fits)
    }

    /// The image files under `prefix`.
    pub(super) fn images<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a str> {
        self.under(prefix).filter(|file| is_image(file))
    }

    /// The first bytes of a file as text; `None` if it cannot be read.
    pub(super) fn start_of(&self, file: &str) -> Option<String> {
        let bytes = start(&self.path(file), SNIFFED_BYTES)?;
        Some(String::from_utf8_lossy(&bytes).trim_start_matches('\u{feff}').to_string())
    }

    /// The bytes of a file.
    pub(super) fn bytes(&self, file: &str) -> Result<Vec<u8>, DaliError> {
        let path = self.path(file);
        crate::file::read(&path).map_err(DaliError::io("read", &path))
    }

    /// A text file, without the byte-order mark that some editors prepend.
    pub(super) fn text(&self, file: &str) -> Result<String, DaliError> {
        let text = String::from_utf8(self.bytes(file)?)
            .map_err(|_| fault(&self.path(file), "is not UTF-8 text; save it as UTF-8"))?;
        Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
    }

    /// Height and width of an image; `None` if its header cannot be read (`prep` then reports or
    /// skips the image).
    pub(super) fn size_of(&self, image: &str, request: &Request) -> Option<[u32; 2]> {
        let path = self.path(image);
        let max_pixels = request.max_image_pixels;
        if request.exif == Exif::Apply {
            let info = decode::probe_within(&crate::file::read(&path).ok()?, max_pixels).ok()?;
            return Some(decode::turned_size([info.height, info.width], info.exif_orientation));
        }
        let size = |bytes: &[u8]| decode::size_within(bytes, max_pixels).ok();
        // Cameras may write long metadata before the size.
        size(&start(&path, HEADER_BYTES)?).or_else(|| size(&crate::file::read(&path).ok()?))
    }
}

/// The results of `read` for all items, or the error of the first failing item in order.
pub(super) fn each<I: IntoParallelIterator, T: Send>(
    items: I,
    read: impl Fn(I::Item) -> Result<T, DaliError> + Sync + Send,
) -> Result<Vec<T>, DaliError> {
    // All results are collected before an error is returned: items are read in parallel, so the
    // error that occurs first need not be the first in order.
    let all: Vec<_> = items.into_par_iter().map(read).collect();
    all.into_iter().collect()
}

/// Rejects two images with the same annotation file, `of(image)`: its objects can belong to only
/// one image.
///
/// # Errors
/// [`DaliError::Annotations`] with the second image.
pub(super) fn one_each<'a, K: Eq + Hash>(
    folder: &Folder,
    images: impl IntoIterator<Item = &'a str>,
    of: impl Fn(&'a str) -> K,
) -> Result<(), DaliError> {
    let mut first = HashMap::new();
    for image in images {
        if let Some(other) = first.insert(of(image), image) {
            let text = format!("has the annotations of {other} too; rename or remove one");
            return Err(fault(&folder.path(image), text));
        }
    }
    Ok(())
}

/// Images by file name, to find an image even if its path in an annotation file differs.
pub(super) struct ByName<'a> {
    folder: &'a Folder,
    names: HashMap<&'a str, Vec<&'a str>>,
}

impl<'a> ByName<'a> {
    pub(super) fn of(folder: &'a Folder) -> ByName<'a> {
        let mut names: HashMap<&str, Vec<&str>> = HashMap::new();
        for image in folder.images("") {
            names.entry(name_of(image)).or_default().push(image);
        }
        ByName { folder, names }
    }

    /// The image `name`: at this path below one of `bases` (each ending in `/`), or else the only
    /// image with the same file name.
    ///
    /// # Errors
    /// A message if there is no such file, or several.
    pub(super) fn find(&self, bases: &[&str], name: &str) -> Result<String, String> {
        let name = name.replace('\\', "/");
        let name = name.trim_start_matches("./");
        let at =
            bases.iter().map(|base| format!("{base}{name}")).find(|path| self.folder.has(path));
        if let Some(path) = at {
            return Ok(path);
        }
        match self.names.get(name_of(name)).map(Vec::as_slice) {
            Some([one]) => Ok((*one).to_string()),
            Some([one, two, ..]) => Err(format!(
                "the image {name:?} may be {one} or {two}; write its path from the folder"
            )),
            _ => Err(format!("the image {name:?} is missing; put it into the folder")),
        }
    }
}

fn start(path: &Path, bytes: u64) -> Option<Vec<u8>> {
    crate::file::regular(path).ok()?;
    let mut start = Vec::new();
    File::open(path).ok()?.take(bytes).read_to_end(&mut start).ok()?;
    Some(start)
}

pub(super) fn is_image(file: &str) -> bool {
    let (_, extension) = stem_and_extension(file);
    IMAGES.iter().any(|known| known.eq_ignore_ascii_case(extension))
}

pub(super) fn is_text(file: &str) -> bool {
    TEXTS.contains(&stem_and_extension(file).1)
}

/// The last component of a path.
pub(super) fn name_of(file: &str) -> &str {
    file.rsplit_once('/').map_or(file, |(_, name)| name)
}

/// The folder of a file, ending in `/`; empty for a file in the root.
pub(super) fn folder_of(file: &str) -> &str {
    file.strip_suffix(name_of(file)).unwrap_or_default()
}

/// A path without its extension, and the extension (empty if there is none).
pub(super) fn stem_and_extension(file: &str) -> (&str, &str) {
    match file.rsplit_once('.') {
        Some((stem, extension)) if !extension.contains('/') => (stem, extension),
        _ => (file, ""),
    }
}
