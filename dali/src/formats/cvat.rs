//! The format "CVAT for images 1.1": XML files with images and their polygons, boxes, masks and
//! ellipses.
//!
//! Shapes with the same label and group are one object. The classes are taken from `<labels>` of
//! all files, so that all splits have the same classes.

use std::collections::HashSet;
use std::path::Path;

use roxmltree::{Document, Node};

use super::assemble::{Object, Picture, assemble};
use super::folder::{ByName, Folder, each, folder_of, name_of, stem_and_extension};
use super::part::{self, Part, Parts};
use super::xml::{self, attribute, number};
use super::{Request, Source, fault, split};
use crate::error::DaliError;

/// Maximum number of XML files that are inspected.
const MAX_LOOKED_INTO: usize = 64;
const ROOT: &str = "annotations";

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    let mut files = folder.with("", "xml").take(MAX_LOOKED_INTO);
    let file = files.find(|file| xml::has_root(folder, file, ROOT) == Some(true))?;
    Some(format!("{file} begins with <annotations>"))
}

/// The contents of one file.
struct Content {
    names: Vec<String>,
    pictures: Vec<Picture>,
    num_skipped: usize,
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    // A file that cannot be read is included, so that an error reports it.
    let is = |file: &&str| xml::has_root(folder, file, ROOT) != Some(false);
    let files: Vec<&str> = folder.with("", "xml").filter(is).collect();
    if files.is_empty() {
        return Err(fault(
            &folder.root,
            "holds no XML file with <annotations>; export one from CVAT",
        ));
    }
    let name = |file: &&'_ str| stem_and_extension(name_of(file)).0.to_string();
    let names: Vec<String> = files.iter().map(name).collect();
    let there: Vec<&str> =
        if files.len() == 1 { vec![] } else { names.iter().map(String::as_str).collect() };
    let chosen = split::chosen(&folder.root, &there, request.split.as_deref())?;
    let images = ByName::of(folder);
    let read = each(&files, |file| content(folder, &images, request, file))?;
    let (mut pictures, mut labels, mut num_skipped) = (Vec::new(), Vec::new(), 0);
    for (content, name) in read.into_iter().zip(&names) {
        labels.extend(content.names);
        if there.is_empty() || chosen.contains(&name.as_str()) {
            pictures.extend(content.pictures);
            num_skipped += content.num_skipped;
        }
    }
    let mut seen = HashSet::new();
    labels.retain(|label| seen.insert(label.clone()));
    let mut source = assemble(folder, (!labels.is_empty()).then_some(labels), pictures)?;
    if let [one] = files[..] {
        source.annotations = folder.path(one);
    }
    if num_skipped > 0 {
        let text = "shapes are not areas (lines, points, cuboids, tags), and are ignored";
        source.notes.push(format!("{num_skipped} {text}"));
    }
    Ok(source)
}

fn content(
    folder: &Folder,
    images: &ByName<'_>,
    request: &Request,
    file: &str,
) -> Result<Content, DaliError> {
    let path = folder.path(file);
    let text = folder.text(file)?;
    let document = xml::parse(&path, &text)?;
    let root = document.root_element();
    if let Some(track) = root.children().find(|node| node.has_tag_name("track")) {
        let text = "is of a video; export the task as CVAT for images 1.1";
        return Err(xml::fault_at(&path, &document, track, text));
    }
    let labels = root.descendants().filter(|node| node.has_tag_name("label"));
    let names = labels.filter_map(|label| xml::child(label, "name").transpose());
    let names = names.map(|name| name.map(str::to_string)).collect::<Result<_, String>>();
    let names = names.map_err(|text| fault(&path, text))?;
    let mut content = Content { names, pictures: Vec::new(), num_skipped: 0 };
    for image in root.children().filter(|node| node.has_tag_name("image")) {
        let named = |text: String| xml::fault_at(&path, &document, image, &text);
        let name = attribute(image, "name").map_err(named)?;
        let own = folder_of(file);
        let (stem, _) = stem_and_extension(name_of(file));
        let bases = [own.to_string(), format!("{own}images/"), format!("{own}images/{stem}/")];
        let bases: Vec<&str> = bases.iter().map(String::as_str).collect();
        let file_name = images.find(&bases, name).map_err(named)?;
        let side = |key| number(image, key).and_then(|value| side(key, value));
        let size = side("height").and_then(|height| Ok([height, side("width")?])).map_err(named)?;
        if u64::from(size[0]) * u64::from(size[1]) > request.max_image_pixels as u64 {
            return Err(named("is larger than --max-image-pixels; correct its size".into()));
        }
        let (objects, skipped) = objects(&path, &document, image, size)?;
        content.num_skipped += skipped;
        content.pictures.push(Picture { file_name, size, objects });
    }
    Ok(content)
}

fn side(key: &str, value: f64) -> Result<u32, String> {
    let is_side = value.fract() == 0.0 && (1.0..=f64::from(u32::MAX)).contains(&value);
    is_side.then_some(value as u32).ok_or(format!("has the {key} {value}; write pixels"))
}

fn objects(
    path: &Path,
    document: &Document<'_>,
    image: Node<'_, '_>,
    size: [u32; 2],
) -> Result<(Vec<Object>, usize), DaliError> {
    let (mut parts, mut num_skipped) = (Parts::default(), 0);
    for shape in image.children().filter(Node::is_element) {
        let named = |text: String| xml::fault_at(path, document, shape, &text);
        match part(shape, size).map_err(named)? {
            Some(part) => {
                let label = attribute(shape, "label").map_err(named)?;
                let group = shape.attribute("group_id").filter(|group| *group != "0");
                parts.push(label, group.map(str::to_string), part);
            }
            None => num_skipped += 1,
        }
    }
    let objects =
        parts.objects(size).map_err(|text| xml::fault_at(path, document, image, &text))?;
    Ok((objects, num_skipped))
}

/// The region of a shape; `None` for a shape without area, such as a line or a point.
fn part(shape: Node<'_, '_>, size: [u32; 2]) -> Result<Option<Part>, String> {
    let at = |key: &str| number(shape, key);
    let turn = || shape.attribute("rotation").map_or(Ok(0.0), |_| at("rotation"));
    match shape.tag_name().name() {
        "polygon" => {
            let points: Result<Vec<[f64; 2]>, String> =
                attribute(shape, "points")?.split(';').map(point).collect();
            part::ring(&points?).map(Some)
        }
        "box" => {
            let corners = [[at("xtl")?, at("ytl")?], [at("xbr")?, at("ybr")?]];
            part::rectangle(corners, turn()?).map(Some)
        }
        "ellipse" => {
            part::ellipse([at("cx")?, at("cy")?], [at("rx")?, at("ry")?], turn()?, size).map(Some)
        }
        "mask" => mask(shape, size).map(Some),
        _ => Ok(None),
    }
}

fn point(text: &str) -> Result<[f64; 2], String> {
    let pair = text
        .split_once(',')
        .and_then(|(x, y)| Some([x.trim().parse().ok()?, y.trim().parse().ok()?]));
    pair.ok_or(format!("has the point {text:?}; write x,y"))
}

/// Decodes a mask: alternating runs of zeros and ones along the rows of a box.
fn mask(shape: Node<'_, '_>, size: [u32; 2]) -> Result<Part, String> {
    let whole = |key: &str| {
        let value = number(shape, key)?;
        let is_whole =
            value.fract() == 0.0 && (0.0..=f64::from(size[0].max(size[1]))).contains(&value);
        is_whole.then_some(value as u32).ok_or(format!("has {key}=\"{value}\", outside the image"))
    };
    let [left, top, width, height] =
        [whole("left")?, whole("top")?, whole("width")?, whole("height")?];
    if left + width > size[1] || top + height > size[0] {
        return Err("has a mask that extends past the image; export it again".into());
    }
    let mut values = Vec::with_capacity((width * height) as usize);
    for (run, i) in attribute(shape, "rle")?.split(',').zip(0..) {
        let count =
            run.trim().parse::<u32>().map_err(|_| format!("has the run {run:?}; write numbers"))?;
        if count as usize > values.capacity() - values.len() {
            return Err(format!("has runs of more than {width}x{height} pixels; export it again"));
        }
        values.extend(std::iter::repeat_n(u32::from(i % 2 == 1), count as usize));
    }
    if values.len() < (width * height) as usize {
        return Err(format!("has runs of fewer than {width}x{height} pixels; export it again"));
    }
    Ok(part::block(&values, [height, width], [left, top], size))
}
