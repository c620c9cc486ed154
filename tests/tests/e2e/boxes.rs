//! Annotations with boxes only: they train Faster R-CNN, and no mask is made up for them.

use crate::common::{BAD_CONFIG, BAD_DATA, Place};

/// A drawn set whose annotations have no segmentation: none at all, or an empty list.
fn boxes_alone() -> Place {
    let place = Place::new();
    place.good("prep --synthetic shapes --count 12 --size 64 --out set");
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
fn boxes_alone_train_faster_rcnn() {
    let place = boxes_alone();
    let files = "--set data.synthetic=none --set data.train_images=set/images \
                 --set data.train_annotations=boxes.json --set data.val_images=set/images \
                 --set data.val_annotations=boxes.json --set train.steps=3";
    place.good(&format!("train micro --set model.kind=faster_rcnn {files}"));
    let report = place.json("runs/micro/report.json");
    assert!(report["bbox"]["AP"].as_f64().is_some(), "{report}");
    assert!(report.get("segm").is_none_or(serde_json::Value::is_null), "{report}");
    let objects = place.json("boxes.json")["annotations"].as_array().expect("a list").len();
    let said = place.good("prep --boxes --images set/images --annotations boxes.json --out store");
    assert!(said.contains(&format!("{objects} (0 crowd, {objects} without a mask)")), "{said}");
    // The masks of a model would be trained on nothing.
    let store = "--set data.synthetic=none --set data.train_store=store --set data.val_store=store";
    let words = ["have no mask", "store", "model.kind=faster_rcnn", "--boxes"];
    place.bad(&format!("train micro {store}"), BAD_CONFIG, &words);
}

/// Without `--boxes` nothing would be left of them: that is said, with the way out.
#[test]
fn boxes_alone_are_no_masks() {
    let place = boxes_alone();
    let words = ["boxes.json", "none of its", "faster_rcnn", "--boxes"];
    let prep = "prep --images set/images --annotations boxes.json --out store";
    place.bad(prep, BAD_DATA, &words);
    assert!(!place.join("store").exists());
    let files = "--set data.synthetic=none --set data.train_images=set/images \
                 --set data.train_annotations=boxes.json --set data.val_images=set/images \
                 --set data.val_annotations=boxes.json";
    place.bad(&format!("train micro {files}"), BAD_DATA, &words);
}
