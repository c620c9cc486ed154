//! Prediction on typical user files: some broken, rotated, in subfolders, or with equal names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::common::{BAD_CONFIG, BAD_DATA, Place, as_count, as_list, as_number, assert_has};
use engine::predictor::Predictor;
use engine::runtime::Backend;
use serde_json::Value;

/// The library's example as a module; its `main` is used only by `cargo run --example`.
#[allow(dead_code)]
#[path = "../../../engine/examples/predict.rs"]
mod example;

const VAL: &str = "runs/data/micro/val-8x64-seed0/images";

/// A folder with a run that detects objects.
fn trained() -> Place {
    Place::trained("--set train.steps=40 --set model.detections.score_threshold=0.01")
}

/// Copies a validation image.
fn copy(place: &Place, image: usize, to: &str) {
    let from = format!("{VAL}/{image:012}.jpg");
    place.write(to, place.bytes(&from));
}

fn pictures(place: &Place, folder: &str) -> Vec<String> {
    place.names(folder).into_iter().filter(|name| name.ends_with(".png")).collect()
}

#[test]
fn unreadable_image_is_reported_and_others_are_predicted() {
    let place = trained();
    copy(&place, 1, "in/street.jpg");
    copy(&place, 2, "in/sub/deep/street.jpg");
    place.write("in/broken.jpg", "no picture");
    place.write("in/sub/clip.png", b"GIF89a\x01\0\x01\0");
    place.write("in/notes.txt", "");
    place.write("in/a\x1b[2J\n\u{202e}.jpg", "no picture");
    let said = place.prints("predict --run runs/micro --out in/out --min-score 0 in", &[]);
    let unsupported = "in/sub/clip.png is GIF; onegraph reads JPEG, PNG, BMP, TIFF and WebP";
    // A file name cannot send control sequences to the terminal.
    let escaped = r"skipped: in/a\u{1b}[2J\n\u{202e}.jpg is neither";
    assert_has(
        &said.err,
        &["skipped: in/broken.jpg is neither JPEG nor PNG", unsupported, escaped],
    );
    assert!(!said.err.contains('\x1b'), "{}", said.err);
    assert_has(&said.out, &["on 2 images (3 skipped)"]);
    let found = place.json("in/out/predictions.json");
    let found = as_list(&found);
    let files: BTreeSet<&str> = found.iter().filter_map(|f| f["file_name"].as_str()).collect();
    assert_eq!(files.into_iter().collect::<Vec<_>>(), ["in/street.jpg", "in/sub/deep/street.jpg"]);
    assert_eq!(pictures(&place, "in/out"), ["0000_street.png", "0001_street.png"]);

    let strict = "predict --strict --run runs/micro --out strict in/street.jpg in/broken.jpg";
    place.bad(strict, BAD_DATA, &["in/broken.jpg", "neither JPEG nor PNG"]);
    // A `predict` run that reads no image keeps the previous run's pictures; the next successful
    // run removes them.
    place.bad("predict --run runs/micro --out in/out in/broken.jpg", BAD_DATA, &["broken.jpg"]);
    assert_eq!(pictures(&place, "in/out").len(), 2);
    place.good("predict --run runs/micro --out in/out in/street.jpg");
    assert_eq!(pictures(&place, "in/out"), ["0000_street.png"]);

    let few = "predict --run runs/micro --out few --set model.detections.per_image=1 in/street.jpg";
    place.good(few);
    assert_eq!(place.json("few/predictions.json").as_array().map(Vec::len), Some(1));
}

/// The ids in the results by file name.
fn ids(place: &Place, folder: &str) -> BTreeMap<String, u64> {
    let found = place.json(&format!("{folder}/predictions.json"));
    let found = as_list(&found).iter();
    let text = |f: &Value| f["file_name"].as_str().expect("a name").to_string();
    found.map(|f| (text(f), as_count(&f["image_id"]))).collect()
}

#[test]
fn numeric_file_names_are_image_ids() {
    let place = trained();
    for (image, name) in [(1, "139.jpg"), (2, "285.jpg"), (3, "street.jfif")] {
        copy(&place, image, &format!("in/{name}"));
    }
    place.write("in/285.png", "no picture");
    let said = place.prints("predict --run runs/micro --out p --min-score 0 nosuch.jpg in", &[]);
    let expected = [("in/139.jpg", 139), ("in/285.jpg", 285), ("in/street.jfif", 286)];
    assert_eq!(ids(&place, "p"), expected.map(|(name, id)| (name.into(), id)).into());
    assert_has(
        &said.err,
        &["skipped: nosuch.jpg does not exist", "skipped: in/285.png is neither"],
    );
    let other = "image id 286 was assigned to in/street.jfif: its name is not a unique number";
    assert_has(&said.err, &[other]);
    let strict = "predict --strict --run runs/micro --out p nosuch.jpg in/139.jpg";
    place.bad(strict, BAD_CONFIG, &["nosuch.jpg does not exist"]);

    let set = "--set model.detections.score_threshold=0.2";
    place.prints(
        &format!("predict --run runs/micro --out p --min-score 0.1 {set} in"),
        &["at least 0.2 are kept, so --min-score 0.1 draws"],
    );
    for score in ["2", "nan", "-0.1"] {
        let said = place.run(&format!("predict --run runs/micro --out p --min-score={score} in"));
        assert_eq!((said.code, said.err.contains("between 0 and 1")), (2, true), "{}", said.err);
    }
}

/// A JPEG with an EXIF segment that has an orientation.
fn with_orientation(jpeg: &[u8], turn: u8) -> Vec<u8> {
    let mut exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([turn, 0, 0, 0, 0, 0, 0, 0]);
    let length = (exif.len() as u16 + 2).to_be_bytes();
    [&jpeg[..2], &[0xFF, 0xE1], &length, &exif, &jpeg[2..]].concat()
}

#[test]
fn exif_orientation_is_applied() {
    let place = trained();
    let jpeg = place.bytes(&format!("{VAL}/{:012}.jpg", 1));
    // Orientation 6: displayed rotated by 90 degrees clockwise.
    let turned = place.write("turned.jpg", with_orientation(&jpeg, 6));
    let mut rgb = vec![0; 64 * 64 * 3];
    dali::decode::decode_rgb_into(&jpeg, &mut rgb).expect("a JPEG");
    let stored = |row: usize, column: usize| &rgb[3 * (64 * row + column)..][..3];
    let shown = (0..64).flat_map(|y| (0..64).flat_map(move |x| stored(63 - x, y).to_vec()));
    let shown: Vec<u8> = shown.collect();
    let run = place.join("runs/micro");
    let mut predictor = Predictor::from_run(&run, &[], &Backend::Cpu).expect("a run");
    let of_file = predictor.predict_file(&turned).expect("a JPEG");
    assert!(!of_file.is_empty());
    assert_eq!(of_file, predictor.predict_rgb(64, 64, &shown).expect("pixels"));
    assert_ne!(of_file, predictor.predict_rgb(64, 64, &rgb).expect("pixels"));
}

#[test]
fn library_example_matches_predict_command() {
    let place = trained();
    let image = format!("{VAL}/{:012}.jpg", 3);
    let mut text = vec![];
    let run = place.join("runs/micro");
    let path = place.join(&image);
    example::predict(&run, &path, 0.0, &mut text).expect("an example that ends well");
    let text = String::from_utf8(text).expect("UTF-8");
    let mut best = vec![];
    example::predict(&run, &path, 1.0, &mut best).expect("an example that ends well");
    assert_eq!(best, b"0 objects of 4 classes\n");
    place.good(&format!("predict --run runs/micro --out p {image}"));
    let found = place.json("p/predictions.json");
    let found = as_list(&found);
    assert!(!found.is_empty());
    let mut lines = text.lines();
    assert_eq!(lines.next(), Some(format!("{} objects of 4 classes", found.len()).as_str()));
    for (line, object) in lines.zip(found) {
        let score = as_number(&object["score"]);
        assert!(line.contains(&format!(" {score:.2} at ")), "{line}\n{object}");
        let name = ["square", "triangle", "circle", "cross"];
        let id = as_count(&object["category_id"]) as usize;
        assert!(line.starts_with(name[id - 1]), "{line}\n{object}");
    }
    let none = Predictor::from_run(&place.join("none"), &[], &Backend::Cpu);
    assert!(none.is_err_and(|error| error.to_string().contains("none")));
    fs::remove_file(place.join("runs/micro/last_checkpoint")).expect("it is there");
    assert!(Predictor::from_run(&run, &[], &Backend::Cpu).is_err());
}
