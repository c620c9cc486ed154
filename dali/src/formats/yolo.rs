//! YOLO segmentation and detection: `data.yaml`, images, and one text file of labels per image.
//!
//! Some tools write a text file of class names and lists of images per split instead of
//! `data.yaml`.
//!
//! A line of a label file contains the class index, and either the vertices x y of a polygon or a
//! box cx cy w h, all as fractions of the image size. The label file of `images/a.jpg` is
//! `labels/a.txt`; an image without a label file has no objects.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::assemble::{Object, Picture, assemble};
use super::folder::{Folder, each, is_image, one_each, stem_and_extension};
use super::texts::Texts;
use super::{Request, Source, fault, split};
use crate::coco::Segmentation;
use crate::error::DaliError;

/// Files with one class name per line, as written by Label Studio, by LabelImg, and by Darknet and
/// CVAT.
const NAMES: [&str; 3] = ["classes.txt", "labels/classes.txt", "obj.names"];
/// Coordinates, which are fractions of the image size, may be this far outside 0 to 1, as tools
/// round them.
const TOLERANCE: f64 = 0.01;
/// Rounding error of coordinates in label files.
const ROUNDING: f64 = 1e-3;
/// Describes extra values that may follow a box.
const TRACK: &str = "a confidence and a track";
const POINTS: &str = "key points";
/// Maximum nesting of brackets in data.yaml.
const MAX_DEPTH: usize = 256;

#[derive(Deserialize)]
struct Yaml {
    path: Option<String>,
    names: Texts,
    nc: Option<usize>,
    train: Option<Texts>,
    #[serde(alias = "valid")]
    val: Option<Texts>,
    test: Option<Texts>,
    /// Number of keypoints per object, and of values per keypoint.
    kpt_shape: Option<Vec<usize>>,
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

/// True if `names` is a top-level key of a YAML file.
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

/// The path and contents of `data.yaml`, or the equivalent for a file of class names.
fn described(folder: &Folder) -> Result<(PathBuf, Yaml), DaliError> {
    if let Some(file) = yaml_of(folder) {
        let path = folder.path(file);
        let text = folder.text(file)?;
        let broken = |error: String| fault(&path, format!("is not a data.yaml of YOLO: {error}"));
        // The nesting of brackets is limited, as the parser's time is quadratic in it.
        let mut depth = 0_usize;
        let is_deep = text.bytes().any(|byte| {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            depth > MAX_DEPTH
        });
        if is_deep {
            return Err(broken(format!("more than {MAX_DEPTH} brackets are open")));
        }
        let yaml = serde_yaml_ng::from_str(&text).map_err(|error| broken(error.to_string()))?;
        return Ok((path, yaml));
    }
    let Some(file) = names_of(folder) else {
        let text = "has no data.yaml; write one with `names` and the folders `train` and `val`";
        return Err(fault(&folder.root, text));
    };
    let text = folder.text(file)?;
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let list = |name: &str| folder.has(name).then(|| Texts::One(name.to_string()));
    let yaml = Yaml {
        path: None,
        names: Texts::List(lines.map(str::to_string).collect()),
        nc: None,
        train: list("train.txt"),
        val: list("val.txt"),
        test: list("test.txt"),
        kpt_shape: None,
    };
    Ok((folder.path(file), yaml))
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let (path, yaml) = described(folder)?;
    let names = names(yaml.names, yaml.nc).map_err(|text| fault(&path, text))?;
    let splits = [("train", yaml.train), ("val", yaml.val), ("test", yaml.test)];
    let splits = splits.into_iter().filter_map(|(name, places)| Some((name, places?)));
    let splits = splits.map(|(name, places)| match places {
        Texts::One(place) => (name, vec![place]),
        Texts::List(places) => (name, places),
        Texts::Map(places) => (name, places.into_values().collect()),
    });
    let splits: Vec<(&str, Vec<String>)> =
        splits.filter(|(_, places)| places.iter().any(|place| !place.trim().is_empty())).collect();
    let (mut images, mut notes) =
        images_of(folder, request, &path, &yaml.path.unwrap_or_default(), &splits)?;
    images.sort_unstable();
    images.dedup();
    one_each(folder, images.iter().map(String::as_str), label_file)?;
    notes.extend(stray(folder, &images));
    let num_points = yaml.kpt_shape.map(|s| s.into_iter().fold(1, usize::saturating_mul));
    if num_points.is_some() {
        notes.push("keypoints are left out".into());
    }
    let read = |image| picture(folder, request, &names, num_points, image);
    let pictures = each(images, read)?;
    notes.extend(check_polygons(folder, &pictures)?);
    if !pictures.is_empty() && !pictures.iter().any(|p| folder.has(&label_file(&p.file_name))) {
        let text = format!(
            "no image has a label file (for {}: {}); put the labels there",
            pictures[0].file_name,
            label_file(&pictures[0].file_name)
        );
        return Err(fault(&folder.root, text));
    }
    let mut source = assemble(folder, Some(names), pictures)?;
    source.notes.extend(notes);
    Ok(source)
}

/// The images of the requested splits, and messages about replaced paths and overlapping splits.
fn images_of(
    folder: &Folder,
    request: &Request,
    path: &Path,
    base: &str,
    splits: &[(&str, Vec<String>)],
) -> Result<(Vec<String>, Vec<String>), DaliError> {
    let there: Vec<&str> = splits.iter().map(|(name, _)| *name).collect();
    let chosen = split::chosen(path, &there, request.split.as_deref())?;
    let (mut images, mut notes) = (Vec::new(), Vec::new());
    if there.is_empty() {
        images = folder.images("").map(str::to_string).collect();
    }
    for (name, places) in splits.iter().filter(|(name, _)| chosen.contains(name)) {
        let (own, warnings) = images_at(folder, base, places).map_err(|text| fault(path, text))?;
        if own.is_empty() {
            let text =
                format!("`{name}` leads to no image: {}; correct the path", places.join(", "));
            return Err(fault(path, text));
        }
        notes.extend(warnings);
        for (other, places) in splits.iter().filter(|(other, _)| chosen == [*name] && other != name)
        {
            let (theirs, _) = images_at(folder, base, places).unwrap_or_default();
            let theirs: HashSet<String> = theirs.into_iter().collect();
            let num = own.iter().filter(|image| theirs.contains(*image)).count();
            if num > 0 {
                let all = own.len();
                notes.push(format!(
                    "warning: {num} of {all} images of `{name}` are also in `{other}`"
                ));
            }
        }
        images.extend(own);
    }
    Ok((images, notes))
}

/// A message about label files without an image, in the folders that contain the labels of
/// `images`.
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

fn names(names: Texts, count: Option<usize>) -> Result<Vec<String>, String> {
    let names = match names {
        Texts::One(_) => return Err("`names` is a string; write a list of names".into()),
        Texts::List(names) => names,
        Texts::Map(names) => {
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

/// The images at the locations given in `data.yaml` (folders, or text files that list images), and
/// warnings about locations that were not found and replaced by similar ones.
fn images_at(
    folder: &Folder,
    base: &str,
    places: &[String],
) -> Result<(Vec<String>, Vec<String>), String> {
    let (mut all, mut warnings) = (Vec::new(), Vec::new());
    for named in places {
        for (place, is_whole) in inside(folder, base, named) {
            let prefix = if place.is_empty() { String::new() } else { format!("{place}/") };
            let before = all.len();
            all.extend(folder.images(&prefix).map(str::to_string));
            if all.len() > before {
                if !is_whole {
                    warnings.push(format!("warning: {named} was not found; using {place} instead"));
                }
                break;
            }
            if place.ends_with(".txt") && folder.has(&place) {
                let text = folder.text(&place).map_err(|error| error.to_string())?;
                for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
                    let mut images = inside(folder, base, line).into_iter().map(|(image, _)| image);
                    let image = images.find(|image| folder.has(image) && is_image(image));
                    let none = || format!("{place} lists {line:?}, which is not an image");
                    all.push(image.ok_or_else(none)?);
                }
                break;
            }
        }
    }
    Ok((all, warnings))
}

/// Candidate locations inside the folder for a path in `data.yaml`, the most likely first; each
/// with true if it uses the whole path. Paths should be relative to `path` of `data.yaml`, but
/// exporters also write `../train/images` or an absolute path on a different machine.
fn inside(folder: &Folder, base: &str, place: &str) -> Vec<(String, bool)> {
    let plain = |path: &str| -> Vec<String> {
        let path = path.replace('\\', "/");
        let roots = [&folder.root, &folder.full];
        let own = roots.into_iter().find_map(|root| Path::new(&path).strip_prefix(root).ok());
        let path = own.and_then(Path::to_str).unwrap_or(&path);
        let parts = path.split('/').filter(|part| !matches!(*part, "" | "." | ".."));
        parts.map(str::to_string).collect()
    };
    let (base, place) = (plain(base), plain(place));
    let joined = [base, place.clone()].concat();
    let whole = [joined.join("/"), place.join("/")].map(|path| (path, true));
    // The path without one or more leading components: `images/train` for
    // `datasets/mine/images/train`.
    let tails = (1..joined.len()).map(|from| (joined[from..].join("/"), false));
    whole.into_iter().chain(tails).map(|(path, whole)| (folder.listed(&path), whole)).collect()
}

/// The label file of an image: the last folder `images` in the path is replaced by `labels`.
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
    num_points: Option<usize>,
    image: String,
) -> Result<Picture, DaliError> {
    let labels = label_file(&image);
    let size = folder.size_of(&image, request);
    let mut objects = Vec::new();
    if folder.has(&labels) {
        let text = folder.text(&labels)?;
        for (line, at) in text.lines().zip(1..) {
            if !line.trim().is_empty() {
                let object = object(line, names, num_points, size.unwrap_or([1, 1]));
                let named = |text| fault(&folder.path(&labels), format!("line {at}: {text}"));
                objects.push(object.map_err(named)?);
            }
        }
    }
    Ok(Picture { file_name: image, size: size.unwrap_or([1, 1]), objects })
}

fn object(
    line: &str,
    names: &[String],
    num_points: Option<usize>,
    [height, width]: [u32; 2],
) -> Result<Object, String> {
    let mut words = line.split_whitespace();
    let class = words.next().unwrap_or_default();
    // Some tools write the class index as a decimal, such as 3.0.
    let class_idx = class.parse::<f64>().ok().filter(|idx| idx.fract() == 0.0 && *idx >= 0.0);
    let class_idx = class_idx.ok_or_else(|| match class.contains([',', ';']) {
        true => format!("{class:?} is not a class index; separate the numbers by spaces"),
        false => format!("the class is {class:?}; write its index, counted from 0"),
    })?;
    let name = names.get(class_idx as usize).ok_or_else(|| {
        let last = names.len() - 1;
        format!("class {class} has no name, as the last is {last}; name it or correct the line")
    })?;
    let mut values: Vec<f64> = words
        .map(|word| word.parse().map_err(|_| format!("{word:?} is not a number; write a fraction")))
        .collect::<Result<_, String>>()?;
    if let Some(num) = num_points.filter(|_| values.len() > 4) {
        let own = values.len() - 4;
        if own != num {
            return Err(format!("has {own} numbers after the box, but `kpt_shape` gives {num}"));
        }
        values.truncate(4);
    }
    let is_fraction = |value: &&f64| !(-TOLERANCE..=1.0 + TOLERANCE).contains(*value);
    if let Some(value) = values.iter().find(is_fraction) {
        return Err(format!(
            "{value} is not a fraction of the image; divide x by its width and y by its height"
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
            "has {} numbers after the class; a box has 4, a polygon 6 or more, in pairs",
            values.len()
        )),
    }
}

/// Rejects the labels if at least half of the polygons look like a box followed by extra values.
/// Fewer may be a coincidence, and give at most a warning.
fn check_polygons(folder: &Folder, pictures: &[Picture]) -> Result<Option<String>, DaliError> {
    let (mut num, mut found) = (0, Vec::new());
    for picture in pictures {
        for (object, at) in picture.objects.iter().zip(1..) {
            if let Some(Segmentation::Polygons(rings)) = &object.segmentation {
                num += 1;
                let more = behind_a_box(&rings[0], picture.size);
                found.extend(more.map(|more| (more, label_file(&picture.file_name), at)));
            }
        }
    }
    let says = |(more, file, at): &(&str, String, usize)| {
        (folder.path(file), format!("object {at} looks like a box and {more}, not a polygon"))
    };
    if !found.is_empty() && 2 * found.len() >= num {
        let (path, text) = says(&found[0]);
        let mend = "add `kpt_shape` to data.yaml, or keep only the class and the box";
        return Err(fault(&path, format!("{text}; {mend}")));
    }
    let track = found.iter().find(|(more, ..)| *more == TRACK).map(says);
    let warn = |(path, text): (PathBuf, String)| format!("warning: {}: {text}", path.display());
    Ok(track.map(|said| warn(said) + "; it is read as a polygon"))
}

/// A description of the values after the fourth, if the first four values of a polygon may be a box
/// inside the image, and the remaining values a confidence and a track id, or keypoints in the box
/// and around its centre.
fn behind_a_box(ring: &[f32], [height, width]: [u32; 2]) -> Option<&'static str> {
    let sides = [width, height].map(f64::from);
    let values = ring.iter().zip(sides.iter().cycle());
    let values: Vec<f64> = values.map(|(value, side)| f64::from(*value) / side).collect();
    let ends = |a: usize| [values[a] - values[a + 2] / 2.0, values[a] + values[a + 2] / 2.0];
    let is_box = |a| values[a + 2] > 0.0 && ends(a)[0] > -TOLERANCE && ends(a)[1] < 1.0 + TOLERANCE;
    let is_whole = |value: f64| (value - value.round()).abs() < 1e-6;
    if !is_box(0) || !is_box(1) {
        return None;
    }
    if values.len() == 6 {
        return is_whole(values[5]).then_some(TRACK);
    }
    // The third value of a keypoint, if present, is its visibility; a keypoint at 0, 0 is not
    // labelled.
    let are_points = |dims: usize| {
        let points = values[4..].chunks_exact(dims);
        let is_along = |a: usize| {
            let values_of = || points.clone().filter(|p| p[..2] != [0.0; 2]).map(|p| p[a]);
            let least = values_of().fold(f64::INFINITY, f64::min);
            let most = values_of().fold(f64::NEG_INFINITY, f64::max);
            let is_in = ends(a)[0] - least < ROUNDING && most - ends(a)[1] < ROUNDING;
            is_in && (2.0 * values[a] - least - most).abs() * 2.0 <= most - least
        };
        points.remainder().is_empty()
            && points.clone().all(|point| point.get(2).is_none_or(|seen| is_whole(*seen)))
            && is_along(0)
            && is_along(1)
    };
    (are_points(2) || are_points(3)).then_some(POINTS)
}
