//! Folders of annotated images in the formats of labelling tools, each read into a data set that
//! [`crate::prep`] checks and stores.
//!
//! [`FORMATS`] lists them: a name, how a folder is recognised, and the reader. Categories get the
//! ids 1 to K, images 1 to N sorted by path, objects 1 to M in file order.

mod assemble;
mod coco;
mod cvat;
mod folder;
mod keys;
mod labelme;
mod masks;
mod part;
mod pixels;
mod split;
mod texts;
mod voc;
mod xml;
mod yolo;

use std::path::{Path, PathBuf};

use crate::coco::Dataset;
use crate::decode;
use crate::error::DaliError;
use crate::prep::{Exif, Masks};
use folder::{Folder, is_text};

/// One format.
#[derive(Debug)]
pub struct Format {
    /// Its name, for `--from`.
    pub name: &'static str,
    /// A short description of the layout, for the error about an unrecognised folder.
    layout: &'static str,
    /// Why a folder has this format, in words.
    recognise: fn(&Folder) -> Option<String>,
    read: fn(&Folder, &Request) -> Result<Source, DaliError>,
}

/// The formats, in the order in which an error lists them.
pub const FORMATS: &[Format] = &[
    Format {
        name: "coco",
        layout: "a JSON file with `images`, `annotations` and `categories`",
        recognise: coco::recognise,
        read: coco::read,
    },
    Format {
        name: "lvis",
        layout: "an LVIS JSON file",
        recognise: coco::recognise_lvis,
        read: coco::read,
    },
    Format {
        name: "yolo",
        layout: "data.yaml, images/ and labels/",
        recognise: yolo::recognise,
        read: yolo::read,
    },
    Format {
        name: "labelme",
        layout: "a JSON file of `shapes` next to each image",
        recognise: labelme::recognise,
        read: labelme::read,
    },
    Format {
        name: "cvat",
        layout: "an XML file with <annotations>",
        recognise: cvat::recognise,
        read: cvat::read,
    },
    Format {
        name: "voc",
        layout: "Annotations/, JPEGImages/ and SegmentationObject/",
        recognise: voc::recognise,
        read: voc::read,
    },
    Format {
        name: "masks",
        layout: "images/, and masks/ or ids/ of PNG files",
        recognise: masks::recognise,
        read: masks::read,
    },
];

/// The request to read a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The folder.
    pub folder: PathBuf,
    /// The name of its format; recognised if absent.
    pub format: Option<String>,
    /// The part to read (`train`, `val`, `test`), or `all` of them.
    pub split: Option<String>,
    /// True if an object needs a mask: an image whose objects have none is then omitted.
    pub masks: Masks,
    /// How sizes depend on the EXIF data of images.
    pub exif: Exif,
    /// Maximum size of an image or mask, in pixels.
    pub max_image_pixels: usize,
}

impl Request {
    /// The defaults, for this folder.
    pub fn new(folder: impl Into<PathBuf>) -> Request {
        Request {
            folder: folder.into(),
            format: None,
            split: None,
            masks: Masks::default(),
            exif: Exif::default(),
            max_image_pixels: decode::MAX_PIXELS,
        }
    }
}

/// An annotated folder, read as far as its format requires.
#[derive(Debug)]
pub struct Source {
    /// The folder that image names are relative to.
    pub images: PathBuf,
    /// The annotation file, or the folder if there are several.
    pub annotations: PathBuf,
    /// The data set; `None` if `annotations` is a COCO file, left to [`crate::prep::run`].
    pub dataset: Option<Dataset>,
    /// Messages: the detected format and why, and omitted data.
    pub notes: Vec<String>,
}

/// Finds the format of a folder, and reads it.
///
/// # Errors
/// [`DaliError::Io`] if a file cannot be read; [`DaliError::Annotations`] if the folder has no
/// known format or several, has several splits and none is selected, or a file is broken.
pub fn read(request: &Request) -> Result<Source, DaliError> {
    let folder = Folder::list(&request.folder)?;
    let (format, why) = match &request.format {
        Some(name) => (named(name)?, "as --from says".to_string()),
        None => recognised(&folder)?,
    };
    let mut source = (format.read)(&folder, request)?;
    let root = folder.root.display();
    source.notes.insert(0, format!("taking {root} for {}: {why}", format.name));
    Ok(source)
}

fn named(name: &str) -> Result<&'static Format, DaliError> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| DaliError::Option {
        option: "--from",
        got: name.to_string(),
        expected: "must be a format of docs/formats.md",
    })
}

fn recognised(folder: &Folder) -> Result<(&'static Format, String), DaliError> {
    let fits = |format: &'static Format| Some((format, (format.recognise)(folder)?));
    let mut found: Vec<_> = FORMATS.iter().filter_map(fits).collect();
    match found.len() {
        1 => Ok(found.remove(0)),
        0 => {
            let is_unread = |file: &&String| is_text(file) && folder.start_of(file).is_none();
            if let Some(file) = folder.files.iter().find(is_unread) {
                folder.bytes(file)?;
            }
            let known: Vec<String> =
                FORMATS.iter().map(|f| format!("{} ({})", f.name, f.layout)).collect();
            Err(fault(
                &folder.root,
                format!("holds no annotations that are known: {}", known.join(", ")),
            ))
        }
        _ => {
            let seen: Vec<String> =
                found.iter().map(|(format, why)| format!("{} ({why})", format.name)).collect();
            Err(fault(
                &folder.root,
                format!("may be {}; choose one with --from", seen.join(" or ")),
            ))
        }
    }
}

/// An error in a file or folder of annotations, or in one line of it.
fn fault(path: &Path, fault: impl Into<String>) -> DaliError {
    DaliError::annotations(path, fault)
}
