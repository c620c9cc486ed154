//! Annotation folders with unusual contents that can be read, and the messages about them.

use std::os::unix::fs::symlink;

use dali::formats::{self, Request};

use crate::formats_mistakes::{picture, put, request};

#[test]
fn yolo_shared_split_images_are_reported_and_keypoints_ignored() {
    let place = tempfile::tempdir().unwrap();
    let set = place.path();
    for part in ["train", "val"] {
        picture(set, &format!("images/{part}/{part}.jpg"));
        put(set, &format!("labels/{part}/{part}.txt"), "0 .4 .5 .5 .5 .2 .3 1 .3 .6 2\n");
    }
    symlink("images/train", set.join("again")).unwrap();
    let own = format!("{}/images/train", set.display());
    let both = "1 of 1 images of `val` are also in `train`";
    for (train, val, says) in [
        ("../images/train", "images\\val", ""),
        (&own, "[images/val]", ""),
        (&own, "./images/train/", both),
        ("images/train", "again", both),
        ("images/train", "/else/images/val", "/else/images/val was not found; using images/val"),
    ] {
        let yaml = format!("names: [ant]\nkpt_shape: [2, 3]\ntrain: {train}\nval: {val}");
        put(set, "data.yaml", yaml);
        let source = formats::read(&request(set, Some("val"))).unwrap();
        let said = source.notes.iter().filter(|note| note.starts_with("warning: "));
        let said = said.map(String::as_str).collect::<String>();
        assert!(said.contains(says) && said.is_empty() == says.is_empty(), "{val}: {said}");
        let object = &source.dataset.unwrap().annotations[0];
        assert_eq!((object.bbox.as_ref().unwrap()[3], &object.segmentation), (5.0, &None));
    }
}

#[test]
fn words_of_other_formats_do_not_change_detected_format() {
    let coco = r#"{"info": {"description": "\"shapes\":", "neg_category_ids": 0},
        "categories": [{"id": 1, "name": "file_name", "supercategory": "imagePath"}],
        "images": [{"id": 1, "height": 10, "width": 20, "file_name": "a.jpg"}],
        "annotations": []}"#;
    let cvat = r#"<?xml version="1.0"?><!-- <annotation> --><annotations>
        <image name="a.jpg" height="10" width="20"/></annotations>"#;
    for (file, text, format) in [("a.json", coco, "coco"), ("Annotations/a.xml", cvat, "cvat")] {
        let place = tempfile::tempdir().unwrap();
        put(place.path(), "config.yaml", "usernames: 1");
        put(place.path(), file, text);
        picture(place.path(), "a.jpg");
        let source = formats::read(&Request::new(place.path())).unwrap();
        assert!(source.notes[0].contains(&format!(" as {format}: ")), "{:?}", source.notes);
    }
}
