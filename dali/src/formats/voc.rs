//! Pascal VOC: one XML file per image, and a PNG with the masks of its objects in
//! `SegmentationObject`.
//!
//! The mask of the k-th `<object>` consists of the pixels with value k. The box is from the XML
//! file, in which integer coordinates count from 1 and include the last pixel; tools that write
//! fractional coordinates count from 0.

use std::collections::{BTreeMap, HashSet};

use hotcoco::mask;
use roxmltree::Node;

use super::assemble::{Object, Picture, assemble, runs};
use super::folder::{Folder, each, name_of, one_each, stem_and_extension};
use super::pixels::{self, Values};
use super::xml::{self, child};
use super::{Request, Source, fault, split};
use crate::error::DaliError;
use crate::prep::Masks;

/// Value of pixels between objects, and of regions that are excluded from evaluation.
const VOID: u32 = 255;
/// Names of the image lists that define splits; other lists are for single classes.
const SPLITS: [&str; 4] = ["train", "val", "test", "trainval"];
/// Maximum number of XML files inspected to recognise the format.
const MAX_LOOKED_INTO: usize = 8;

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    let mut files = folder.with("Annotations/", "xml").take(MAX_LOOKED_INTO);
    let file = files.find(|file| xml::has_root(folder, file, "annotation") == Some(true))?;
    Some(format!("{file} is an <annotation>"))
}

/// One object in an XML file.
struct Listed {
    name: String,
    /// x1, y1, x2, y2 as in the file.
    corners: [f64; 4],
    is_difficult: bool,
}

/// An image, as described in its XML file.
struct Entry<'a> {
    image: &'a str,
    stem: &'a str,
    /// Height and width, and their line in the XML file, if they are given.
    size: Option<([u32; 2], u32)>,
    objects: Vec<Listed>,
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let chosen = chosen(folder, request)?;
    let mut images: Vec<&str> = folder.images("JPEGImages/").collect();
    if images.is_empty() {
        // Label Studio uses this name for the folder of images.
        images = folder.images("images/").collect();
    }
    if images.is_empty() {
        let text = "has no image in JPEGImages; put the images of Annotations there";
        return Err(fault(&folder.root, text));
    }
    one_each(folder, images.iter().copied(), stem_of)?;
    // Categories are collected from all splits, so that each split has the same categories.
    let entries = each(&images, |image| entry(folder, image))?;
    let names: HashSet<&str> =
        entries.iter().flat_map(|e| e.objects.iter().map(|o| o.name.as_str())).collect();
    let mut names: Vec<String> = names.into_iter().map(str::to_string).collect();
    names.sort_unstable();
    stray(folder, &images)?;
    let has_masks = folder.with("SegmentationObject/", "png").next().is_some();
    let keeps = |entry: &&Entry<'_>| {
        request.masks == Masks::Optional
            || !has_masks
            || entry.objects.is_empty()
            || folder.has(&mask_file(entry.stem))
    };
    let stems: HashSet<&str> = entries.iter().map(|entry| entry.stem).collect();
    let listed = chosen.iter().flatten();
    if let Some(name) = listed.filter(|name| !stems.contains(name.as_str())).min() {
        let split = request.split.as_deref().unwrap_or_default();
        let text = format!(
            "has no image {name:?}, which the split {split} of ImageSets lists; add the image, \
             or correct the line (a name without extension)"
        );
        return Err(fault(&folder.root, text));
    }
    let of_split: Vec<&Entry<'_>> =
        entries.iter().filter(|e| chosen.as_ref().is_none_or(|c| c.contains(e.stem))).collect();
    let kept: Vec<&Entry<'_>> = of_split.iter().copied().filter(keeps).collect();
    let num_left_out = of_split.len() - kept.len();
    let pictures = each(kept, |entry| picture(folder, request, entry))?;
    let mut source = assemble(folder, Some(names), pictures)?;
    if num_left_out > 0 {
        let text = "images are left out, as their objects have no masks; --boxes keeps them";
        source.notes.push(format!("{num_left_out} {text}"));
    }
    Ok(source)
}

/// The images of the requested split; `None` for all.
fn chosen(folder: &Folder, request: &Request) -> Result<Option<HashSet<String>>, DaliError> {
    let mut lists: BTreeMap<&str, &str> = BTreeMap::new();
    for place in ["ImageSets/Main/", "ImageSets/Segmentation/"] {
        for list in folder.with(place, "txt") {
            let (stem, _) = stem_and_extension(name_of(list));
            if SPLITS.contains(&stem) {
                lists.insert(stem, list);
            }
        }
    }
    let there: Vec<&str> = lists.keys().copied().collect();
    let chosen = split::chosen(&folder.root, &there, request.split.as_deref())?;
    if request.split.as_deref().is_none_or(|wanted| wanted == split::ALL) {
        return Ok(None);
    }
    let mut stems = HashSet::new();
    for name in chosen {
        let text = folder.text(lists[name])?;
        stems.extend(text.lines().map(str::trim).filter(|l| !l.is_empty()).map(str::to_string));
    }
    Ok(Some(stems))
}

/// Rejects XML files without an image, as their objects would be omitted without notice.
fn stray(folder: &Folder, images: &[&str]) -> Result<(), DaliError> {
    let stems: HashSet<&str> = images.iter().map(|image| stem_of(image)).collect();
    match folder.with("Annotations/", "xml").find(|file| !stems.contains(stem_of(file))) {
        Some(file) => {
            let text = "has no image of its name in JPEGImages; add the image, or remove the file";
            Err(fault(&folder.path(file), text))
        }
        None => Ok(()),
    }
}

/// The path without the first folder and the extension.
fn stem_of(file: &str) -> &str {
    let (stem, _) = stem_and_extension(file);
    stem.split_once('/').map_or(stem, |(_, stem)| stem)
}

fn mask_file(stem: &str) -> String {
    format!("SegmentationObject/{stem}.png")
}

fn entry<'a>(folder: &Folder, image: &'a str) -> Result<Entry<'a>, DaliError> {
    let stem = stem_of(image);
    let file = format!("Annotations/{stem}.xml");
    if !folder.has(&file) {
        return Ok(Entry { image, stem, size: None, objects: Vec::new() });
    }
    let path = folder.path(&file);
    let text = folder.text(&file)?;
    let document = xml::parse(&path, &text)?;
    let root = document.root_element();
    if !root.has_tag_name("annotation") {
        return Err(xml::fault_at(&path, &document, root, "is not a VOC <annotation>"));
    }
    let objects = root.children().filter(|node| node.has_tag_name("object"));
    let objects = objects.map(listed);
    let objects = objects.collect::<Result<_, (Node<'_, '_>, String)>>();
    let objects = objects.map_err(|(node, text)| xml::fault_at(&path, &document, node, &text))?;
    let named = |text: String| xml::fault_at(&path, &document, root, &text);
    let size = xml::only(root, "size").map_err(named)?.and_then(|node| {
        // Some tools write 0 or nothing if the size is unknown.
        let side = |name| child(node, name).ok()??.parse::<u32>().ok().filter(|side| *side > 0);
        let row = document.text_pos_at(node.range().start).row;
        Some(([side("height")?, side("width")?], row))
    });
    Ok(Entry { image, stem, size, objects })
}

/// Parses an object; on an error, returns the invalid element and a message.
fn listed<'a, 'i>(object: Node<'a, 'i>) -> Result<Listed, (Node<'a, 'i>, String)> {
    let of_object = |text| (object, text);
    let lacks = |name: &str| (object, format!("has no <{name}>; add it"));
    let name = child(object, "name").map_err(of_object)?;
    let name = name.filter(|name| !name.is_empty()).ok_or_else(|| lacks("name"))?;
    let bounds = xml::only(object, "bndbox").map_err(of_object)?;
    let bounds = bounds.ok_or_else(|| lacks("bndbox"))?;
    let mut corners = [0.0; 4];
    for (corner, key) in corners.iter_mut().zip(["xmin", "ymin", "xmax", "ymax"]) {
        let text = child(bounds, key).map_err(|text| (bounds, text))?.unwrap_or_default();
        let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
        *corner = number.ok_or_else(|| (bounds, format!("has {key} {text:?}; write a number")))?;
    }
    if corners[2] < corners[0] || corners[3] < corners[1] {
        return Err((
            bounds,
            format!("has the corners {corners:?}; the second is before the first"),
        ));
    }
    let is_difficult = child(object, "difficult").map_err(of_object)? == Some("1");
    Ok(Listed { name: name.to_string(), corners, is_difficult })
}

fn picture(folder: &Folder, request: &Request, entry: &Entry<'_>) -> Result<Picture, DaliError> {
    let size = folder.size_of(entry.image, request);
    if let Some((size, (written, row))) = size.zip(entry.size).filter(|(a, (b, _))| a != b) {
        let ([h, w], [height, width]) = (written, size);
        let text = format!(
            "line {row}: <size> says {w}x{h} but the image is {width}x{height}; make them agree"
        );
        return Err(fault(&folder.path(&format!("Annotations/{}.xml", entry.stem)), text));
    }
    let file = mask_file(entry.stem);
    let mut masks = BTreeMap::new();
    if let Some(size) = size.filter(|_| folder.has(&file)) {
        masks = pixels::of_image(folder, &file, Values::Indices, size, request)?;
        masks.remove(&VOID);
        let last = masks.last_key_value().map_or(0, |(value, _)| *value);
        if last as usize > entry.objects.len() {
            let text = format!(
                "has an object {last} but its XML file lists {}; value k marks the k-th <object>",
                entry.objects.len()
            );
            return Err(fault(&folder.path(&file), text));
        }
    }
    let is_whole = entry.objects.iter().flat_map(|o| o.corners).all(|value| value.fract() == 0.0);
    // The coordinate of the first pixel: 1 if all coordinates are integers.
    let first = if is_whole { 1.0 } else { 0.0 };
    let object = |(listed, value): (&Listed, u32)| {
        let [x1, y1, x2, y2] = listed.corners;
        let pixels = masks.remove(&value);
        let [x, y, width, height] = pixels.as_ref().map_or([x1, y1, 1.0, 1.0], mask::to_bbox);
        if x > x2 || y > y2 || x + width < x1 - first || y + height < y1 - first {
            let text = "has no pixel of its value in its <bndbox>; value k marks the k-th <object>";
            return Err(fault(&folder.path(&file), format!("object {value} {text}")));
        }
        let boxed = Object::boxed(&listed.name, [x1 - first, y1 - first, x2, y2]);
        let segmentation = pixels.map(runs);
        Ok(Object { crowd: listed.is_difficult, segmentation, ..boxed })
    };
    let objects = entry.objects.iter().zip(1..).map(object).collect::<Result<_, DaliError>>()?;
    Ok(Picture { file_name: entry.image.to_string(), size: size.unwrap_or([1, 1]), objects })
}
