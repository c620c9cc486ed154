//! Tests with real COCO images: known counts, and every picture can be decoded.

use std::io::Write;
use std::path::{Path, PathBuf};

use dali::prep::{self, EmptyImages, PrepOptions, PrepReport};
use dali::store::Segmentation;
use dali::{PixelEncoding, Store};

use crate::fixture::objects;

/// A folder of recorded test data.
pub(crate) fn data(name: &str) -> Option<PathBuf> {
    shared("ONEGRAPH_DATA", &format!("data/{name}"))
}

/// A path in the folder `shared`; the environment variable `variable` may replace `shared` and the
/// path's first folder. If the path does not exist, prints a message and returns `None`.
pub(crate) fn shared(variable: &str, path: &str) -> Option<PathBuf> {
    let (folder, name) = path.split_once('/').unwrap();
    let default = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(folder);
    let found = std::env::var_os(variable).map_or(default, PathBuf::from).join(name);
    if found.exists() {
        return Some(found);
    }
    let why = format!("SKIPPED: no {}; set {variable}", found.display());
    // Written directly, as the test harness hides the output of `eprintln!` in tests that pass.
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{why}").unwrap();
    None
}

fn prep(
    coco: &Path,
    split: &str,
    out: &Path,
    alter: impl Fn(&mut PrepOptions),
) -> (PrepReport, Store) {
    let annotations = coco.join(format!("annotations/instances_{split}2017.json"));
    let mut options = PrepOptions::new(coco.join(format!("{split}2017")), annotations, out);
    alter(&mut options);
    let report = prep::run(&options, &mut |_| ()).unwrap();
    (report, Store::open(out).unwrap())
}

#[test]
fn coco_open_train_counts_and_pixels_match() {
    let Some(coco) = data("coco-open") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (report, store) = prep(&coco, "train", &dir.path().join("jpeg"), |_| ());
    let counts = (report.num_images, report.num_annotations, report.num_crowd);
    assert_eq!(counts, (70, 684, 8), "{report}");
    assert_eq!((report.num_dropped(), report.num_categories), (0, 80), "{report}");
    assert!(report.findings.is_empty(), "COCO's own are sound: {report}");
    let last = &store.header().categories[79];
    assert_eq!((last.name.as_str(), last.coco_id, last.label), ("toothbrush", 90, 80));
    store.verify_all().unwrap();

    let runs = |crowd| {
        let is_runs = |segmentation: &_| matches!(segmentation, Segmentation::Runs(_));
        objects(&store).filter(|o| o.crowd == crowd && is_runs(&o.segmentation)).count()
    };
    assert_eq!((runs(true), runs(false)), (8, 0));

    let (_, raw) = prep(&coco, "train", &dir.path().join("raw"), |o| o.pixels = PixelEncoding::Raw);
    let (mut from_jpeg, mut from_raw) = (Vec::new(), Vec::new());
    for idx in 0..store.len() {
        assert_eq!(raw.image(idx).encoding, PixelEncoding::Raw);
        store.decode_rgb(idx, &mut from_jpeg).unwrap();
        raw.decode_rgb(idx, &mut from_raw).unwrap();
        assert!(from_jpeg == from_raw, "image {}", store.image(idx).image_id);
    }
}

#[test]
fn coco_open_val_counts_and_empty_images_match() {
    let Some(coco) = data("coco-open") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (report, _) = prep(&coco, "val", &dir.path().join("keep"), |_| ());
    let counts = (report.num_images, report.num_annotations, report.num_crowd);
    assert_eq!(counts, (72, 604, 8), "{report}");
    assert_eq!((report.num_empty_images, report.num_dropped()), (2, 0), "{report}");

    let drop = |o: &mut PrepOptions| o.empty = EmptyImages::Drop;
    let (report, store) = prep(&coco, "val", &dir.path().join("drop"), drop);
    assert_eq!((report.num_images, report.num_dropped_empty_images), (70, 2));
    assert_eq!((store.len(), store.header().num_annotations), (70, 604));
}
