//! Converts a reader's pictures and objects into a data set with ids.

use std::collections::{BTreeSet, HashMap};

use hotcoco::mask;
use hotcoco::types::Rle;

use super::folder::Folder;
use super::{Source, fault};
use crate::coco::{Annotation, Category, Dataset, Image, RunCounts, Segmentation};
use crate::error::DaliError;

/// One image and its annotations.
pub(super) struct Picture {
    /// Path relative to the folder.
    pub(super) file_name: String,
    /// Height and width.
    pub(super) size: [u32; 2],
    pub(super) objects: Vec<Object>,
}

/// One annotated object.
pub(super) struct Object {
    pub(super) category: String,
    /// x, y, width, height in pixels.
    pub(super) bbox: Option<[f64; 4]>,
    pub(super) crowd: bool,
    pub(super) segmentation: Option<Segmentation>,
}

impl Object {
    /// An object with only a box.
    pub(super) fn boxed(category: &str, [x1, y1, x2, y2]: [f64; 4]) -> Object {
        let bbox = Some([x1, y1, x2 - x1, y2 - y1]);
        Object { category: category.to_string(), bbox, crowd: false, segmentation: None }
    }

    /// An object with an outline of rings (x, y pairs); its box is the bounding box of the rings.
    pub(super) fn outlined(category: &str, rings: Vec<Vec<f64>>) -> Object {
        let values =
            |axis: usize| rings.iter().flat_map(move |ring| ring.iter().skip(axis).step_by(2));
        let low = |axis| values(axis).copied().fold(f64::INFINITY, f64::min);
        let high = |axis| values(axis).copied().fold(f64::NEG_INFINITY, f64::max);
        let corners = [low(0), low(1), high(0), high(1)];
        let narrow = |ring: &Vec<f64>| ring.iter().map(|&value| value as f32).collect();
        let segmentation = Segmentation::Polygons(rings.iter().map(narrow).collect());
        Object { segmentation: Some(segmentation), ..Object::boxed(category, corners) }
    }

    /// An object with a pixel mask; its box is the bounding box of the mask.
    pub(super) fn covering(category: &str, pixels: Rle) -> Object {
        let [x, y, width, height] = mask::to_bbox(&pixels);
        let boxed = Object::boxed(category, [x, y, x + width, y + height]);
        Object { segmentation: Some(runs(pixels)), ..boxed }
    }
}

pub(super) fn runs(pixels: Rle) -> Segmentation {
    Segmentation::Runs { size: [pixels.h, pixels.w], counts: RunCounts::List(pixels.counts) }
}

/// The data set of these pictures, sorted by path. `names` are the categories in the order of their
/// ids; if absent, the objects' categories are used, sorted.
pub(super) fn assemble(
    folder: &Folder,
    names: Option<Vec<String>>,
    mut pictures: Vec<Picture>,
) -> Result<Source, DaliError> {
    let names = names.unwrap_or_else(|| {
        let of_objects = pictures.iter().flat_map(|picture| &picture.objects);
        let names: BTreeSet<&String> = of_objects.map(|object| &object.category).collect();
        names.into_iter().cloned().collect()
    });
    let mut ids: HashMap<&str, u64> = HashMap::with_capacity(names.len());
    for (name, id) in names.iter().zip(1..) {
        if ids.insert(name, id).is_some() {
            let text = format!("names the class {name:?} twice; rename or remove one");
            return Err(fault(&folder.root, text));
        }
    }
    pictures.sort_by(|a, b| a.file_name.cmp(&b.file_name));
    let twice = pictures.windows(2).find(|pair| pair[0].file_name == pair[1].file_name);
    if let Some([_, again]) = twice {
        let file = folder.path(&again.file_name);
        return Err(fault(&file, "is annotated in two places; remove one of them"));
    }
    let mut dataset = Dataset::default();
    for (picture, image_id) in pictures.into_iter().zip(1..) {
        let Picture { file_name, size: [height, width], objects } = picture;
        for object in objects {
            if object.category.trim().is_empty() {
                let text = "has an object without a label; give it one, or remove it";
                return Err(fault(&folder.path(&file_name), text));
            }
            let Some(&category_id) = ids.get(object.category.as_str()) else {
                let name = &object.category;
                let text = format!("has an object of {name:?}, which is not in the class list");
                return Err(fault(&folder.path(&file_name), text + "; add the class"));
            };
            dataset.annotations.push(Annotation {
                id: dataset.annotations.len() as u64 + 1,
                image_id,
                category_id,
                bbox: object.bbox.map(|bbox| bbox.to_vec()),
                iscrowd: object.crowd,
                segmentation: object.segmentation,
                ..Annotation::default()
            });
        }
        dataset.images.push(Image { id: image_id, file_name, height, width });
    }
    let category = |(name, id)| Category { id, name, ..Category::default() };
    dataset.categories = names.into_iter().zip(1..).map(category).collect();
    Ok(Source {
        images: folder.root.clone(),
        annotations: folder.root.clone(),
        dataset: Some(dataset),
        notes: vec![],
    })
}
