//! Keypoints: from the file to the store, in joined stores, and errors in both.

use std::path::PathBuf;

use dali::coco;
use dali::formats::{self, Request};
use dali::prep::{Finding, source_key};
use dali::store::{Classes, Keypoints, MAX_KEYPOINTS, Stores};
use serde_json::{Value, json};

use crate::fixture::{Alter, Fixture, altered, annotation, assert_fails, assert_says, objects};
use crate::formats_mistakes::{put, store};
use crate::store::{open_error, refresh, reseal, rewrite};

/// Image 7, which has an object with three keypoints, an object without a list of keypoints, and a
/// crowd with a list.
fn unprepared() -> Fixture {
    let mut fixture = Fixture::new();
    for category in fixture.json["categories"].as_array_mut().unwrap() {
        category["keypoints"] = json!(["nose", "left_ear", "right_ear"]);
        category["skeleton"] = json!([[1, 2], [3, 1]]);
    }
    let list = json!([2.5, 1, 2, 4, 9, 0, -3, 30.25, 1]);
    fixture.json["annotations"][0]["keypoints"] = list;
    fixture.add_annotation(annotation(101, 7, 3));
    let list = json!([1, 1, 1, 0, 0, 0, 0, 0, 0]);
    let crowd = json!({"category_id": 90, "iscrowd": 1, "keypoints": list});
    fixture.add_annotation(altered(102, crowd));
    fixture
}

pub(crate) fn prepared() -> Fixture {
    let fixture = unprepared();
    fixture.prep().unwrap();
    fixture
}

#[test]
fn prep_stores_keypoints() {
    let fixture = unprepared();
    let (report, store) = fixture.made();
    assert_eq!((report.num_keypoints, report.num_with_keypoints), (3, 1), "{report}");
    let line = "\n  keypoints    3 per object; labelled in 1 objects\n";
    assert!(report.to_string().contains(line), "{report}");
    assert!(report.findings.keys().all(|finding| *finding == Finding::Copy), "{report}");
    store.verify_all().unwrap();
    let names = ["nose", "left_ear", "right_ear"].map(String::from).into();
    let keypoints = Keypoints { names, skeleton: vec![[0, 1], [2, 0]] };
    assert_eq!(store.header().keypoints, Some(keypoints));
    assert_eq!(store.header().num_with_keypoints, 1);
    // Visibility 0 is stored as zeros, and a position outside the image is unchanged.
    let first = [[2.5, 1.0, 2.0], [0.0; 3], [-3.0, 30.25, 1.0]];
    assert_eq!(store.object(0).keypoints, first);
    assert_eq!(store.object(1).keypoints, [[0.0; 3]; 3]);
    assert_eq!(store.object(2).keypoints, [[1.0, 1.0, 1.0], [0.0; 3], [0.0; 3]]);
    assert_eq!(store.header().files["keypoints.bin"].bytes, 3 * 3 * 12);
}

#[test]
fn keypoints_without_names_or_lists_are_not_stored() {
    let plain = Fixture::prepared();
    let header = std::fs::read_to_string(plain.stored("header.json")).unwrap();
    assert!(!header.contains("keypoints"), "{header}");
    assert!(!plain.stored("keypoints.bin").exists());
    assert!(plain.store().object(0).keypoints.is_empty());
    // A store has no keypoints if the file has names without lists, or lists without names.
    let cases: [Alter; 4] = [
        |file| file["annotations"].as_array_mut().unwrap().truncate(0),
        |file| file["annotations"][0]["keypoints"] = json!([]),
        |file| file["categories"][0]["keypoints"] = Value::Null,
        |file| file["categories"][0]["skeleton"] = json!([[1, 2, 3], "a", [-1, 0.5], null]),
    ];
    for (i, alter) in cases.into_iter().enumerate() {
        let mut fixture = Fixture::new();
        fixture.json["annotations"][0]["keypoints"] =
            if i == 1 { json!([]) } else { json!([1, 1, 2]) };
        if i < 2 {
            fixture.json["categories"][0]["keypoints"] = json!(["nose"]);
        }
        alter(&mut fixture.json);
        let (report, store) = fixture.made();
        assert_eq!((store.header().keypoints.as_ref(), report.num_keypoints), (None, 0));
        assert!(report.findings.is_empty() && report.keypoints_doubt.is_none(), "{report}");
    }
}

#[test]
fn invalid_keypoint_list_is_reported_and_not_stored() {
    let mut fixture = unprepared();
    for (id, list) in (200..).zip([
        json!([1, 1, 2]),
        json!([1, 1, 2, 1, 1, 2, 1, 1, 7]),
        json!([1, 1, 2, 1, 1, 2, 1, 1e300, 1]),
        json!([1, 1, 2, 1, 1, 2, 1, 1, 2, 1]),
        json!([1, 1, 2, 1, 1, 2, 1, 1, 0.5]),
        json!([1, 1, 2, 1, 1, 2, 1, 1e300, 0]),
        json!([]),
        Value::Null,
    ]) {
        fixture.add_annotation(altered(id, json!({"category_id": 90, "keypoints": list})));
    }
    let (report, store) = fixture.made();
    let found = &report.findings[&Finding::BadKeypoints];
    assert_eq!(
        (found.count, found.first_ids.as_slice()),
        (6, [200, 201, 202, 203, 204].as_slice())
    );
    assert_says(
        &report.to_string(),
        &["  left out     lists of keypoints that are broken: 6 of 11"],
    );
    assert!((3..11).all(|obj| store.object(obj).keypoints == [[0.0; 3]; 3]));
    assert!(store.header().doubts.iter().any(|doubt| doubt.contains("are broken: 6 of 11")));
}

#[test]
fn categories_with_differing_keypoints_store_none() {
    let cases: [(Alter, &str); 2] = [
        (
            |categories| categories[0]["keypoints"][2] = "tail".into(),
            "the categories \"ant\" and \"zebra\" have different keypoints",
        ),
        (
            |categories| {
                for category in categories.as_array_mut().unwrap() {
                    category["keypoints"] = vec!["a"; MAX_KEYPOINTS + 1].into();
                }
            },
            "the category \"ant\" has 1025, but a store has at most 1024",
        ),
    ];
    for (alter, words) in cases {
        let mut fixture = unprepared();
        alter(&mut fixture.json["categories"]);
        let words = format!("keypoints were left out: {words}");
        let (report, store) = fixture.made();
        assert_says(&report.to_string(), &[&words]);
        assert_eq!(store.header().keypoints, None);
        assert!(store.header().doubts.iter().any(|doubt| doubt.starts_with(&words)));
    }
    // Objects of a category without keypoint names use the names of the other categories.
    let mut fixture = unprepared();
    fixture.json["categories"][0]["keypoints"] = json!([]);
    let (_, store) = fixture.made();
    assert_eq!(store.header().keypoints.as_ref().unwrap().names[2], "right_ear");
}

/// Changes a value, a length, a count and the names; checksums are valid.
#[test]
fn inconsistent_keypoints_are_rejected_on_open() {
    let altered = |alter: &dyn Fn(&mut Vec<u8>), said: &str| {
        let fixture = prepared();
        rewrite(&fixture.stored("keypoints.bin"), alter);
        refresh(&fixture, "keypoints.bin");
        assert_says(&open_error(&fixture), &["keypoints", said]);
    };
    let set = |at: usize, value: f32, said: &str| {
        altered(&|bytes| bytes[4 * at..][..4].copy_from_slice(&value.to_le_bytes()), said);
    };
    set(0, f32::NAN, "annotation 100: a keypoint has no finite position");
    set(1, f32::INFINITY, "annotation 100: a keypoint has no finite position");
    set(2, 1.5, "annotation 100: a keypoint has no finite position");
    set(11, 1.0, "its count of objects with keypoints");
    altered(&|bytes| bytes.truncate(96), "3 keypoints for each object");
    let cases: [(Alter, &str); 5] = [
        (|h| h["num_with_keypoints"] = 2.into(), "its count of objects with keypoints"),
        (|h| h["keypoints"]["names"][3] = "tail".into(), "4 keypoints for each object"),
        (|h| h["keypoints"]["names"] = json!([]), "names 0 keypoints"),
        (|h| h["keypoints"]["skeleton"] = json!([[0, 3]]), "skeleton has the keypoint 3 of 3"),
        (|h| drop(h.as_object_mut().unwrap().remove("keypoints")), "names without keypoints"),
    ];
    for (alter, said) in cases {
        let fixture = prepared();
        reseal(&fixture, |header| match header["keypoints"]["names"].as_array_mut() {
            Some(names) if said.starts_with('4') => names.push("tail".into()),
            _ => alter(header),
        });
        assert_says(&open_error(&fixture), &[said]);
    }
}

#[test]
fn stores_with_equal_keypoints_are_joined() {
    let mut other = unprepared();
    other.json["categories"][0]["skeleton"] = json!([]);
    other.prep().unwrap();
    let stores = vec![Fixture::prepared().store(), prepared().store(), other.store()];
    let stores = Stores::new(stores, &Classes::default()).unwrap();
    let contents = stores.contents();
    assert_eq!((contents.num_with_keypoints, contents.num_annotations), (2, 7));
    assert_eq!(contents.keypoints, prepared().store().header().keypoints);
    let counts = [0, 1, 4].map(|obj| stores.object(obj).keypoints.len());
    assert_eq!(counts, [0, 3, 3]);
    assert_eq!(stores.object(4).keypoints[0], [2.5, 1.0, 2.0]);

    let [ants, zebras] = ["ant", "zebra"].map(|name| {
        let classes = Classes { names: vec![name.into()], as_one: false };
        Stores::new(vec![prepared().store()], &classes).unwrap()
    });
    assert_eq!((ants.contents().num_with_keypoints, ants.contents().num_annotations), (0, 1));
    assert_eq!(zebras.contents().num_with_keypoints, 1);
    assert_eq!(zebras.object(1).keypoints[0], [1.0; 3]);

    let mut third = unprepared();
    for category in third.json["categories"].as_array_mut().unwrap() {
        category["keypoints"][2] = "tail".into();
    }
    third.prep().unwrap();
    let joined = Stores::new(vec![prepared().store(), third.store()], &Classes::default());
    assert_fails(joined, &["nose, left_ear, tail", "nose, left_ear, right_ear"]);
}

#[test]
fn reordered_keypoints_are_matched_by_name() {
    let mut reversed = unprepared();
    for category in reversed.json["categories"].as_array_mut().unwrap() {
        category["keypoints"].as_array_mut().unwrap().reverse();
        category["skeleton"] = json!([[1, 2]]);
    }
    for object in reversed.json["annotations"].as_array_mut().unwrap() {
        let Some(list) = object["keypoints"].as_array() else { continue };
        let points: Vec<Value> = list.chunks(3).rev().flatten().cloned().collect();
        object["keypoints"] = points.into();
    }
    reversed.prep().unwrap();
    let first = prepared();
    let names = first.store().header().keypoints.clone().unwrap().names;
    let count = first.store().header().num_annotations;
    let mut all = Stores::new(vec![reversed.store(), first.store()], &Classes::default()).unwrap();
    assert_eq!(all.contents().keypoints, reversed.store().header().keypoints);
    let check = |all: &Stores| {
        let pairs = (0..count).map(|i| (all.object(i).keypoints, all.object(count + i).keypoints));
        pairs.for_each(|(own, other)| assert_eq!(own, other));
        all.object(1).keypoints.to_vec()
    };
    let mut points = check(&all);
    assert!(!all.order_keypoints(&["a".into(), "b".into(), "c".into()]));
    assert!(all.order_keypoints(&names));
    points.reverse();
    assert_eq!(check(&all), points);
    assert_eq!(all.contents().keypoints.as_ref().unwrap().skeleton, [[2, 1]]);
}

/// The source key differs from the key in versions without keypoints only if the file has
/// keypoints.
#[test]
fn file_without_keypoints_keeps_its_source_key() {
    let key = |fixture: &Fixture| {
        std::fs::write(fixture.annotations_path(), fixture.json.to_string()).unwrap();
        source_key(&fixture.options()).unwrap()
    };
    let old = |fixture: &Fixture| {
        use sha2::{Digest, Sha256};
        let content = std::fs::read(fixture.annotations_path()).unwrap();
        let content = hex::encode(Sha256::digest(content));
        let full = |path: PathBuf| path.canonicalize().unwrap();
        let (images, annotations) = (full(fixture.images()), full(fixture.annotations_path()));
        let text = format!("{images:?} {annotations:?} {content} Keep Jpeg false Required");
        hex::encode(Sha256::digest(text))
    };
    let (plain, named) = (Fixture::new(), unprepared());
    assert_eq!(key(&plain), old(&plain));
    assert_ne!(key(&named), old(&named));
    named.prep().unwrap();
    assert_eq!(named.store().header().source, Some(key(&named)));
}

/// The key of a data set in a format other than COCO is computed as in versions without keypoints.
#[test]
fn annotation_without_keypoints_keeps_debug_text() {
    let object: coco::Annotation =
        serde_json::from_str(r#"{"id": 1, "image_id": 2, "category_id": 3}"#).unwrap();
    let printed = "Annotation { id: 1, image_id: 2, category_id: 3, bbox: None, area: None, \
                   iscrowd: false, segmentation: None }";
    assert_eq!(format!("{object:?}"), printed);
    let with = coco::Annotation { keypoints: Some(vec![1.0, 1.0, 2.0]), ..object };
    assert!(
        format!("{with:?}").ends_with("segmentation: None, keypoints: Some([1.0, 1.0, 2.0]) }")
    );
    let category: coco::Category = serde_json::from_str(r#"{"id": 3, "name": "ant"}"#).unwrap();
    assert_eq!(format!("{category:?}"), r#"Category { id: 3, name: "ant" }"#);
    let with = coco::Category { keypoints: vec!["nose".into()], ..category };
    assert!(format!("{with:?}").contains(r#"keypoints: ["nose"]"#));
}

#[test]
fn folder_with_only_person_keypoints_is_read() {
    let mut fixture = unprepared();
    let folder = fixture.dir.path().to_path_buf();
    let write = |name: &str, text: &str| put(&folder, &format!("annotations/{name}"), text);
    fixture.json["images"][0]["file_name"] = "b.jpg".into();
    let text = fixture.json.to_string();
    std::fs::create_dir(folder.join("val2017")).unwrap();
    std::fs::rename(folder.join("images/a.jpg"), folder.join("val2017/b.jpg")).unwrap();
    write("person_keypoints_val2017.json", &text);
    write("captions_val2017.json", r#"{"images": [], "annotations": []}"#);
    let source = formats::read(&Request::new(&folder)).unwrap();
    assert!(source.annotations.ends_with("person_keypoints_val2017.json"), "{source:?}");
    assert!(source.images.ends_with("val2017/"), "{source:?}");
    assert_eq!(store(source, &fixture.store_path()).unwrap().num_with_keypoints, 1);
    // COCO's instances file has the categories of all classes.
    write("instances_val2017.json", &text);
    let source = formats::read(&Request::new(&folder)).unwrap();
    assert!(source.annotations.ends_with("instances_val2017.json"), "{source:?}");
}

/// detectron2 adds 0.5 to each coordinate of a file; the store has the unchanged values.
#[test]
fn keypoints_match_detectron2_reader() {
    let path = "golden/d2_load_coco_json.json";
    let Some(path) = crate::coco_open::shared("ONEGRAPH_GOLDEN", path) else { return };
    let mut golden: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    for category in golden["dataset"]["categories"].as_array_mut().unwrap() {
        category["keypoints"] = json!(["a", "b", "c"]);
    }
    let mut fixture = Fixture::new();
    fixture.json = golden["dataset"].clone();
    for image in golden["dataset"]["images"].as_array().unwrap() {
        fixture.write_jpeg(image["file_name"].as_str().unwrap(), 100, 80);
    }
    let (_, store) = fixture.made();
    let mut compared = 0;
    for object in objects(&store) {
        let records = golden["result"].as_array().unwrap().iter();
        let mut theirs = records.flat_map(|record| record["annotations"].as_array().unwrap());
        let Some(theirs) = theirs.find(|theirs| theirs["id"] == object.annotation_id) else {
            continue;
        };
        let values = theirs["keypoints"].as_array().unwrap();
        let values: Vec<f32> = values.iter().map(|v| v.as_f64().unwrap() as f32).collect();
        let ours = object.keypoints.iter().flat_map(|[x, y, v]| [x + 0.5, y + 0.5, *v]);
        assert_eq!(ours.collect::<Vec<_>>(), values, "annotation {}", object.annotation_id);
        compared += 1;
    }
    assert!(compared >= 5, "{compared}");
}
