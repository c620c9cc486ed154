//! Data from files to training: real COCO images prepared, loaded and trained on, and the
//! properties of the synthetic set.

use std::path::PathBuf;

use crate::common::{self, BAD_DATA, Place, as_list, assert_has};
use crate::support;
use dali::store::{Segmentation, Store};
use engine::config::Config;
use engine::dataset::{DataSet, Split};
use engine::progress::Progress;
use hotcoco::mask;

/// Images and annotations of a COCO split; prints a `SKIPPED` line and returns `None` if they are
/// missing.
fn coco(split: &str) -> Option<(PathBuf, PathBuf)> {
    let root = support::data_dir().join("coco-open");
    let annotations = support::need(root.join(format!("annotations/instances_{split}2017.json")))?;
    Some((root.join(format!("{split}2017")), annotations))
}

/// Trains on a synthetic set given as files; then an image file is replaced, files of the store are
/// removed, and its pixels are corrupted.
#[test]
fn replaced_image_rebuilds_store() {
    let place = Place::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        let drawing = format!("--count 8 --size 64 --seed {seed} --out {name}");
        place.good(&format!("prep --synthetic shapes {drawing}"));
    }
    let files = common::files("a/images", "a/annotations.json");
    let run = |name: &str| {
        let run = format!("--set train.steps=1 --set train.run_dir={name}");
        place.prints(&format!("train micro {files} --set eval.draw_images=0 {run}"), &[]).err
    };
    assert!(run("first").contains("making the store"));
    let again = run("second");
    assert!(!again.contains("making the store") && !again.contains("replaced"), "{again}");
    std::fs::copy(place.join("b/images/000000000003.jpg"), place.join("a/images/000000000003.jpg"))
        .expect("a copy");
    let remade = run("third");
    assert_has(&remade, &["000000000003.jpg was replaced"]);
    let stores = place.names("runs/data");
    let store = format!("runs/data/{}", stores[0]);
    for lost in ["header.json", "runs.bin"] {
        std::fs::remove_file(place.join(&format!("{store}/{lost}"))).expect("it is there");
        let remade = run(lost);
        assert_has(&remade, &[&format!("{lost}: it is missing; rebuilding it")]);
    }
    let again = run("last");
    assert!(!again.contains("replaced") && !again.contains("rebuilding"), "{again}");

    place.shows(
        &format!("inspect {store} --verify"),
        &["8 images", "every image matches its checksum"],
    );
    place.shows(
        &format!("inspect {store} --verify --images a/images"),
        &["images match their files"],
    );
    let said = place.run(&format!("inspect {store} --verify --images b/images"));
    assert!(said.code == BAD_DATA && said.out.contains("of 8 images are different"), "{said:?}");
    place.flip(&format!("{store}/pixels.bin"));
    let words = ["pixels of image", "checksum", &store, "remove it"];
    place.bad(&format!("inspect {store} --verify"), BAD_DATA, &words);
    place.good(&format!("inspect {store}"));
    let said = place.run("inspect .");
    assert!(said.err.contains("the folder contains no store, run or checkpoint"), "{said:?}");
}

/// `micro` on real images of all shapes: two padded shapes per orientation, a little over one
/// epoch.
#[test]
fn coco_images_train_in_both_padded_orientations() {
    let (Some((train, train_json)), Some((val, val_json))) = (coco("train"), coco("val")) else {
        return;
    };
    let place = Place::new();
    let data = format!(
        "--set data.synthetic=none --set data.train_images={} --set data.train_annotations={} \
         --set data.val_images={} --set data.val_annotations={}",
        train.display(),
        train_json.display(),
        val.display(),
        val_json.display()
    );
    let sizes = "--set input.min_size=96 --set input.max_size=160 \
                 --set input.buckets_per_orientation=2";
    let run = "--set train.batch_size=4 --set train.images_per_group=2 --set train.steps=22 \
               --set eval.max_images=4";
    place.good(&format!("train micro {data} {sizes} {run}"));
    let steps = place.steps("runs/micro");
    assert_eq!(steps.len(), 22);
    let losses = steps.iter().map(|s| s["loss"].as_f64());
    assert!(
        losses.clone().all(|l| l.is_some_and(f64::is_finite)),
        "{:?}",
        losses.collect::<Vec<_>>()
    );
    let first_epoch: Vec<_> = steps.iter().filter(|s| s["epoch"] == 0).collect();
    let images: u64 = first_epoch.iter().filter_map(|s| s["images"].as_u64()).sum();
    assert_eq!(images, 70, "every image once an epoch");
    assert!(steps.len() > first_epoch.len(), "the second epoch begins");
    let report = place.report("micro");
    assert!(report["bbox"]["AP"].is_f64() && report["segm"]["AP"].is_f64(), "{report}");
    let detected = place.json("runs/micro/inference/bbox.json");
    let on: std::collections::BTreeSet<_> =
        as_list(&detected).iter().map(|d| d["image_id"].as_u64()).collect();
    assert!(on.len() <= 4, "eval.max_images");

    assert_eq!(place.names("runs/data").len(), 2, "the stores are made once");
}

/// An edited annotation file is prepared again.
#[test]
fn edited_annotation_file_is_a_new_data_set() {
    let place = Place::new();
    place.shapes(6, "set");
    let data = "--set data.synthetic=none --set data.train_images=set/images \
                --set data.train_annotations=a.json --set data.val_store=set/store";
    let train = common::micro(&format!("{data} --set train.steps=1"));
    let mut annotations = place.json("set/annotations.json");
    place.write("a.json", annotations.to_string());
    place.prints(&train, &["6 images, 4 classes"]);
    annotations["images"].as_array_mut().expect("a list").truncate(4);
    place.write("a.json", annotations.to_string());
    place.prints(&train, &["4 images, 4 classes"]);
    assert_eq!(place.names("runs/data").len(), 2);
}

/// A folder is stored and used for training according to its format; an option that requires a
/// folder is rejected without one.
#[test]
fn prep_detects_format_of_folder() {
    let place = Place::new();
    place.shapes(2, "drawn");
    std::fs::remove_dir_all(place.join("drawn/store")).expect("a store");
    let taken = |arguments: &str| {
        let said = place.prints(&format!("prep {arguments}"), &[]);
        let line = said
            .err
            .lines()
            .find(|line| line.starts_with("reading ") && line.contains(" as "))
            .map(str::to_string);
        line.unwrap_or_else(|| panic!("{}", said.err))
    };
    let coco = taken("drawn --split all --out coco.store");
    assert!(coco.starts_with("reading drawn as coco: annotations.json"), "{coco}");
    place.good("prep --images drawn/images --annotations drawn/annotations.json --out plain.store");
    for file in ["objects.bin", "pixels.bin", "coords.bin", "runs.bin"] {
        let [ours, plain] = ["coco", "plain"].map(|s| place.bytes(&format!("{s}.store/{file}")));
        assert!(ours == plain, "{file}");
    }

    let image = place.bytes("drawn/images/000000000001.jpg");
    place.write("yolo/images/one.jpg", image);
    place.write("yolo/labels/one.txt", "0 0.1 0.1 0.9 0.1 0.5 0.9\n");
    place.write("yolo/data.yaml", "names: [tent]\ntrain: images\n");
    let yolo = taken("yolo --out yolo.store");
    assert!(yolo.starts_with("reading yolo as yolo: data.yaml"), "{yolo}");
    let one = "--set train.batch_size=1 --set train.images_per_group=1 --set train.steps=1 \
               --set solver.warmup_steps=0";
    let data = format!("{} {one}", common::stores("yolo.store", "yolo.store"));
    place.prints(&common::micro(&data), &["1 class"]);

    for option in ["--from yolo", "--split train"] {
        let images = "--images drawn/images --annotations drawn/annotations.json";
        let said = place.run(&format!("prep {images} {option} --out refused.store"));
        assert_eq!(said.code, 2, "{option}: {}", said.err);
    }
    assert!(!place.join("refused.store").exists());
    place.write("drawn/more.json", place.bytes("drawn/annotations.json"));
    let words = ["several annotation files", "--split train, val or test"];
    place.bad("prep drawn --split all --out two.store", BAD_DATA, &words);
}

/// Probable mistakes in the data are reported by every run, not only by the run that builds the
/// store.
#[test]
fn doubtful_data_is_reported_on_every_run() {
    let place = Place::new();
    place.shapes(6, "set");
    let mut annotations = place.json("set/annotations.json");
    annotations["annotations"][0]["bbox"] = serde_json::json!([1.0, 2.0]);
    place.write("a.json", annotations.to_string());
    annotations["annotations"] = serde_json::json!([]);
    place.write("none.json", annotations.to_string());
    let files = |set: &str, file: &str| {
        format!("--set data.{set}_images=set/images --set data.{set}_annotations={file}")
    };
    let (train, val) = (files("train", "a.json"), files("val", "none.json"));
    let run =
        common::micro(&format!("--set data.synthetic=none {train} {val} --set train.steps=1"));
    for dropped in ["dropped      1 annotations", ": 1 annotations were dropped"] {
        let said = place.prints(&run, &[dropped]);
        let words = "no object to evaluate on, so every score will be undefined (-1)";
        let told = said.err.find(words).expect("it is reported");
        assert!(told < said.err.find("iter 1/1").expect("a step"), "before training");
    }
}

/// A synthetic set whose store is lost or damaged is generated again; a foreign folder is left
/// unchanged.
#[test]
fn lost_or_damaged_synthetic_set_is_regenerated() {
    let place = Place::new();
    let dir = place.path().display();
    let config = Config::load("micro", &[format!("data.synthetic.dir={dir}")]).expect("a preset");
    let open = || DataSet::open(&config, Split::Val, &Progress::quiet());
    let sound = || {
        let set = open().expect("a drawn set");
        set.store.stores().for_each(|store| store.verify_all().expect("a sound store"));
    };
    sound();
    let (set, store) = ("val-8x64-seed0", "val-8x64-seed0/store");
    let pixels = place.bytes(&format!("{store}/pixels.bin"));
    for lost in ["runs.bin", "header.json", "pixels.bin"] {
        std::fs::remove_file(place.join(store).join(lost)).expect("it is there");
        sound();
    }
    place.flip(&format!("{store}/images.bin"));
    sound();
    std::fs::remove_dir_all(place.join(store)).expect("it is there");
    sound();
    assert_eq!(place.bytes(&format!("{store}/pixels.bin")), pixels);
    assert_eq!(place.names(".").len(), 1, "nothing else is left");
    std::fs::remove_dir_all(place.join(set)).expect("it is there");
    place.write(&format!("{set}/precious"), "data");
    let refused = open().map(drop).expect_err("a stranger's folder").to_string();
    assert_has(&refused, &[set, "not overwritten"]);
    assert_eq!(place.text(&format!("{set}/precious")), "data");
}

#[test]
fn reference_detections_print_pycocotools_summary() {
    let root = support::data_dir().join("coco-eval");
    let gt = root.join("annotations/instances_val2014_100.json");
    let Some(gt) = support::need(gt) else { return };
    let place = Place::new();
    for (kind, ap, ap50) in [("bbox", "0.505", "0.697"), ("segm", "0.320", "0.562")] {
        let detections = root.join(format!("results/instances_val2014_fake{kind}100_results.json"));
        let (gt, detections) = (gt.display(), detections.display());
        let out = place.good(&format!("eval --gt {gt} --detections {detections}"));
        let lines: Vec<&str> = out.lines().filter(|l| l.contains("@[")).collect();
        assert_eq!(lines.len(), 12, "{out}");
        let line = |iou: &str, value: &str| {
            let slice = format!("@[ IoU={iou:<9} | area=   all | maxDets=100 ]");
            format!(" Average Precision  (AP) {slice} = {value}")
        };
        assert_eq!(lines[..2], [line("0.50:0.95", ap), line("0.50", ap50)], "{kind}");
    }
}

/// The tests of dali check the statistics and files of the set.
#[test]
fn synthetic_masks_do_not_overlap() {
    let place = Place::new();
    place.good("prep --synthetic shapes --count 200 --seed 3 --out set");
    let coco = place.json("set/annotations.json");
    let list = |key: &str| as_list(&coco[key]);
    assert_eq!(list("images").len(), 200);
    for image in list("images") {
        assert_eq!((&image["width"], &image["height"]), (&128.into(), &128.into()));
    }
    assert!(list("annotations").iter().all(|object| object["iscrowd"] == 0));
    check_masks(&Store::open(&place.join("set/store")).expect("the store"));
}

/// Checks that no pixel belongs to two objects, and that an object stored as runs, which is partly
/// hidden, is adjacent to the object that hides it.
fn check_masks(store: &Store) {
    for i in 0..store.len() {
        let record = store.image(i);
        let (h, w) = (record.height, record.width);
        let mut owner = vec![0usize; (h * w) as usize];
        let mut cut = Vec::new();
        for object in record.objects {
            // hotcoco's masks are column-major.
            let mask = match store.object(object).segmentation {
                Segmentation::Polygons(rings) => {
                    let ring: Vec<f64> = rings[0].iter().map(|v| f64::from(*v)).collect();
                    mask::fr_poly(&ring, h, w).expect("a polygon")
                }
                Segmentation::Runs(counts) => {
                    cut.push(object + 1);
                    hotcoco::Rle { h, w, counts: counts.to_vec() }
                }
            };
            for (inside, owner) in mask::decode(&mask).iter().zip(&mut owner) {
                if *inside != 0 {
                    assert_eq!(*owner, 0, "image {}: a pixel of two objects", record.image_id);
                    *owner = object + 1;
                }
            }
        }
        for object in cut {
            let against = |at: usize, step: usize| {
                let pair = [owner[at], owner.get(at + step).copied().unwrap_or(0)];
                pair.contains(&object) && pair.iter().all(|o| *o != 0) && pair[0] != pair[1]
            };
            let meets = (0..owner.len()).any(|at| against(at, 1) || against(at, h as usize));
            assert!(meets, "image {}: nothing hides object {}", record.image_id, object - 1);
        }
    }
}
