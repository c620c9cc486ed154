//! Prep with each kind of valid and invalid annotation.

use dali::prep::{DropReason, Finding, Masks};
use dali::store::{Capacities, Segmentation};
use serde_json::{Value, json};

use crate::fixture::{Fixture, altered, annotation, assert_fails, assert_says};

/// The runs of the 4x4 square at (2, 1) in a 20x10 image, in column order.
const SQUARE_RUNS: [u32; 9] = [21, 4, 6, 4, 6, 4, 6, 4, 145];
/// `SQUARE_RUNS` in pycocotools' compressed form.
const SQUARE_TEXT: &str = "e04600000[4";

fn runs(id: u64, crowd: u8, size: [u32; 2], counts: Value) -> Value {
    let mask = json!({"size": size, "counts": counts});
    altered(id, json!({"iscrowd": crowd, "segmentation": mask}))
}

#[test]
fn every_mask_encoding_is_stored() {
    let square = [2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0];
    let triangle = [10.0, 1.0, 18.0, 1.0, 14.0, 9.0];
    let rings = json!([square, triangle]);
    let fixture = Fixture::of([
        altered(101, json!({"segmentation": rings})),
        runs(102, 0, [10, 20], json!(SQUARE_RUNS)),
        runs(103, 1, [10, 20], json!(SQUARE_RUNS)),
        runs(104, 0, [10, 20], json!(SQUARE_TEXT)),
        // Trailing zeros may be missing; the report counts such masks.
        runs(105, 0, [10, 20], json!(SQUARE_RUNS[..8])),
    ]);
    let (report, store) = fixture.made();
    assert_eq!((report.num_annotations, report.num_crowd), (6, 1));
    assert_eq!(report.num_dropped(), 0, "{report}");
    assert_eq!(report.findings[&Finding::ShortRuns].first_ids, [105]);

    assert_eq!(store.image(0).objects, 0..6);
    let object = |obj| store.object(obj);
    assert_eq!((object(0).annotation_id, object(0).label), (100, 2)); // zebra, the second id
    assert_eq!((object(1).annotation_id, object(1).label), (101, 1));
    assert_eq!((object(0).area, object(0).bbox_xywh), (16.0, [2.0, 1.0, 4.0, 4.0]));
    let expected: Vec<&[f32]> =
        vec![&[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0], &[10.0, 1.0, 18.0, 1.0, 14.0, 9.0]];
    assert_eq!(object(1).segmentation, Segmentation::Polygons(expected));
    for obj in 2..6 {
        assert_eq!(object(obj).segmentation, Segmentation::Runs(&SQUARE_RUNS), "object {obj}");
        assert_eq!(object(obj).crowd, obj == 3);
    }
    // The crowd object takes no space in a slot.
    let capacities = Capacities { objects: 5, parts: 6, coords: 22, runs: 27, pixels: 200 };
    assert_eq!(store.header().capacities, capacities);
}

#[test]
fn invalid_annotations_are_dropped_and_counted_by_reason() {
    let fixture = Fixture::of([
        annotation(1, 999, 3),
        annotation(2, 7, 4),
        annotation(100, 7, 3),
        altered(4, json!({"segmentation": []})),
        altered(5, json!({"segmentation": [[1.0, 2.0, 3.0, 4.0]]})),
        runs(6, 0, [10, 20], json!([100, 101])),
        runs(7, 0, [20, 10], json!(SQUARE_RUNS)),
        altered(8, json!({"bbox": [1.0, 2.0, 3.0]})),
        altered(9, json!({"bbox": [2.0, 1.0, 4.0, 0.0005]})),
        altered(10, json!({"bbox": [25.0, 1.0, 4.0, 4.0]})),
        altered(11, json!({"bbox": [5.0, 1.0, -4.0, 4.0]})),
        runs(12, 0, [10, 20], json!([200])),
        altered(13, json!({"segmentation": [[30.0, 1.0, 36.0, 1.0, 36.0, 5.0]]})),
        runs(14, 0, [10, 20], json!("not runs \u{7f}")),
        // An edge of 10^30 pixels would take forever to rasterize.
        altered(15, json!({"segmentation": [[2.0, 1.0, 1e30, 1.0, 6.0, 5.0]]})),
    ]);
    let report = fixture.prep().unwrap();
    let found: Vec<(DropReason, Vec<u64>)> =
        report.dropped.iter().map(|(&reason, noted)| (reason, noted.first_ids.clone())).collect();
    let expected = vec![
        (DropReason::UnknownImage, vec![1]),
        (DropReason::UnknownCategory, vec![2]),
        (DropReason::RepeatedId, vec![100]),
        (DropReason::NoSegmentation, vec![4]),
        (DropReason::BadPolygon, vec![5, 15]),
        (DropReason::BadRuns, vec![6, 14]),
        (DropReason::RunsSize, vec![7]),
        (DropReason::BadBox, vec![8]),
        (DropReason::DegenerateBox, vec![9, 10, 11]),
        (DropReason::EmptyMask, vec![12, 13]),
    ];
    assert_eq!(found, expected);
    assert_eq!((report.num_annotations, report.num_dropped()), (1, 15));
    assert_says(&report.to_string(), &["dropped      15", "category id not in the file: 1 (id 2)"]);
}

/// Each case is a typical mistake of exporters; boxes of COCO itself give no report
/// (`coco_open.rs`).
#[test]
fn box_that_does_not_match_mask_is_reported() {
    let ring = json!([[12.0, 2.0, 18.0, 2.0, 18.0, 5.0, 12.0, 5.0]]);
    for (name, bbox, segmentation) in [
        ("x1, y1, x2, y2", json!([12.0, 2.0, 18.0, 5.0]), ring.clone()),
        ("in widths of the image", json!([0.6, 0.1, 0.3, 0.15]), ring.clone()),
        ("y, x, height, width", json!([2.0, 12.0, 3.0, 6.0]), ring.clone()),
        ("centre, width, height", json!([15.0, 3.5, 6.0, 3.0]), ring.clone()),
        (
            "a polygon of y, x",
            json!([12.0, 2.0, 6.0, 3.0]),
            json!([[2.0, 8.0, 2.0, 10.0, 5.0, 10.0, 5.0, 8.0]]),
        ),
        (
            "a mask of another object",
            json!([12.0, 5.0, 6.0, 4.0]),
            json!({"size": [10, 20], "counts": SQUARE_RUNS}),
        ),
    ] {
        let fields = json!({"bbox": bbox, "segmentation": segmentation});
        let fixture = Fixture::of([altered(101, fields)]);
        let report = fixture.prep().unwrap().to_string();
        let told = "boxes that do not fit their mask: 1 of 2 (id 101); a box is [x, y, width";
        // A box that is partly or entirely outside the image is reported, too.
        let is_dropped = report.contains("box without area inside the image: 1 (id 101)");
        assert!(report.contains(told) || is_dropped, "{name}: {report}");
    }
    // Boxes that are accepted: mask and box extend past the image, or the box has integer
    // coordinates.
    let ring = json!([[15.0, 5.0, 25.0, 5.0, 25.0, 15.0, 15.0, 15.0]]);
    for bbox in [[15.0, 5.0, 10.0, 10.0], [15.0, 5.0, 5.0, 5.0]] {
        let fields = json!({"bbox": bbox, "segmentation": ring, "area": 25.0});
        let fixture = Fixture::of([altered(101, fields)]);
        let report = fixture.prep().unwrap();
        assert!(!report.findings.contains_key(&Finding::UnfitBox), "{report}");
    }
}

/// Fields of an object of 4x4 pixels at (2, 1), the resulting finding, and the stored box.
#[test]
fn changed_and_doubtful_annotation_values_are_reported() {
    use Finding::{ClippedBox, Copy, FarArea, MadeBox, RemovedRings};
    let own = [2.0, 1.0, 4.0, 4.0];
    let square = json!({"size": [10, 20], "counts": SQUARE_RUNS});
    let rings = json!([[1.0, 1.0, 2.0, 2.0], [2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]]);
    for (fields, told, bbox) in [
        (json!({"bbox": [-3.0, 4.0, 8.0, 100.0]}), Some(ClippedBox), [0.0, 4.0, 5.0, 6.0]),
        (json!({"bbox": [15.3, 4.1, 4.70001, 5.9]}), None, [15.3, 4.1, 4.70001, 5.9]),
        (json!({"bbox": null}), Some(MadeBox), own),
        (json!({"bbox": [], "segmentation": square}), Some(MadeBox), own),
        (json!({"segmentation": rings, "area": null}), Some(RemovedRings), own),
        (json!({"area": 0.0}), Some(FarArea), own),
        (json!({"area": -5.0}), Some(FarArea), own),
        (json!({"area": 1e9}), Some(FarArea), own),
        (json!({"area": 20.0}), None, own),
        (json!({"category_id": 90}), Some(Copy), own),
        (json!({"category_id": 90, "area": 20.0}), Some(Copy), own),
    ] {
        let fixture = Fixture::of([altered(101, fields.clone())]);
        let (report, store) = fixture.made();
        let mut findings = report.findings;
        // In the first two cases the box does not match the mask either.
        let is_unfit = findings.remove(&Finding::UnfitBox).is_some();
        assert_eq!(is_unfit, bbox != own, "{fields}");
        let found: Vec<_> =
            findings.iter().map(|(of, noted)| (*of, &noted.first_ids[..])).collect();
        assert_eq!(found, told.map(|told| (told, &[101][..])).into_iter().collect::<Vec<_>>());
        let is_doubt = is_unfit || matches!(told, Some(FarArea | Copy));
        assert_eq!(store.header().doubts.len(), usize::from(is_doubt), "{fields}");
        assert_eq!(store.object(1).bbox_xywh, bbox, "{fields}");
        if told == Some(RemovedRings) {
            assert_eq!(store.object(1).area, 16.0, "that of the mask");
            assert_eq!(store.object(1).segmentation, store.object(0).segmentation);
        }
    }
}

#[test]
fn file_with_no_valid_annotation_creates_no_store() {
    let mut fixture = Fixture::new();
    fixture.json["annotations"][0]["bbox"] = json!([1.0, 2.0]);
    fixture.assert_refused(&["annotations.json", "all 1 annotations were dropped", "(id 100)"]);
    assert!(!fixture.store_path().exists());
    // A file without annotations is allowed: its images are for detection.
    fixture.json["annotations"] = json!([]);
    assert_eq!(fixture.prep().unwrap().num_empty_images, 1);
}

#[test]
fn annotation_error_names_the_entry() {
    let image = json!({"id": 7, "height": 10, "width": 20,
        "coco_url": "http://images.cocodataset.org/train2017/000000391895.jpg"});
    let first = Fixture::new().json["images"][0].clone();
    // A path in the JSON file, the value to insert, and parts of the message.
    let cases: [(&str, Value, &[&str]); 13] = [
        (
            "/annotations/0/image_id",
            json!("seven"),
            &["annotations[0] (id 100): image_id must be an integer from 0, not \"seven\";"],
        ),
        ("/images/0", image, &["images/train2017/000000391895.jpg"]),
        ("/annotations/0/iscrowd", json!(2), &["annotations[0] (id 100)", "iscrowd"]),
        (
            "/annotations/0/segmentation",
            json!({"size": [1, 2]}),
            &["annotations[0] (id 100)", "segmentation.counts is missing"],
        ),
        ("/images/0/height", Value::Null, &["images[0] (id 7)", "height"]),
        ("/categories", json!([]), &["annotations.json", "no category"]),
        ("/categories/1/id", json!(90), &["categories[1]", "id 90", "categories[0]"]),
        ("/categories/1/name", json!("zebra"), &["name zebra"]),
        ("/images", json!([first, first]), &["images[1]", "id 7"]),
        (
            "",
            json!({"images": [first], "annotations": []}),
            &["annotations.json", "no `categories`"],
        ),
        ("", json!([]), &["is a list"]),
        ("/images", json!([]), &["nothing left", "0 images"]),
        (
            "/annotations/0",
            altered(100, json!({"keypoints": [1, "a", 2]})),
            &["annotations[0] (id 100)", "keypoints must be a list of numbers"],
        ),
    ];
    for (place, value, says) in cases {
        let mut fixture = Fixture::new();
        *fixture.json.pointer_mut(place).unwrap() = value;
        fixture.assert_refused(says);
    }
}

#[test]
fn truncated_json_is_reported() {
    let fixture = Fixture::new();
    let text = fixture.json.to_string();
    std::fs::write(fixture.annotations_path(), &text[..text.len() / 2]).unwrap();
    let error = fixture.run_with(|_| ()).unwrap_err().to_string();
    assert_says(&error, &["annotations.json", "not COCO JSON", "column"]);
    assert!(!error.contains("YOLO"), "{error}");
    std::fs::write(fixture.annotations_path(), "path: ../coco8\ntrain: images/train").unwrap();
    let yaml = fixture.run_with(|_| ());
    assert_fails(yaml, &["annotations.json", "not COCO JSON", "YOLO, VOC"]);
    let folder = fixture.run_with(|options| options.annotations = fixture.images());
    assert_fails(folder, &["images: is a folder; give the annotation file. YOLO"]);
}

/// With `--boxes` an empty or broken outline is omitted, and a rotated rectangle without an outline
/// is stored as its bounding box.
#[test]
fn boxes_option_keeps_and_rotates_boxes_without_outline() {
    let good = annotation(1, 7, 3)["segmentation"].clone();
    for (outline, degrees, finding) in [
        (good, 45, None),
        (json!([]), 360, None),
        (json!([[]]), 0, Some(Finding::NoOutline)),
        (json!([[1, 2, 3, 4]]), 0, Some(Finding::NoOutline)),
        (json!([[30, 1, 36, 1, 36, 5]]), 0, Some(Finding::NoOutline)),
        (json!({"size": [20, 10], "counts": [200]}), 0, Some(Finding::NoOutline)),
        (json!([]), -45, Some(Finding::TurnedBox)),
    ] {
        let mut fixture = Fixture::new();
        fixture.json["annotations"][0]["segmentation"] = outline.clone();
        fixture.json["annotations"][0]["attributes"] = json!({"rotation": degrees});
        let report = fixture.prep_with(|options| options.masks = Masks::Optional).unwrap();
        assert_eq!(report.findings.keys().next().copied(), finding, "{outline} {degrees}");
        let width = if degrees == -45 { 32f32.sqrt() } else { 4.0 };
        let want = [4.0 - width / 2.0, 3.0 - width / 2.0, width, width];
        if finding.is_none() || degrees == -45 {
            let stored = fixture.store().object(0).bbox_xywh;
            assert!(stored.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-5), "{stored:?}");
        }
    }
}

#[test]
fn crowd_only_data_is_reported() {
    for crowd in [1, 0] {
        let mut fixture = Fixture::new();
        fixture.json["annotations"][0]["iscrowd"] = json!(crowd);
        let doubts = fixture.made().1.header().doubts.join("");
        assert_eq!(doubts.contains("all 1 objects are crowds"), crowd == 1, "{doubts}");
    }
}

/// A root category without objects is omitted, such as the project's name in Roboflow's files.
#[test]
fn root_category_is_dropped_only_if_unused() {
    for (list, want) in [
        (&[(0, "red", "none"), (1, "red", "red"), (90, "blue", "red")][..], &["red", "blue"][..]),
        (&[(90, "project", "none"), (91, "red", "project")], &["project", "red"]),
        (&[(0, "red", "red"), (90, "blue", "red")], &["red", "blue"]),
        (&[(0, "a", "none"), (1, "b", "a"), (90, "c", "x")], &["a", "b", "c"]),
    ] {
        let mut fixture = Fixture::new();
        let of = |(id, name, above)| json!({"id": id, "name": name, "supercategory": above});
        fixture.json["categories"] = list.iter().copied().map(of).collect();
        let (_, store) = fixture.made();
        let names: Vec<_> = store.header().categories.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, want);
    }
}
