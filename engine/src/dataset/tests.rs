//! The identity of data, and what is said of the images in use.

use std::fs;
use std::ops::Range;

use dali::{prep, synthetic};
use serde_json::{Value, json};

use super::*;
use crate::evaluate::EvaluationSet;

/// Four images of shapes with keypoints, in stores with edited annotations.
struct Drawn(tempfile::TempDir);

impl Drawn {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (out, [height, width]) = (folder.path().join("set"), [64; 2]);
        let (count, seed, overwrite) = (4, 1, false);
        let options = synthetic::SyntheticOptions { count, seed, height, width, out, overwrite };
        synthetic::generate(&options, &mut |_| ()).expect("a data set");
        Self(folder)
    }

    fn store(&self, name: &str, edit: impl FnOnce(&mut Value)) -> Store {
        let path = |name: &str| self.0.path().join(name);
        let coco = fs::read(path("set/annotations.json")).expect("annotations");
        let mut coco = serde_json::from_slice(&coco).expect("JSON");
        edit(&mut coco);
        fs::write(path("own.json"), coco.to_string()).expect("written");
        let options = prep::PrepOptions::new(path("set/images"), path("own.json"), path(name));
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
fn identity_covers_keypoints_and_matches_one_without() {
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

#[test]
fn crowds_alone_are_rejected_in_training() {
    let drawn = Drawn::new();
    let crowds = |c: &mut Value| set_all(&mut c["annotations"], "iscrowd", &1.into());
    let sets = vec![drawn.store("good", |_| ()), drawn.store("crowds", crowds)];
    let store = data(sets).store;
    let used = |set: &Config| {
        let images = select(&set.data, Split::Train, &store, &Progress::quiet());
        images.map_err(|fault| fault.to_string())
    };
    let mut config = Config::default();
    // As in torchvision: an image of crowds among others is background.
    assert_eq!(used(&config), Ok((0..8).collect()));
    assert_eq!(limit(&config, Split::Val, &store, &mut vec![3, 4, 5]), [""; 0]);
    config.data.ids = vec![1_000_000_000_000_002, 1_000_000_000_000_001];
    let fault = used(&config).expect_err("crowds");
    assert!(fault.contains("crowds") && fault.contains("data.empty=keep"), "{fault}");
    config.data.empty = EmptyImages::Keep;
    let mut kept = used(&config).expect("background");
    for (split, most, found, words) in [
        (Split::Val, 2, 2, "no object to evaluate on"),
        (Split::Train, 3, 2, "data.max_images = 3 has no effect on 2 images"),
        (Split::Train, 1, 1, "no object to train on"),
    ] {
        (config.data.max_images, config.eval.max_images) = (most, 0);
        let warnings = limit(&config, split, &store, &mut kept).join("; ");
        assert!(warnings.contains(words) && kept.len() == found, "{warnings}");
    }
}

#[test]
fn images_that_sets_share_are_counted() {
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
        (0, 2..4, "1 of the 2 images to score"),
        (1, 1..4, "1 of the 1 image to score"),
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
