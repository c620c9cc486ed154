//! What prep does with each kind of annotation, good and bad.

use dali::prep::DropReason;
use dali::store::{Capacities, Segmentation};
use serde_json::{Value, json};

use crate::fixture::{Fixture, annotation, assert_says};

/// The runs of the 4x4 square at (2, 1) in a 20x10 image, down the columns.
const SQUARE_RUNS: [u32; 9] = [21, 4, 6, 4, 6, 4, 6, 4, 145];
/// The same, as pycocotools compresses it.
const SQUARE_TEXT: &str = "e04600000[4";

fn altered(id: u64, alter: impl Fn(&mut Value)) -> Value {
    let mut value = annotation(id, 7, 3);
    alter(&mut value);
    value
}

fn runs(id: u64, crowd: u8, size: [u32; 2], counts: Value) -> Value {
    altered(id, |a| {
        a["iscrowd"] = json!(crowd);
        a["segmentation"] = json!({"size": size, "counts": counts});
    })
}

#[test]
fn all_forms_of_masks_reach_the_store() {
    let mut fixture = Fixture::new();
    let square = [2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0];
    let triangle = [10.0, 1.0, 18.0, 1.0, 14.0, 9.0];
    let rings = json!([square, triangle]);
    fixture.add_annotation(altered(101, |a| a["segmentation"] = rings.clone()));
    fixture.add_annotation(runs(102, 0, [10, 20], json!(SQUARE_RUNS)));
    fixture.add_annotation(runs(103, 1, [10, 20], json!(SQUARE_RUNS)));
    fixture.add_annotation(runs(104, 0, [10, 20], json!(SQUARE_TEXT)));
    // Trailing zeros may be left out.
    fixture.add_annotation(runs(105, 0, [10, 20], json!(SQUARE_RUNS[..8])));
    let report = fixture.prep().unwrap();
    assert_eq!((report.num_annotations, report.num_crowd), (6, 1));
    assert_eq!(report.num_dropped(), 0, "{report}");

    let store = fixture.store();
    assert_eq!(store.image(0).objects, 0..6);
    let object = |obj| store.object(obj);
    assert_eq!((object(0).annotation_id, object(0).label), (100, 2)); // zebra, of ids 3 and 90
    assert_eq!((object(1).annotation_id, object(1).label), (101, 1));
    assert_eq!((object(0).area, object(0).bbox_xywh), (16.0, [2.0, 1.0, 4.0, 4.0]));
    let expected: Vec<&[f32]> =
        vec![&[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0], &[10.0, 1.0, 18.0, 1.0, 14.0, 9.0]];
    assert_eq!(object(1).segmentation, Segmentation::Polygons(expected));
    for obj in 2..6 {
        assert_eq!(object(obj).segmentation, Segmentation::Runs(&SQUARE_RUNS), "object {obj}");
        assert_eq!(object(obj).crowd, obj == 3);
    }
    // The crowd object takes no room in a slot.
    let capacities = Capacities { objects: 5, parts: 6, coords: 22, runs: 27, pixels: 200 };
    assert_eq!(store.header().capacities, capacities);
}

#[test]
fn bad_annotations_are_dropped_by_reason() {
    let mut fixture = Fixture::new();
    fixture.add_annotation(annotation(1, 999, 3));
    fixture.add_annotation(annotation(2, 7, 4));
    fixture.add_annotation(annotation(100, 7, 3));
    fixture.add_annotation(altered(4, |a| a["segmentation"] = json!([])));
    fixture.add_annotation(altered(5, |a| a["segmentation"] = json!([[1.0, 2.0, 3.0, 4.0]])));
    fixture.add_annotation(runs(6, 0, [10, 20], json!([100, 101])));
    fixture.add_annotation(runs(7, 0, [20, 10], json!(SQUARE_RUNS)));
    fixture.add_annotation(altered(8, |a| a["bbox"] = json!([1.0, 2.0, 3.0])));
    fixture.add_annotation(altered(9, |a| a["bbox"] = json!([2.0, 1.0, 4.0, 0.0005])));
    fixture.add_annotation(altered(10, |a| a["bbox"] = json!([25.0, 1.0, 4.0, 4.0])));
    fixture.add_annotation(altered(11, |a| a["bbox"] = json!([5.0, 1.0, -4.0, 4.0])));
    fixture.add_annotation(runs(12, 0, [10, 20], json!([200])));
    let outside = json!([[30.0, 1.0, 36.0, 1.0, 36.0, 5.0]]);
    fixture.add_annotation(altered(13, |a| a["segmentation"] = outside.clone()));
    fixture.add_annotation(runs(14, 0, [10, 20], json!("not runs \u{7f}")));
    let report = fixture.prep().unwrap();
    let found: Vec<(DropReason, Vec<u64>)> =
        report.dropped.iter().map(|(&reason, noted)| (reason, noted.first_ids.clone())).collect();
    let expected = vec![
        (DropReason::UnknownImage, vec![1]),
        (DropReason::UnknownCategory, vec![2]),
        (DropReason::RepeatedId, vec![100]),
        (DropReason::NoSegmentation, vec![4]),
        (DropReason::BadPolygon, vec![5]),
        (DropReason::BadRuns, vec![6, 14]),
        (DropReason::RunsSize, vec![7]),
        (DropReason::BadBox, vec![8]),
        (DropReason::DegenerateBox, vec![9, 10, 11]),
        (DropReason::EmptyMask, vec![12, 13]),
    ];
    assert_eq!(found, expected);
    assert_eq!((report.num_annotations, report.num_dropped()), (1, 14));
    assert_says(&report.to_string(), &["dropped      14", "category id not in the file: 1 (id 2)"]);
}

#[test]
fn boxes_out_of_the_image_are_clipped_and_others_kept_as_given() {
    let mut fixture = Fixture::new();
    fixture.add_annotation(altered(101, |a| a["bbox"] = json!([-3.0, 4.0, 8.0, 100.0])));
    fixture.add_annotation(altered(102, |a| a["bbox"] = json!([15.3, 4.1, 4.70001, 5.9])));
    let report = fixture.prep().unwrap();
    assert_eq!(report.clipped_boxes.first_ids, [101]);
    let store = fixture.store();
    assert_eq!(store.object(1).bbox_xywh, [0.0, 4.0, 5.0, 6.0]);
    assert_eq!(store.object(2).bbox_xywh, [15.3, 4.1, 4.70001, 5.9]);
}

#[test]
fn short_rings_are_removed_and_a_missing_area_is_the_masks() {
    let mut fixture = Fixture::new();
    let rings = json!([[1.0, 1.0, 2.0, 2.0], [2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]]);
    fixture.add_annotation(altered(101, |a| {
        a["segmentation"] = rings.clone();
        a.as_object_mut().unwrap().remove("area");
    }));
    let report = fixture.prep().unwrap();
    assert_eq!(report.removed_rings.first_ids, [101]);
    let store = fixture.store();
    assert_eq!(store.object(1).area, 16.0);
    assert_eq!(store.object(1).segmentation, store.object(0).segmentation);
}

#[test]
fn faults_of_the_file_name_the_entry() {
    let broken = |alter: &dyn Fn(&mut Value)| {
        let mut fixture = Fixture::new();
        alter(&mut fixture.json);
        fixture.prep_error()
    };
    let message = broken(&|json| json["annotations"][0]["image_id"] = json!("seven"));
    assert_says(&message, &["annotations.json", "annotations[0] (id 100)", "seven"]);
    let message = broken(&|json| json["annotations"][0]["iscrowd"] = json!(2));
    assert_says(&message, &["annotations[0] (id 100)", "iscrowd"]);
    let message = broken(&|json| json["annotations"][0]["segmentation"] = json!({"size": [1, 2]}));
    assert_says(&message, &["annotations[0] (id 100)", "segmentation.counts"]);
    let message = broken(&|json| {
        json["images"][0].as_object_mut().unwrap().remove("height");
    });
    assert_says(&message, &["images[0] (id 7)", "height"]);
    let message = broken(&|json| json["categories"] = json!([]));
    assert_says(&message, &["annotations.json", "no category"]);
    let message = broken(&|json| json["categories"][1]["id"] = json!(90));
    assert_says(&message, &["categories[1]", "id 90", "categories[0]"]);
    let message = broken(&|json| json["categories"][1]["name"] = json!("zebra"));
    assert_says(&message, &["name zebra"]);
    let message = broken(&|json| {
        let image = json["images"][0].clone();
        json["images"].as_array_mut().unwrap().push(image);
    });
    assert_says(&message, &["images[1]", "id 7"]);
    let message = broken(&|json| {
        json.as_object_mut().unwrap().remove("categories");
    });
    assert_says(&message, &["annotations.json", "no `categories`"]);
    assert_says(&broken(&|json| *json = json!([])), &["is a list"]);
    assert_says(&broken(&|json| json["images"] = json!([])), &["nothing left", "0 images"]);
}

#[test]
fn json_that_is_cut_off_is_named() {
    let fixture = Fixture::new();
    fixture.prep().unwrap();
    std::fs::remove_dir_all(fixture.store_path()).unwrap();
    let text = fixture.json.to_string();
    std::fs::write(fixture.annotations_path(), &text[..text.len() / 2]).unwrap();
    let error = dali::prep::run(&fixture.options(), &mut |_| ()).unwrap_err().to_string();
    assert_says(&error, &["annotations.json", "not COCO JSON", "column"]);
}
