//! LabelMe: a JSON file of shapes next to each image.
//!
//! Polygons, rectangles, circles and masks are kept; shapes with the same label and group are one
//! object.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::assemble::{Picture, assemble};
use super::folder::{ByName, Folder, each, folder_of, stem_and_extension};
use super::part::{self, Part, Parts};
use super::pixels::{self, Values};
use super::{Request, Source, fault, keys};
use crate::error::DaliError;

/// Labels of LabelMe for regions that are not objects.
const NO_OBJECTS: [&str; 2] = ["__ignore__", "_background_"];
/// Maximum number of files inspected to recognise the format.
const MAX_LOOKED_INTO: usize = 8;

/// `imageData` is ignored: the pixels are read from the image file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    shapes: Vec<Shape>,
    image_path: String,
    image_height: Option<u32>,
    image_width: Option<u32>,
}

#[derive(Deserialize)]
struct Shape {
    label: String,
    points: Vec<[f64; 2]>,
    #[serde(default)]
    group_id: Option<serde_json::Value>,
    #[serde(default = "polygon")]
    shape_type: String,
    #[serde(default)]
    mask: Option<String>,
}

fn polygon() -> String {
    "polygon".into()
}

fn is_labelme(folder: &Folder, file: &str) -> bool {
    let known = ["shapes", "imagePath", "imageData"];
    folder.start_of(file).is_some_and(|start| keys::has(&start, 1, &known))
}

pub(super) fn recognise(folder: &Folder) -> Option<String> {
    let mut files = folder.with("", "json").take(MAX_LOOKED_INTO);
    let file = files.find(|file| is_labelme(folder, file))?;
    Some(format!("{file} has `shapes`"))
}

pub(super) fn read(folder: &Folder, request: &Request) -> Result<Source, DaliError> {
    let files: Vec<&str> = folder.with("", "json").collect();
    let images = ByName::of(folder);
    let read = each(files, |file| picture(folder, &images, request, file))?;
    if read.is_empty() {
        return Err(fault(&folder.root, "holds no JSON file; LabelMe writes one for each image"));
    }
    let num_skipped: usize = read.iter().map(|(_, skipped)| skipped).sum();
    let num_bare = folder.images("").count().saturating_sub(read.len());
    let mut source =
        assemble(folder, None, read.into_iter().map(|(picture, _)| picture).collect())?;
    if num_skipped > 0 {
        let text = "shapes are not areas (lines, points) or are marked as ignored, and are skipped";
        source.notes.push(format!("{num_skipped} {text}"));
    }
    if num_bare > 0 {
        source.notes.push(format!("{num_bare} images have no JSON file, and are left out"));
    }
    Ok(source)
}

/// The image and objects of a file, and the number of shapes that are not objects.
fn picture(
    folder: &Folder,
    images: &ByName<'_>,
    request: &Request,
    file: &str,
) -> Result<(Picture, usize), DaliError> {
    let path = folder.path(file);
    let content: File = serde_json::from_str(&folder.text(file)?)
        .map_err(|error| fault(&path, format!("is not a LabelMe file: {error}")))?;
    let own = folder_of(file);
    let (stem, _) = stem_and_extension(file);
    let named = images.find(&[own], &content.image_path);
    // If the image and the JSON file were renamed, `imagePath` still has the old name.
    let image = named.or_else(|text| {
        let beside = folder.images(own).find(|image| stem_and_extension(image).0 == stem);
        beside.map(str::to_string).ok_or(text)
    });
    let image = image.map_err(|text| fault(&path, text))?;
    let (height, width) = (content.image_height, content.image_width);
    let written = height.zip(width).map(|(height, width)| [height, width]);
    let size = written.or_else(|| folder.size_of(&image, request));
    let size = size.unwrap_or([1, 1]);
    if u64::from(size[0]) * u64::from(size[1]) > request.max_image_pixels as u64 {
        let text = format!("declares an image of {}x{} pixels; correct its size", size[1], size[0]);
        return Err(fault(&path, text));
    }
    let (mut parts, mut num_skipped) = (Parts::default(), 0);
    for (at, shape) in content.shapes.iter().enumerate() {
        let named = |text| fault(&path, format!("shapes[{at}] ({:?}) {text}", shape.label));
        match part(shape, size).map_err(named)? {
            Some(part) => {
                let group = shape.group_id.as_ref().filter(|group| !group.is_null());
                parts.push(&shape.label, group.map(ToString::to_string), part);
            }
            None => num_skipped += 1,
        }
    }
    let objects = parts.objects(size).map_err(|text| fault(&path, text))?;
    Ok((Picture { file_name: image, size, objects }, num_skipped))
}

/// The region of a shape; `None` for a shape without area, such as a line or a point.
fn part(shape: &Shape, size: [u32; 2]) -> Result<Option<Part>, String> {
    if NO_OBJECTS.contains(&shape.label.as_str()) {
        return Ok(None);
    }
    let two = || match shape.points[..] {
        [a, b] => Ok([a, b]),
        _ => Err(format!("has {} points; a {} has 2", shape.points.len(), shape.shape_type)),
    };
    match shape.shape_type.as_str() {
        "polygon" | "oriented_rectangle" | "rotation" => part::ring(&shape.points).map(Some),
        // X-AnyLabeling writes all four corners.
        "rectangle" if shape.points.len() == 4 => part::ring(&shape.points).map(Some),
        "rectangle" => part::rectangle(two()?, 0.0).map(Some),
        "circle" => {
            let [[cx, cy], [x, y]] = two()?;
            let radius = part::length(x - cx, y - cy);
            part::ellipse([cx, cy], [radius, radius], 0.0, size).map(Some)
        }
        "mask" => mask(shape, two()?, size).map(Some),
        "line" | "linestrip" | "point" | "points" => Ok(None),
        other => Err(format!("is a {other:?}, an unknown shape; draw a polygon")),
    }
}

/// A mask in a box with corners in any order. The last row and column are inclusive, but exclusive
/// in files of some tools.
fn mask(shape: &Shape, [a, b]: [[f64; 2]; 2], size: [u32; 2]) -> Result<Part, String> {
    let text = shape.mask.as_ref().ok_or("is a mask without `mask`; draw it again")?;
    let bytes = STANDARD.decode(text).map_err(|error| format!("has a broken `mask`: {error}"))?;
    let max = size[0] as usize * size[1] as usize;
    let (values, block) = pixels::png("its `mask`".as_ref(), &bytes, Values::Ink, max)
        .map_err(|error| format!("has a broken mask: {error}"))?;
    let whole = |value: f64, limit: u32| {
        (0.0..f64::from(limit)).contains(&value).then_some(value.round() as u32)
    };
    let corner = whole(a[0].min(b[0]), size[1]).zip(whole(a[1].min(b[1]), size[0]));
    let (left, top) = corner.ok_or("has a mask outside the image; draw it again")?;
    let [height, width] = block;
    let sides = [(a[0] - b[0]).abs(), (a[1] - b[1]).abs()];
    if (sides[0] - f64::from(width) + 0.5).abs() > 1.0
        || (sides[1] - f64::from(height) + 0.5).abs() > 1.0
    {
        let [w, h] = sides.map(|side| side + 1.0);
        return Err(format!("has a mask of {width}x{height} in a box of {w}x{h}; draw it again"));
    }
    Ok(part::block(&values, block, [left, top], size))
}
