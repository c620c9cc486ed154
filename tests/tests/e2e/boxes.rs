//! Annotations that contain only boxes train Faster R-CNN; no masks are generated from the boxes.

use crate::common::{BAD_CONFIG, BAD_DATA, Place, files, stores};

/// A synthetic set whose annotations have no segmentation, or an empty list.
fn box_only_set() -> Place {
    let place = Place::new();
    place.shapes(12, "set");
    let mut file = place.json("set/annotations.json");
    for (i, object) in file["annotations"].as_array_mut().expect("a list").iter_mut().enumerate() {
        let object = object.as_object_mut().expect("an object");
        object.remove("segmentation");
        if i % 2 == 0 {
            object.insert("segmentation".into(), serde_json::json!([]));
        }
    }
    place.write("boxes.json", file.to_string());
    place
}

#[test]
fn box_only_data_trains_faster_rcnn() {
    let place = box_only_set();
    let files = files("set/images", "boxes.json");
    let three = "--set model.kind=faster_rcnn --set train.steps=3";
    place.good(&format!("train micro {three} {files}"));
    let report = place.report("micro");
    assert!(report["bbox"]["AP"].as_f64().is_some(), "{report}");
    assert!(report.get("segm").is_none_or(serde_json::Value::is_null), "{report}");
    let objects = place.json("boxes.json")["annotations"].as_array().expect("a list").len();
    place.shows(
        "prep --boxes --images set/images --annotations boxes.json --out store",
        &[&format!("{objects} (0 crowd, {objects} without a mask)")],
    );
    // A mask model cannot be trained on this data.
    let words = ["have no mask", "store", "model.kind=faster_rcnn", "--boxes"];
    place.bad(&format!("train micro {}", stores("store", "store")), BAD_CONFIG, &words);
}

/// Without `--boxes` all objects would be dropped, which is reported with the fix.
#[test]
fn box_only_data_is_rejected_for_masks() {
    let place = box_only_set();
    let words = ["boxes.json", "none of its", "faster_rcnn", "--boxes"];
    let prep = "prep --images set/images --annotations boxes.json --out store";
    place.bad(prep, BAD_DATA, &words);
    assert!(!place.join("store").exists());
    let files = files("set/images", "boxes.json");
    place.bad(&format!("train micro {files}"), BAD_DATA, &words);
}
