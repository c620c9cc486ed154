//! COCO and LVIS: finds the annotation file and the folder of its images; [`crate::prep`] reads the
//! file.

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::folder::{Folder, folder_of, name_of, stem_and_extension};
use super::{Request, Source, fault, keys, split};
use crate::error::DaliError;

/// File name prefix of COCO's instance annotations.
const INSTANCES: &str = "instances";
/// File name prefix of COCO's keypoint annotations.
const KEYPOINTS: &str = "person_keypoints";
/// Maximum number of JSON files that are inspected.
const MAX_LOOKED_INTO: usize = 64;

/// The annotation files, sorted by path.
fn files_of(folder: &Folder) -> Vec<&str> {
    let is = |start: String| {
        let is_whole = || serde_json::from_str::<IgnoredAny>(&start).is_ok();
        // A complete JSON file with categories only is not COCO: Label Studio writes one next to
        // YOLO labels.
        keys::has(&start, 1, &["images", "annotations"])
            || keys::has(&start, 1, &["categories"]) && !is_whole()
    };
    let files = folder.with("", "json").take(MAX_LOOKED_INTO);
    // A file that cannot be read is included, so that an error reports it.
    files.filter(|file| folder.start_of(file).is_none_or(is)).collect()
}

/// The first readable annotation file, and true if it is an LVIS file, according to its name or its
/// first entries.
fn first_of(folder: &Folder) -> Option<(&str, bool)> {
    let mut files = files_of(folder).into_iter();
    let (file, start) = files.find_map(|file| Some((file, folder.start_of(file)?)))?;
    let is_named = name_of(file).to_ascii_lowercase().starts_with("lvis");
    Some((file, is_named || keys::has(&start, 3, &["neg_category_ids"])))
}

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    let (file, _) = first_of(folder).filter(|(_, is_lvis)| !is_lvis)?;
    Some(format!("{file} has the sections of a COCO file"))
}

pub(super) fn recognise_lvis(folder: &Folder) -> Option<String> {
    let (file, _) = first_of(folder).filter(|(_, is_lvis)| *is_lvis)?;
    Some(format!("{file} is an LVIS file"))
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let mut files = files_of(folder);
    // COCO's folder has separate files of instances, keypoints and captions: instances are
    // preferred, then keypoints.
    for start in [INSTANCES, KEYPOINTS] {
        if files.iter().any(|file| name_of(file).starts_with(start)) {
            files.retain(|file| name_of(file).starts_with(start));
            break;
        }
    }
    let file = match files[..] {
        [] => {
            return Err(fault(&folder.root, "holds no JSON file with `images` and `annotations`"));
        }
        [one] if request.split.as_deref().is_none_or(|split| split == split::ALL) => one,
        _ => one_of(folder, &files, request.split.as_deref())?,
    };
    let images = images_of(folder, file)?;
    let annotations = folder.path(file);
    Ok(Source { images: folder.path(&images), annotations, dataset: None, notes: vec![] })
}

/// The file of the requested split.
fn one_of<'a>(
    folder: &Folder,
    files: &[&'a str],
    wanted: Option<&str>,
) -> Result<&'a str, DaliError> {
    let split = |file: &&str| split::of_name(name_of(file)).or_else(|| split::of_name(file));
    let mut there: Vec<&str> = files.iter().filter_map(split).collect();
    there.sort_unstable();
    there.dedup();
    if wanted == Some(split::ALL) {
        let text =
            "has several annotation files; choose one of them with --split train, val or test";
        return Err(fault(&folder.root, text));
    }
    let chosen = split::chosen(&folder.root, &there, wanted)?;
    let fit: Vec<&str> = files
        .iter()
        .copied()
        .filter(|file| split(file).is_some_and(|s| chosen.contains(&s)))
        .collect();
    match fit[..] {
        [one] => Ok(one),
        _ => {
            let text = format!("may use {}; give --images and --annotations", files.join(" or "));
            Err(fault(&folder.root, text))
        }
    }
}

/// The folder that contains the first image of an annotation file.
fn images_of(folder: &Folder, file: &str) -> Result<String, DaliError> {
    let path = folder.path(file);
    let bytes = folder.bytes(file)?;
    let Some(name) = first_image(&bytes) else {
        return Err(fault(&path, "has no image names: its images have no `file_name`"));
    };
    let (stem, _) = stem_and_extension(name_of(file));
    let own = folder_of(file);
    let suffix = [INSTANCES, KEYPOINTS].iter().find_map(|start| stem.strip_prefix(start));
    let suffix = suffix.map_or(stem, |suffix| suffix.trim_start_matches('_'));
    let split = split::of_name(stem).unwrap_or(suffix);
    let bases = [
        String::new(),
        "images/".to_string(),
        own.to_string(),
        format!("{suffix}/"),
        format!("images/{suffix}/"),
        format!("{split}/"),
        format!("images/{split}/"),
        "data/".to_string(),
    ];
    bases.iter().find(|base| folder.has(&format!("{base}{name}"))).cloned().ok_or_else(|| {
        fault(
            &path,
            format!("its first image, {name:?}, is not in a folder next to it; give --images"),
        )
    })
}

/// The file name of the first image; for LVIS it is derived from the URL.
fn first_image(bytes: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Named {
        file_name: Option<String>,
        coco_url: Option<String>,
    }
    let (.., at) = keys::keys(bytes).find(|(depth, key, _)| (*depth, *key) == (1, b"images"))?;
    let images = bytes[at..].trim_ascii_start().strip_prefix(b"[")?;
    let image = Named::deserialize(&mut serde_json::Deserializer::from_slice(images)).ok()?;
    image.file_name.or_else(|| crate::coco::name_in_url(&image.coco_url?))
}
