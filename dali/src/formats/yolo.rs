//! YOLO segmentation and detection: `data.yaml`, images, and a text file of labels for each.
//!
//! Tools that write no `data.yaml` name the classes in a text file, and splits in lists of images.
//!
//! A line is a class and the fractions x y of a polygon, or a class and the box cx cy w h. The
//! label file of `images/a.jpg` is `labels/a.txt`; an image without one has no object.

use std::collections::{BTreeMap, HashSet};
use std::path::PathBuf;

use rayon::prelude::*;
use serde::Deserialize;

use super::assemble::{Object, Picture, assemble};
use super::folder::{Folder, is_image, one_each, stem_and_extension};
use super::{Request, Source, fault, split};
use crate::error::DaliError;

/// Files of a class a line: those of Label Studio and LabelImg, and Darknet's, which CVAT writes.
const NAMES: [&str; 3] = ["classes.txt", "labels/classes.txt", "obj.names"];
/// A fraction may lie this far outside the image: tools round.
const TOLERANCE: f64 = 0.01;

#[derive(Deserialize)]
struct Yaml {
    path: Option<String>,
    names: Names,
    nc: Option<usize>,
    train: Option<Places>,
    #[serde(alias = "valid")]
    val: Option<Places>,
    test: Option<Places>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "`names` must be a list of names, or a map from 0, 1, .. to names")]
enum Names {
    List(Vec<String>),
    Map(BTreeMap<usize, String>),
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a split must be a folder, or a list of folders")]
enum Places {
    One(String),
    Many(Vec<String>),
}

fn yaml_of(folder: &Folder) -> Option<&str> {
    let is_yaml = |file: &&str| {
        let (stem, extension) = stem_and_extension(file);
        !stem.contains('/') && matches!(extension, "yaml" | "yml")
    };
    if folder.has("data.yaml") {
        return Some("data.yaml");
    }
    folder.files.iter().map(String::as_str).filter(is_yaml).find(|file| has_names(folder, file))
}

/// True if `names` is a key at the top of a YAML file.
fn has_names(folder: &Folder, yaml: &str) -> bool {
    let start = folder.start_of(yaml).unwrap_or_default();
    let mut keys = start.lines().filter_map(|line| Some(line.split_once(':')?.0.trim_end()));
    keys.any(|key| key.trim_matches(['"', '\'']) == "names")
        || start.starts_with('{') && start.contains("names")
}

fn names_of(folder: &Folder) -> Option<&'static str> {
    let mut files = NAMES.into_iter().filter(|file| folder.has(file));
    let first = files.next();
    first.filter(|_| folder.images("").any(|image| folder.has(&label_file(image))))
}

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    match yaml_of(folder) {
        Some(yaml) => has_names(folder, yaml).then_some(yaml),
        None => names_of(folder),
    }
    .map(|file| format!("{file} names classes"))
}

/// The file that names the classes, and what it says.
fn described(folder: &Folder) -> Result<(PathBuf, Yaml), DaliError> {
    if let Some(file) = yaml_of(folder) {
        let path = folder.path(file);
        return match serde_yaml_ng::from_str(&folder.text(file)?) {
            Ok(yaml) => Ok((path, yaml)),
            Err(error) => Err(fault(&path, format!("is not a data.yaml of YOLO: {error}"))),
        };
    }
    let Some(file) = names_of(folder) else {
        let text = "has no data.yaml; write one with `names` and the folders `train` and `val`";
        return Err(fault(&folder.root, text));
    };
    let text = folder.text(file)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let list = |name: &str| folder.has(name).then(|| Places::One(name.to_string()));
    let yaml = Yaml {
        path: None,
        names: Names::List(lines.map(str::to_string).collect()),
        nc: None,
        train: list("train.txt"),
        val: list("val.txt"),
        test: list("test.txt"),
    };
    Ok((folder.path(file), yaml))
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let (path, yaml) = described(folder)?;
    let names = names(yaml.names, yaml.nc).map_err(|text| fault(&path, text))?;
    let base = yaml.path.unwrap_or_default();
    let splits = [("train", yaml.train), ("val", yaml.val), ("test", yaml.test)];
    let splits = splits.into_iter().filter_map(|(name, places)| Some((name, places?)));
    let splits: Vec<(&str, Vec<String>)> = splits
        .map(|(name, places)| match places {
            Places::One(place) => (name, vec![place]),
            Places::Many(places) => (name, places),
        })
        .filter(|(_, places)| places.iter().any(|place| !place.trim().is_empty()))
        .collect();
    let there: Vec<&str> = splits.iter().map(|(name, _)| *name).collect();
    let chosen = split::chosen(&path, &there, request.split.as_deref())?;
    let mut images = Vec::new();
    for (name, places) in splits.iter().filter(|(name, _)| chosen.contains(name)) {
        let before = images.len();
        for place in places {
            images.extend(images_at(folder, &base, place).map_err(|text| fault(&path, text))?);
        }
        if images.len() == before {
            let text = format!("`{name}` leads to no image: {}; mend the path", places.join(", "));
            return Err(fault(&path, text));
        }
    }
    if there.is_empty() {
        images = folder.images("").map(str::to_string).collect();
    }
    images.sort_unstable();
    images.dedup();
    one_each(folder, images.iter().map(String::as_str), label_file)?;
    let stray = stray(folder, &images);
    let pictures: Vec<Result<Picture, DaliError>> =
        images.into_par_iter().map(|image| picture(folder, request, &names, image)).collect();
    // Collected first, so that of several faults the first by name is reported.
    let pictures = pictures.into_iter().collect::<Result<Vec<Picture>, DaliError>>()?;
    if !pictures.is_empty() && !pictures.iter().any(|p| folder.has(&label_file(&p.file_name))) {
        let text = format!(
            "no image has a label file (for {}: {}); put the labels there",
            pictures[0].file_name,
            label_file(&pictures[0].file_name)
        );
        return Err(fault(&folder.root, text));
    }
    let mut source = assemble(folder, Some(names), pictures)?;
    source.notes.extend(stray);
    Ok(source)
}

/// A sentence about label files without an image, beside those of these images.
fn stray(folder: &Folder, images: &[String]) -> Option<String> {
    let place = |file: &str| file.rsplit_once('/').map(|(place, _)| place.to_string());
    let known: HashSet<String> = folder.images("").map(label_file).collect();
    let places: HashSet<Option<String>> =
        images.iter().map(|image| place(&label_file(image))).collect();
    let is_stray = |file: &&str| {
        places.contains(&place(file))
            && place(file).is_some()
            && !known.contains(*file)
            && !NAMES.contains(file)
    };
    let stray: Vec<&str> = folder.with("", "txt").filter(is_stray).collect();
    let first = stray.first()?;
    Some(format!("{} label files, {first} the first, have no image, and are left out", stray.len()))
}

fn names(names: Names, count: Option<usize>) -> Result<Vec<String>, String> {
    let names = match names {
        Names::List(names) => names,
        Names::Map(names) => {
            if let Some((at, (key, _))) = names.iter().enumerate().find(|(at, (key, _))| at != *key)
            {
                return Err(format!("`names` has {key} where {at} is next; number them from 0"));
            }
            names.into_values().collect()
        }
    };
    match count {
        _ if names.is_empty() => Err("`names` is empty; name the classes".into()),
        Some(count) if count != names.len() => {
            Err(format!("`nc` is {count} but `names` has {}; make them agree", names.len()))
        }
        _ => Ok(names),
    }
}

/// The images at a place that `data.yaml` names: a folder, an image, or a list of images.
fn images_at(folder: &Folder, base: &str, place: &str) -> Result<Vec<String>, String> {
    let places = inside(folder, base, place);
    for place in &places {
        let prefix = if place.is_empty() { String::new() } else { format!("{place}/") };
        let images: Vec<String> = folder.images(&prefix).map(str::to_string).collect();
        if !images.is_empty() {
            return Ok(images);
        }
        if place.ends_with(".txt") && folder.has(place) {
            let text = folder.text(place).map_err(|error| error.to_string())?;
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            let find = |line: &str| {
                inside(folder, base, line)
                    .into_iter()
                    .find(|image| folder.has(image) && is_image(image))
            };
            return lines
                .map(|line| find(line).ok_or(format!("{place} lists {line:?}, which is no image")))
                .collect();
        }
    }
    Ok(Vec::new())
}

/// Where a path of `data.yaml` may lead inside the folder, the likeliest first: it is relative to
/// `path`, and exporters write `../train/images` or a folder of their own machine.
fn inside(folder: &Folder, base: &str, place: &str) -> Vec<String> {
    let root = format!("{}/", folder.root.display());
    let plain = |path: &str| -> Vec<String> {
        let path = path.replace('\\', "/");
        let path = path.strip_prefix(&root).unwrap_or(&path);
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        parts.map(str::to_string).collect()
    };
    let (base, place) = (plain(base), plain(place));
    let joined = [base, place.clone()].concat();
    // Without the first parts, one by one: `datasets/mine/images/train` is `images/train` here.
    let tails = (0..joined.len()).map(|from| joined[from..].join("/"));
    let whole = if place.is_empty() { vec![String::new()] } else { vec![place.join("/")] };
    whole.into_iter().chain(tails).collect()
}

/// The label file of an image: in `labels` for `images`, the last one in the path.
fn label_file(image: &str) -> String {
    let (stem, _) = stem_and_extension(image);
    let mut parts: Vec<&str> = stem.split('/').collect();
    let folders = parts.len() - 1;
    if let Some(part) = parts[..folders].iter_mut().rev().find(|part| **part == "images") {
        *part = "labels";
    }
    parts.join("/") + ".txt"
}

fn picture(
    folder: &Folder,
    request: &Request,
    names: &[String],
    image: String,
) -> Result<Picture, DaliError> {
    let labels = label_file(&image);
    let size = folder.size_of(&image, request);
    let mut objects = Vec::new();
    if folder.has(&labels) {
        let text = folder.text(&labels)?;
        for (line, at) in text.lines().zip(1..) {
            if !line.trim().is_empty() {
                let object = object(line, names, size.unwrap_or([1, 1]));
                let named = |text| fault(&folder.path(&labels), format!("line {at}: {text}"));
                objects.push(object.map_err(named)?);
            }
        }
    }
    Ok(Picture { file_name: image, size: size.unwrap_or([1, 1]), objects })
}

fn object(line: &str, names: &[String], [height, width]: [u32; 2]) -> Result<Object, String> {
    let mut words = line.split_whitespace();
    let class = words.next().unwrap_or_default();
    // Some tools write the class as 3.0.
    let class_idx = class.parse::<f64>().ok().filter(|idx| idx.fract() == 0.0 && *idx >= 0.0);
    let class_idx = class_idx.ok_or_else(|| match class.contains([',', ';']) {
        true => format!("{class:?} is no class; separate the numbers by blanks"),
        false => format!("the class is {class:?}; write its number from 0"),
    })?;
    let name = names.get(class_idx as usize).ok_or_else(|| {
        let last = names.len() - 1;
        format!("class {class} has no name, as the last is {last}; name it or mend the line")
    })?;
    let values: Vec<f64> = words
        .map(|word| word.parse().map_err(|_| format!("{word:?} is no number; write a fraction")))
        .collect::<Result<_, String>>()?;
    let is_fraction = |value: &&f64| !(-TOLERANCE..=1.0 + TOLERANCE).contains(*value);
    if let Some(value) = values.iter().find(is_fraction) {
        return Err(format!(
            "{value} is no fraction of the image; divide x by its width and y by its height"
        ));
    }
    let (width, height) = (f64::from(width), f64::from(height));
    match values[..] {
        [x, y, w, h] => {
            let corners = [x - w / 2.0, y - h / 2.0, x + w / 2.0, y + h / 2.0];
            let [x1, y1, x2, y2] = corners;
            Ok(Object::boxed(name, [x1 * width, y1 * height, x2 * width, y2 * height]))
        }
        _ if values.len() >= 6 && values.len().is_multiple_of(2) => {
            let pixels =
                values.as_chunks::<2>().0.iter().flat_map(|[x, y]| [x * width, y * height]);
            Ok(Object::outlined(name, vec![pixels.collect()]))
        }
        _ => Err(format!(
            "has {} numbers after the class; a box has 4, a polygon pairs of 3 vertices or more",
            values.len()
        )),
    }
}
