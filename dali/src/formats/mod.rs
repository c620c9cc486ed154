//! Reads folders of annotated images in the formats of labelling tools into a data set, which
//! [`crate::prep`] checks and stores.
//!
//! [`FORMATS`] lists the formats, each with a name, a function that recognises a folder, and a
//! reader. Categories get the ids 1 to K, images 1 to N sorted by path, objects 1 to M in file
//! order.

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
    /// The name of the format, for `--from`.
    pub name: &'static str,
    /// A short description of the layout, for the error about an unrecognised folder.
    layout: &'static str,
    /// Recognises a folder of this format: returns the reason as text, or `None`.
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

/// Options for reading a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The folder.
    pub folder: PathBuf,
    /// The name of the format; if absent, the format is recognised.
    pub format: Option<String>,
    /// The split to read (`train`, `val`, `test`), or `all`.
    pub split: Option<String>,
    /// If masks are required, an image whose objects have no masks is omitted.
    pub masks: Masks,
    /// Determines if image sizes are read before or after an EXIF rotation.
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

/// The contents of an annotated folder; a COCO file is only located, not read.
#[derive(Debug)]
pub struct Source {
    /// The folder to which image names are relative.
    pub images: PathBuf,
    /// The annotation file, or the folder if it has several annotation files.
    pub annotations: PathBuf,
    /// The data set; `None` if `annotations` is a COCO file, which [`crate::prep::run`] reads.
    pub dataset: Option<Dataset>,
    /// Messages about the detected format, with the reason, and about omitted data.
    pub notes: Vec<String>,
}

/// Finds the format of a folder, and reads it.
///
/// # Errors
/// [`DaliError::Io`] if a file cannot be read; [`DaliError::Annotations`] if the folder matches no
/// format or several, if the folder has several splits and none is selected, or if a file is
/// invalid.
pub fn read(request: &Request) -> Result<Source, DaliError> {
    let folder = Folder::list(&request.folder)?;
    let (format, why) = match &request.format {
        Some(name) => (named(name)?, "selected by --from".to_string()),
        None => recognised(&folder)?,
    };
    let mut source = (format.read)(&folder, request)?;
    let root = folder.root.display();
    source.notes.insert(0, format!("reading {root} as {}: {why}", format.name));
    Ok(source)
}

fn named(name: &str) -> Result<&'static Format, DaliError> {
    FORMATS.iter().find(|format| format.name == name).ok_or_else(|| DaliError::Option {
        option: "--from",
        got: name.to_string(),
        expected: "must be one of the formats in docs/formats.md",
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
                format!("holds no annotations in a known format: {}", known.join(", ")),
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
