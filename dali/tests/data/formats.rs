//! Six real images in eleven folders of annotation formats: each reader returns the recorded
//! objects.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use dali::Store;
use dali::formats;
use dali::store::{Segmentation, Stores};
use hotcoco::mask;
use hotcoco::types::Rle;
use serde_json::Value;

use crate::fixture::rle_of;
use crate::formats_mistakes::{request, store};

/// Maximum number of differing pixels in a polygon's mask (7 measured): vertices are stored in f32,
/// and rounding a vertex may move an edge across a pixel centre. Pixel masks must be equal.
const POLYGON_PIXELS: usize = 8;
/// Tolerance for boxes, which are recorded with a precision of 0.0001 pixels.
const BOX_PIXELS: f64 = 1e-3;

/// A folder, its detected format, and the splits that together contain all images.
const FOLDERS: [(&str, &str, &[Option<&str>]); 11] = [
    ("coco_polygons", "coco", &[None]),
    ("coco_rle", "coco", &[None]),
    ("coco_datumaro", "coco", &[Some("train"), Some("val")]),
    ("yolo_seg", "yolo", &[Some("train"), Some("val")]),
    ("labelme", "labelme", &[None]),
    ("cvat", "cvat", &[None]),
    ("cvat_datumaro", "cvat", &[Some("all")]),
    ("voc", "voc", &[Some("all")]),
    ("voc_datumaro", "voc", &[Some("all")]),
    ("instance_masks", "masks", &[None]),
    ("instance_ids", "masks", &[None]),
];

/// One object in the store.
struct Stored {
    category: String,
    crowd: bool,
    bbox: [f64; 4],
    mask: Rle,
    is_polygon: bool,
}

#[test]
fn every_format_yields_recorded_objects() {
    let Some(root) = crate::coco_open::data("formats") else { return };
    let text = std::fs::read_to_string(root.join("expected.json")).unwrap();
    let expected: Value = serde_json::from_str(&text).unwrap();
    let mut faults = String::new();
    for (folder, format, splits) in FOLDERS {
        let mut images = BTreeMap::new();
        for split in splits {
            images.append(&mut stored(&root.join(folder), format, *split));
        }
        let objects = expected["formats"][folder]["objects"].as_object().unwrap();
        for (image, objects) in objects {
            let Some(stored) = images.remove(image) else {
                let _ = writeln!(faults, "{folder}: {image} is missing");
                continue;
            };
            if let Err(fault) = compare(&stored, objects) {
                let _ = writeln!(faults, "{folder}: {image}: {fault}");
            }
        }
        assert!(images.is_empty(), "{folder}: more images than recorded");
    }
    assert!(faults.is_empty(), "{faults}");
}

/// The objects of a folder's images, by file name.
fn stored(folder: &Path, format: &str, split: Option<&str>) -> BTreeMap<String, Vec<Stored>> {
    let source = formats::read(&request(folder, split)).unwrap();
    let taken = format!("reading {} as {format}: ", folder.display());
    assert!(source.notes[0].starts_with(&taken), "{:?}", source.notes);
    let place = tempfile::tempdir().unwrap();
    let out = place.path().join("store");
    store(source, &out).unwrap();
    let store = Store::open(&out).unwrap();
    // The identifier must not change when files are added: it is COCO's id or, for other formats,
    // the FNV-1a hash of the name.
    let stable = Stores::from(Store::open(&out).unwrap()).stable_id(0);
    match format {
        "coco" => assert_eq!(stable, store.image(0).image_id),
        "labelme" => {
            assert_eq!((store.file_name(0), stable), ("000000000785.jpg", 0xA743_0E5D_FECA_E892))
        }
        _ => assert_ne!(stable, 1),
    }
    let image = |idx: usize| {
        let record = store.image(idx);
        let (height, width) = (record.height, record.width);
        let name = store.file_name(idx).rsplit('/').next().unwrap().to_string();
        let objects = record.objects.map(|obj| {
            let object = store.object(obj);
            let mask = rle_of(&object.segmentation, height, width);
            let is_polygon = matches!(object.segmentation, Segmentation::Polygons(_));
            let category = &store.header().categories[object.label as usize - 1];
            let bbox = object.bbox_xywh.map(f64::from);
            Stored { category: category.name.clone(), crowd: object.crowd, bbox, mask, is_polygon }
        });
        (name, objects.collect())
    };
    (0..store.len()).map(image).collect()
}

/// Compares the stored objects of an image with the recorded ones; the error describes the first
/// difference.
fn compare(stored: &[Stored], recorded: &Value) -> Result<(), String> {
    // For VOC, the objects in the XML file are recorded separately from the pixel masks.
    let listed = recorded["xml_objects"].as_array();
    let recorded = recorded.as_array().or(recorded["segmentation"].as_array()).unwrap();
    if stored.len() != recorded.len() {
        return Err(format!("{} objects, not {}", stored.len(), recorded.len()));
    }
    for (at, (ours, theirs)) in stored.iter().zip(recorded).enumerate() {
        let xml = listed.zip(theirs["object_value"].as_u64().map(|value| value as usize - 1));
        let is_difficult = xml.is_some_and(|(listed, at)| listed[at]["difficult"] == 1);
        let crowd = theirs["iscrowd"] == 1 || is_difficult;
        if (ours.category.as_str(), ours.crowd) != (theirs["category"].as_str().unwrap(), crowd) {
            return Err(format!("object {at} is {:?}, not {}", ours.category, theirs["category"]));
        }
        let (height, width) = (ours.mask.h, ours.mask.w);
        let bbox = match xml {
            Some((listed, at)) => of_xml(listed, at),
            None => numbers(&theirs["bbox_xywh"]),
        };
        if ours.bbox.iter().zip(&bbox).any(|(a, b)| (a - b).abs() > BOX_PIXELS) {
            return Err(format!("object {at} has the box {:?}, not {bbox:?}", ours.bbox));
        }
        let rle = mask::rle_from_string(theirs["rle"].as_str().unwrap(), height, width).unwrap();
        let (ours_pixels, theirs_pixels) = (mask::decode(&ours.mask), mask::decode(&rle));
        let differ = ours_pixels.iter().zip(&theirs_pixels).filter(|(a, b)| a != b).count();
        let tolerance = theirs["area_tolerance"].as_u64().unwrap_or(0) as usize;
        let allowed = if ours.is_polygon { POLYGON_PIXELS } else { tolerance };
        if differ > allowed {
            return Err(format!("object {at} ({}) differs by {differ} pixels", ours.category));
        }
    }
    Ok(())
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|number| number.as_f64().unwrap()).collect()
}

/// x, y, width, height of a box in VOC's XML file, whose coordinates count from 1 if all are
/// integers.
fn of_xml(listed: &[Value], at: usize) -> Vec<f64> {
    let corners = |object: &Value| numbers(&object["xmin_ymin_xmax_ymax"]);
    let is_whole = listed.iter().flat_map(corners).all(|value| value.fract() == 0.0);
    let (corners, first) = (corners(&listed[at]), if is_whole { 1.0 } else { 0.0 });
    let (x, y) = (corners[0] - first, corners[1] - first);
    vec![x, y, corners[2] - x, corners[3] - y]
}
