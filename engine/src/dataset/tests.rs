//! Identity of data, and warnings about the images in use.

use std::fs;
use std::ops::Range;

use dali::prep;
use serde_json::{Value, json};

use super::*;
use crate::evaluate::EvaluationSet;

/// Loads the config `micro` with overrides, and opens a split of its synthetic data, which is
/// generated in a temporary folder.
pub(crate) fn micro(split: Split, set: &[&str]) -> (tempfile::TempDir, Config, DataSet) {
    let folder = tempfile::tempdir().expect("a folder");
    let dir = format!("data.synthetic.dir={}", folder.path().display());
    let set: Vec<String> = set.iter().map(ToString::to_string).chain([dir]).collect();
    let config = Config::load("micro", &set).expect("a config");
    let data = DataSet::open(&config, split, &Progress::quiet()).expect("drawn images");
    (folder, config, data)
}

/// Makes stores of four synthetic images with keypoints, with edited annotations.
struct Drawn(tempfile::TempDir);

impl Drawn {
    fn new() -> Self {
        Self(micro(Split::Val, &["data.synthetic.val_images=4"]).0)
    }

    fn store(&self, name: &str, edit: impl FnOnce(&mut Value)) -> Store {
        let path = |name: &str| self.0.path().join(name);
        let set = path("val-4x64-seed0");
        let coco = fs::read(set.join("annotations.json")).expect("annotations");
        let mut coco = serde_json::from_slice(&coco).expect("JSON");
        edit(&mut coco);
        fs::write(path("own.json"), coco.to_string()).expect("written");
        let paths = prep::PrepOptions::new(set.join("images"), path("own.json"), path(name));
        let options = prep::PrepOptions { empty: EmptyImages::Keep, ..paths };
        prep::run(&options, &mut |_| ()).expect("a store");
        Store::open(&path(name)).expect("a store")
    }
}

fn data(stores: Vec<Store>) -> DataSet {
    let store = Arc::new(Stores::new(stores, &Default::default()).expect("stores"));
    let images = (0..store.len()).collect();
    let classes = categories_of(&store);
    let (sizes, shapes, drawn, inclusive_boxes) = (vec![], vec![], None, false);
    DataSet { store, images, sizes, drawn, shapes, classes, inclusive_boxes }
}

fn set_all(list: &mut Value, key: &str, value: &Value) {
    list.as_array_mut().expect("a list").iter_mut().for_each(|row| row[key] = value.clone());
}

#[test]
fn data_identity_includes_keypoints() {
    let drawn = Drawn::new();
    let identity =
        |name: &str, edit: fn(&mut Value)| identity_of(&data(vec![drawn.store(name, edit)]));
    let ours = identity("ours", |_| ());
    let older = &ours[..64];
    assert_eq!((identity("again", |_| ()), ours.len()), (ours.clone(), 64 + 1 + 64));
    let [one, two, mixed] = [ours.clone(), format!("{ours}+{ours}"), format!("{older}+{ours}")];
    assert!(is_same_data(&one, older) && is_same_data(older, &one) && is_same_data(&mixed, &two));
    assert!(!is_same_data(older, &two) && !is_same_data(&two, &one));
    for (name, edit, only_keypoints) in [
        ("place", (|c| c["annotations"][1]["keypoints"][0] = 8.5.into()) as fn(&mut Value), true),
        (
            "name",
            |c| set_all(&mut c["categories"], "keypoints", &json!(["a", "b", "c", "d", "e"])),
            true,
        ),
        ("area", |c| c["annotations"][1]["area"] = 30.into(), true),
        ("box", |c| c["annotations"][1]["bbox"][2] = 7.into(), false),
    ] {
        let other = identity(name, edit);
        assert!(!is_same_data(&ours, &other), "{name}");
        assert_eq!(is_same_data(older, &other), only_keypoints, "{name}");
    }
    let without = identity("without", |c| {
        set_all(&mut c["categories"], "keypoints", &Value::Null);
        set_all(&mut c["annotations"], "keypoints", &Value::Null);
    });
    assert_eq!(without, older, "as older programs wrote it");
}

/// Ids of the images in use, and the warnings about them.
fn used(store: &Store, split: Split, set: &[&str]) -> Result<(Vec<u64>, String), String> {
    let set: Vec<String> = set.iter().map(ToString::to_string).collect();
    let config = Config::load("micro", &set).expect("a config");
    let store = Stores::from(Store::open(store.path()).expect("a store"));
    let images = select(&config.data, split, &store, &Progress::quiet());
    let mut images = images.map_err(|fault| fault.to_string())?;
    let warnings = limit(&config, split, &store, &mut images).join("; ");
    Ok((images.iter().map(|image| store.image(*image).image_id).collect(), warnings))
}

#[test]
fn images_are_selected_by_data_empty_ids_and_max_images() {
    let drawn = Drawn::new();
    // Image 2 has no object. Image 4 has only crowds, and is used as background, as in torchvision.
    let edit = |c: &mut Value| {
        let objects = c["annotations"].as_array_mut().expect("objects");
        objects.retain(|object| object["image_id"] != 2);
        objects.iter_mut().filter(|o| o["image_id"] == 4).for_each(|o| o["iscrowd"] = 1.into());
    };
    let keep = drawn.store("keep", edit);
    let none = drawn.store("none", |c| c["annotations"] = json!([]));
    let (train, val) = (Split::Train, Split::Val);
    for (store, split, set, ids, warning) in [
        (&keep, train, &[][..], &[1, 3, 4][..], ""),
        (&keep, train, &["data.empty=keep"], &[1, 2, 3, 4], ""),
        (&keep, train, &["data.max_images=2"], &[1, 3], ""),
        (&keep, train, &["data.max_images=4"], &[1, 3, 4], "data.max_images = 4 has no effect"),
        (&keep, val, &["data.max_images=2"], &[1, 2, 3, 4], ""),
        (&keep, train, &["data.ids=[3, 1]"], &[3, 1], ""),
        (&keep, train, &["data.ids=[3, 1]", "data.val_fraction=0.5"], &[1], "1 of the 2 images of"),
        (&keep, train, &["data.empty=keep", "data.ids=[4]"], &[4], "no object to train on"),
        (&none, val, &[], &[1, 2, 3, 4], "no object to evaluate on"),
    ] {
        let (found, warnings) = used(store, split, set).expect("images");
        assert_eq!(found, ids, "{set:?}");
        let is_told = warnings.contains(warning) && warnings.is_empty() == warning.is_empty();
        assert!(is_told, "{set:?}: {warnings}");
    }
    for (store, set, words) in [
        (&keep, &["data.ids=[2]"][..], "image 2"),
        (&keep, &["data.ids=[4]"], "crowds"),
        (&none, &[], "none"),
    ] {
        let refused = used(store, train, set).expect_err(words);
        assert!(refused.contains(words) && refused.contains("data.empty="), "{refused}");
    }
}

/// Heads fill their batch arrays from this list of objects, so it must list the same objects as the
/// rows of boxes.
#[test]
fn objects_with_rows_exclude_crowds_and_boxes_without_area() {
    let store = Drawn::new().store("rows", |c| {
        let objects = c["annotations"].as_array_mut().expect("objects");
        objects.truncate(4);
        objects
            .iter_mut()
            .zip(1..)
            .for_each(|(o, id)| (o["id"], o["image_id"]) = (id.into(), 1.into()));
        objects[0]["bbox"][2] = 1.into();
        objects[2]["iscrowd"] = 1.into();
    });
    let store = Stores::from(store);
    for (inclusive, ids) in [(false, &[1, 2, 4][..]), (true, &[2, 4])] {
        let (_, objects) = objects_with_rows(&store, 0, inclusive);
        let found: Vec<u64> = objects.iter().map(|object| object.annotation_id).collect();
        assert_eq!(found, ids);
    }
}

#[test]
fn images_in_several_sets_are_counted() {
    let drawn = Drawn::new();
    let store = |range: Range<usize>| {
        drawn.store(&format!("{range:?}"), |c| {
            c["images"] = c["images"].as_array().expect("images")[range].into();
            let images = c["images"].clone();
            let ids: Vec<_> = images.as_array().into_iter().flatten().map(|i| &i["id"]).collect();
            let objects = c["annotations"].as_array_mut().expect("objects");
            objects.retain(|object| ids.contains(&&object["image_id"]));
        })
    };
    let train = data(vec![store(0..3)]);
    for (most, val, words) in [
        (0, 2..4, "1 of the 2 images to evaluate"),
        (1, 1..4, "1 of the 1 image to evaluate"),
        (0, 3..4, ""),
    ] {
        let mut config = Config::default();
        config.eval.max_images = most;
        let set = EvaluationSet::new(&config, data(vec![store(val)]));
        let text = set.warn_of_shared(&train).unwrap_or_default();
        assert!(text.contains(words) && text.is_empty() == words.is_empty(), "{text}");
    }
    let halves = [0..2, 2..3].map(|images| DataSet { images: images.collect(), ..train.clone() });
    assert_eq!(
        (halves[1].count_shared(&[0], &halves[0]), train.count_shared(&[0, 2], &halves[0])),
        (0, 1)
    );
    let repeated = |sets: [Range<usize>; 2]| {
        let data = data(sets.map(&store).into());
        shared::repeated(&Data::default(), Split::Train, (&data.store, &data.images))
    };
    let text = repeated([1..3, 0..2]).unwrap_or_default();
    assert!(text.contains("data.train: 1 image in more than one set"), "{text}");
    assert_eq!(repeated([0..1, 1..2]), None);
}
