//! Folders of masks: one PNG per object, or one per image with a value per object.
//!
//! `masks/<image>/<category>_<number>.png` contains the mask of one object, in any colour on black.
//! `ids/<image>.png` (or `masks/<image>.png`) contains the masks of all objects. If `classes.json`
//! lists the classes, a value is `class * 1000 + k` for the k-th object, or `class` for a crowd;
//! otherwise each non-zero value is an object, and all objects have one category.

use std::collections::{BTreeMap, HashMap, HashSet};

use hotcoco::mask;

use super::assemble::{Object, Picture, assemble};
use super::folder::{Folder, each, name_of, one_each, stem_and_extension};
use super::pixels::{self, Values};
use super::texts::Texts;
use super::{Request, Source, fault};
use crate::error::DaliError;

/// Folders that may contain masks.
const PLACES: [&str; 2] = ["masks/", "ids/"];
/// File with the names of the classes.
const CLASSES: &str = "classes.json";
/// The category of objects if there are no class names.
const OBJECT: &str = "object";
/// Factor of the class number in a pixel value; limits the number of objects per class and image.
const PER_CLASS: u32 = 1000;

type Classes = BTreeMap<usize, String>;

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    let first = PLACES.iter().find_map(|place| folder.with(place, "png").next())?;
    folder.images("images/").next()?;
    Some(format!("{first} is a mask"))
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let images: Vec<&str> = folder.images("images/").collect();
    let stems: HashSet<&str> = images.iter().map(|image| stem_of(image)).collect();
    one_each(folder, images.iter().copied(), stem_of)?;
    let classes = classes(folder)?;
    let mut in_places = PLACES.iter().flat_map(|place| folder.images(place));
    if let Some(file) =
        in_places.find(|file| !stem_and_extension(file).1.eq_ignore_ascii_case("png"))
    {
        let text = "is not a PNG, the only format that keeps exact values; write the mask as a PNG";
        return Err(fault(&folder.path(file), text));
    }
    let mut masks: HashMap<&str, Vec<&str>> = HashMap::new();
    for place in PLACES {
        for file in folder.with(place, "png") {
            let (stem, _) = stem_and_extension(&file[place.len()..]);
            let of_object = || stem.rsplit_once('/').map_or(stem, |(image, _)| image);
            let image = if stems.contains(stem) { stem } else { of_object() };
            masks.entry(image).or_default().push(file);
        }
    }
    let stray = masks.iter().filter(|(image, _)| !stems.contains(*image));
    if let Some(file) = stray.map(|(_, files)| files[0]).min() {
        let text = "belongs to no image; put it at masks/<image>/<category>_<number>.png or \
                    masks/<image>.png, for images/<image>.jpg";
        return Err(fault(&folder.path(file), text));
    }
    let pictures = each(images, |image| {
        let files = masks.get(stem_of(image)).map_or(&[][..], Vec::as_slice);
        picture(folder, request, image, files, classes.as_ref())
    })?;
    assemble(folder, classes.map(|classes| classes.into_values().collect()), pictures)
}

fn stem_of(image: &str) -> &str {
    stem_and_extension(image.strip_prefix("images/").unwrap_or(image)).0
}

/// Class names by number, if the file of classes exists.
fn classes(folder: &Folder) -> Result<Option<Classes>, DaliError> {
    if !folder.has(CLASSES) {
        return Ok(None);
    }
    let path = folder.path(CLASSES);
    let broken = |error: String| {
        let text = "is not a map from class numbers to names, as {\"1\": \"ant\"}";
        fault(&path, format!("{text}: {error}"))
    };
    let classes = match serde_json::from_str(&folder.text(CLASSES)?) {
        Ok(Texts::Map(classes)) => classes,
        Ok(_) => return Err(broken("it is a list or a string".into())),
        Err(error) => return Err(broken(error.to_string())),
    };
    match classes.first_key_value() {
        Some((0, _)) => Err(fault(&path, "names the class 0, which is the background; remove it")),
        Some(_) => Ok(Some(classes)),
        None => Err(fault(&path, "has no class names; add them, or remove the file")),
    }
}

fn picture(
    folder: &Folder,
    request: &Request,
    image: &str,
    files: &[&str],
    classes: Option<&Classes>,
) -> Result<Picture, DaliError> {
    let Some(size) = folder.size_of(image, request) else {
        return Ok(Picture { file_name: image.to_string(), size: [1, 1], objects: Vec::new() });
    };
    let mut objects = Vec::new();
    let mut files = files.to_vec();
    files.sort_by_key(|file| (number(stem_and_extension(file).0), *file));
    let is_whole = |file: &str| {
        let (stem, _) = stem_and_extension(file);
        PLACES.iter().any(|place| stem.strip_prefix(place) == Some(stem_of(image)))
    };
    if let Some(file) = files.iter().find(|file| files.len() > 1 && is_whole(file)) {
        let other = files.iter().find(|other| *other != file).unwrap_or(file);
        let text = format!("holds all objects of {image}, but so does {other}; remove one");
        return Err(fault(&folder.path(file), text));
    }
    for file in files {
        let path = folder.path(file);
        let (stem, _) = stem_and_extension(file);
        let is_of_image = is_whole(file);
        let kind = if is_of_image { Values::Indices } else { Values::Ink };
        let masks = pixels::of_image(folder, file, kind, size, request)?;
        if is_of_image {
            if masks.len() == 1 && masks.contains_key(&255) && classes.is_none() {
                let text = "is a binary mask and cannot separate objects; use one value per object \
                            or one file per object";
                return Err(fault(&path, text));
            }
            for (value, pixels) in masks {
                let (name, is_crowd) = named(value, classes).map_err(|text| fault(&path, text))?;
                objects.push(Object { crowd: is_crowd, ..Object::covering(name, pixels) });
            }
        } else {
            let name = category(name_of(stem)).map_err(|text| fault(&path, text))?;
            let pixels = masks.into_values().next().filter(|pixels| mask::area(pixels) > 0);
            let pixels = pixels.ok_or_else(|| fault(&path, "is all black; remove it"))?;
            objects.push(Object::covering(name, pixels));
        }
    }
    Ok(Picture { file_name: image.to_string(), size, objects })
}

/// The category of a pixel value, and true if the object is a crowd.
fn named(value: u32, classes: Option<&Classes>) -> Result<(&str, bool), String> {
    let Some(classes) = classes else { return Ok((OBJECT, false)) };
    let class = if value < PER_CLASS { value } else { value / PER_CLASS };
    let name = classes.get(&(class as usize)).ok_or_else(|| {
        format!("has the value {value}, of class {class}, which {CLASSES} does not name; add it")
    })?;
    Ok((name, value < PER_CLASS))
}

/// The object's number in the path of its mask; objects are numbered in the order of annotation.
fn number(stem: &str) -> Option<u64> {
    stem.rsplit_once('_')?.1.parse().ok()
}

/// The category in the file name of a mask, which precedes the object's number.
fn category(name: &str) -> Result<&str, String> {
    let numbered = name.rsplit_once('_').filter(|(_, number)| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let category = numbered.map(|(category, _)| category).filter(|category| !category.is_empty());
    category
        .ok_or_else(|| "has no category in its name; name it <category>_<number>.png".to_string())
}
