//! A store is complete or rejected. `prep` replaces only stores, and only on request.

use std::path::Path;

use dali::Store;
use dali::prep::{PrepOptions, source_key};
use dali::store::{Classes, Column, Header, SourceChange, Stores, column};
use serde_json::{Value, json};

use crate::fixture::{Alter, Fixture, altered, assert_fails, assert_says, jpeg, objects};
use crate::keypoints;

/// Changes a file of the store by replacing it, since the files are read-only.
pub(crate) fn rewrite(path: &Path, alter: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    alter(&mut bytes);
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn edit_header(fixture: &Fixture, alter: impl Fn(&mut Value)) {
    rewrite(&fixture.stored("header.json"), |bytes| {
        let mut header = serde_json::from_slice(bytes).unwrap();
        alter(&mut header);
        *bytes = header.to_string().into_bytes();
    });
}

/// Edits the header and updates its seal.
pub(crate) fn reseal(fixture: &Fixture, alter: impl Fn(&mut Value)) {
    edit_header(fixture, |header| {
        alter(header);
        let sealed = serde_json::from_value::<Header>(header.clone()).unwrap().sealed().unwrap();
        *header = serde_json::to_value(sealed).unwrap();
    });
}

/// Updates length and checksum of a file in the header.
pub(crate) fn refresh(fixture: &Fixture, name: &str) {
    let bytes = std::fs::read(fixture.stored(name)).unwrap();
    reseal(fixture, |header| {
        header["files"][name] = json!({"bytes": bytes.len(), "crc32": crc32fast::hash(&bytes)});
    });
}

pub(crate) fn open_error(fixture: &Fixture) -> String {
    Store::open(&fixture.store_path()).unwrap_err().to_string()
}

#[test]
fn changed_byte_in_store_file_is_detected() {
    let index = ["images.bin", "names.bin"];
    for name in ["objects.bin", "parts.bin", "coords.bin", "keypoints.bin"].iter().chain(&index) {
        let fixture = keypoints::prepared();
        rewrite(&fixture.stored(name), |bytes| bytes[3] ^= 0x10);
        let faults = &[name, "checksum", "onegraph prep"];
        assert_says(&open_error(&fixture), faults);
        // Opening only the index must not read the objects.
        match index.contains(name) {
            true => assert_fails(Store::open_index(&fixture.store_path()), faults),
            false => {
                let store = Store::open_index(&fixture.store_path()).unwrap();
                assert_fails(store.verify_objects(), faults);
            }
        }
    }
    let fixture = Fixture::prepared();
    rewrite(&fixture.stored("pixels.bin"), |bytes| bytes[30] ^= 0x10);
    // Pixels are too large to be checked when a store is opened; each image is checked when it is
    // read.
    let faults = ["image 7 (a.jpg)", "checksum", "onegraph prep"];
    assert_fails(fixture.store().verify_all(), &faults);
    assert_fails(fixture.store().decode_rgb(0, &mut vec![]), &faults);
}

/// Flips every 37th bit, one at a time: a decoder would detect few of these errors.
#[test]
fn changed_pixel_bit_is_rejected_when_decoding() {
    let fixture = Fixture::prepared();
    let path = fixture.stored("pixels.bin");
    let sound = std::fs::read(&path).unwrap();
    for bit in (0..8 * sound.len()).step_by(37) {
        rewrite(&path, |bytes| {
            bytes.clone_from(&sound);
            bytes[bit / 8] ^= 1 << (bit % 8);
        });
        assert!(fixture.store().decode_rgb(0, &mut vec![]).is_err(), "bit {bit}");
    }
}

#[test]
fn changed_image_is_found_despite_equal_size_and_time() {
    let fixture = Fixture::prepared();
    let (images, store) = (fixture.images(), fixture.store());
    assert!(store.source_faults(&images).is_empty());
    let file = images.join("a.jpg");
    let time = std::fs::metadata(&file).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(&file).unwrap();
    // The last byte before the end marker belongs to the picture.
    let last = bytes.len() - 3;
    bytes[last] ^= 0x10;
    std::fs::write(&file, bytes).unwrap();
    std::fs::File::options().append(true).open(&file).unwrap().set_modified(time).unwrap();
    assert_eq!(store.changed_source(&images), None, "the file looks as it was");
    let faults = store.source_faults(&images);
    assert_eq!(faults.len(), 1);
    assert_says(&faults[0].to_string(), &["a.jpg", "different pixels", "--overwrite"]);
    std::fs::remove_file(&file).unwrap();
    assert_says(&store.source_faults(&images)[0].to_string(), &["a.jpg", "cannot be read"]);
}

#[test]
fn replaced_image_is_reported() {
    let fixture = Fixture::prepared();
    let again = || fixture.run_with(|_| ()).unwrap_err().to_string();
    assert_eq!(fixture.store().changed_source(&fixture.images()), None);
    assert_says(&again(), &["exists already", "same sources"]);
    fixture.write("a.jpg", &jpeg(&vec![7; 600], 20, 10, jpeg_encoder::ColorType::Rgb));
    let changed = |is: SourceChange<'_>| {
        assert_eq!(fixture.store().changed_source(&fixture.images()), Some(is));
    };
    changed(SourceChange::Replaced("a.jpg"));
    assert_says(&again(), &["exists already", "--overwrite"]);
    fixture.prep_again();
    assert_says(&again(), &["same sources"]);
    rewrite(&fixture.stored("names.bin"), |bytes| bytes[0] ^= 1);
    assert_says(&again(), &["exists already", "--overwrite"]);
    rewrite(&fixture.stored("names.bin"), |bytes| bytes[0] ^= 1);
    std::fs::remove_file(fixture.images().join("a.jpg")).unwrap();
    changed(SourceChange::Removed("a.jpg"));
    assert_eq!(SourceChange::Removed("a.jpg").to_string(), "a.jpg was removed");
    std::fs::remove_dir_all(fixture.images()).unwrap();
    assert_eq!(fixture.store().changed_source(&fixture.images()), None, "a store needs no files");
}

#[test]
fn annotation_file_is_identified_by_content() {
    let fixture = Fixture::prepared();
    let (path, options) = (fixture.annotations_path(), fixture.options());
    let key = || source_key(&options).unwrap();
    let set_time = |time| {
        std::fs::File::options().append(true).open(&path).unwrap().set_modified(time).unwrap();
    };
    let (before, time) = (key(), std::fs::metadata(&path).unwrap().modified().unwrap());
    set_time(time + std::time::Duration::from_secs(9));
    assert_eq!(key(), before, "the same, touched");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"category_id\":90", "\"category_id\":3 ")).unwrap();
    set_time(time);
    assert_ne!(key(), before, "other labels, of the same size and time");
    assert_fails(fixture.run_with(|_| ()), &["exists already", "--overwrite"]);

    let pipe = fixture.dir.path().join("pipe");
    std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    let error = source_key(&PrepOptions { annotations: pipe, ..options.clone() }).unwrap_err();
    assert_says(&error.to_string(), &["pipe", "not a regular file"]);
}

/// Truncates a file of a store in place.
fn cut(path: &Path, len: u64) {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_len(len).unwrap();
}

#[test]
fn pixels_truncated_while_open_are_reported() {
    let fixture = Fixture::prepared();
    let store = fixture.store();
    let path = fixture.stored("pixels.bin");
    cut(&path, 9);
    assert_fails(store.decode_rgb(0, &mut vec![]), &["pixels.bin", "truncated from", "to 9 bytes"]);
}

/// The test runs itself as a child process, as the signal ends the process.
#[test]
fn bus_error_prints_error_and_exits_with_given_code() {
    const NAME: &str = "store::bus_error_prints_error_and_exits_with_given_code";
    if std::env::var_os("ONEGRAPH_TEST_CUT").is_some() {
        dali::store::exit_on_bus_errors(4).unwrap();
        let fixture = Fixture::prepared();
        let store = fixture.store();
        let path = fixture.stored("objects.bin");
        cut(&path, 0);
        panic!("read past the end: {:?}", store.object(0).annotation_id);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env("ONEGRAPH_TEST_CUT", "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{text}");
    assert_says(&text, &["error:", "truncated", "onegraph prep"]);
}

#[test]
fn truncated_or_missing_store_file_is_rejected() {
    let names = ["images", "objects", "parts", "coords", "names", "pixels", "sources", "keypoints"];
    for name in names.map(|name| format!("{name}.bin")) {
        let (fixture, name) = (keypoints::prepared(), name.as_str());
        let path = fixture.stored(name);
        rewrite(&path, |bytes| bytes.truncate(bytes.len() - 1));
        assert_says(&open_error(&fixture), &[name, "bytes long"]);
        std::fs::remove_file(&path).unwrap();
        assert_says(&open_error(&fixture), &[name, "is missing", "onegraph prep"]);
    }
    for name in ["runs.bin", "header.json"] {
        let fixture = Fixture::prepared();
        std::fs::remove_file(fixture.stored(name)).unwrap();
        assert_says(&open_error(&fixture), &[name, "is missing", "onegraph prep"]);
    }
    assert_fails(Store::open(Path::new("/nowhere")), &["/nowhere"]);
}

#[test]
fn inconsistent_header_is_rejected() {
    let version = ["header.json", "version 9", "reads version 2", "onegraph prep"];
    let cases: [(Alter, &[&str]); 9] = [
        (|header| header["version"] = 9.into(), &version),
        (|header| header["capacities"]["coords"] = 2.into(), &["header.json", "capacities"]),
        (|header| header["num_images"] = 2.into(), &["header.json", "counts"]),
        (|header| header["categories"][0]["label"] = 5.into(), &["labels"]),
        (
            |header| drop(header["categories"].as_array_mut().unwrap().pop()),
            &["objects.bin", "annotation 100", "not a category"],
        ),
        (|header| header["num_without_mask"] = 1.into(), &["counts"]),
        (|header| header["categories"] = Value::Array(vec![]), &["no category"]),
        (
            |header| header["categories"][0]["coco_id"] = 90.into(),
            &["header.json", "two categories", "id 90"],
        ),
        (
            |header| header["categories"][0]["name"] = "zebra".into(),
            &["header.json", "two categories", "zebra"],
        ),
    ];
    for (alter, says) in cases {
        let fixture = Fixture::prepared();
        reseal(&fixture, alter);
        assert_says(&open_error(&fixture), says);
    }
}

/// Changes one value or flips one bit at a time: a header that can still be read must be unchanged.
#[test]
fn modified_header_is_rejected() {
    let edits: [Alter; 6] = [
        |header| header["categories"][0]["coco_id"] = 4.into(),
        |header| header["categories"][0]["name"] = "bee".into(),
        |header| header["source"] = "0".into(),
        |header| header["pixels"] = "raw".into(),
        |header| drop(header.as_object_mut().unwrap().remove("seal")),
        |header| drop(header.as_object_mut().unwrap().remove("source")),
    ];
    for edit in edits {
        let fixture = Fixture::prepared();
        edit_header(&fixture, edit);
        assert_says(&open_error(&fixture), &["changed after it was written", "prep"]);
    }

    let fixture = Fixture::prepared();
    let (path, sound) = (fixture.stored("header.json"), fixture.store().header().clone());
    let bytes = std::fs::read(&path).unwrap();
    for bit in (0..8 * bytes.len()).step_by(3) {
        rewrite(&path, |changed| {
            changed.clone_from(&bytes);
            changed[bit / 8] ^= 1 << (bit % 8);
        });
        let opened = Store::open(&fixture.store_path());
        assert!(opened.is_err() || opened.is_ok_and(|s| *s.header() == sound), "bit {bit}");
    }
}

/// The checksums are valid, so that only the check of the records can detect the error.
#[test]
fn out_of_range_index_is_rejected() {
    let cases: [(&str, usize, &str); 7] = [
        ("images.bin", 8, "pixels.bin"),
        ("images.bin", 24, "names.bin"),
        ("images.bin", 32, "do not follow"),
        ("images.bin", 40, "outside objects.bin"),
        ("images.bin", 56, "encoding"),
        ("objects.bin", 28, "kind"),
        ("parts.bin", 0, "outside coords.bin"),
    ];
    for (name, at, expected) in cases {
        let fixture = Fixture::prepared();
        rewrite(&fixture.stored(name), |bytes| bytes[at] = 0x70);
        refresh(&fixture, name);
        assert_says(&open_error(&fixture), &[expected]);
    }
}

#[test]
fn has_extent_is_read_from_index_or_computed() {
    let mut fixture = Fixture::new();
    let index = |fixture: &Fixture| Store::open_index(&fixture.store_path()).unwrap().has_extent(0);
    for (side, has_extent) in [(1.0, false), (2.0, true)] {
        fixture.json["annotations"][0]["bbox"] = json!([3.0, 2.0, 9.0, side]);
        fixture.prep_again();
        assert_eq!(index(&fixture).unwrap(), has_extent, "{side}");
        // Older versions wrote 0.
        rewrite(&fixture.stored("images.bin"), |bytes| bytes[58] = 0);
        refresh(&fixture, "images.bin");
        assert_eq!(fixture.store().has_extent(0).unwrap(), has_extent, "{side}");
        assert_fails(index(&fixture), &["older version", "onegraph prep"]);
    }
}

/// The store has only the columns that an annotation has; an object without the list has NaNs.
#[test]
fn column_is_stored_for_objects_that_have_it() {
    let fixture = Fixture::of([altered(900, json!({"tips": [1.5, -2.0]}))]);
    let of = |name: &str, width| Column { name: name.into(), width };
    let asked = vec![of("legs", 1), of("tips", 2)];
    fixture.prep_with(|options| options.columns.clone_from(&asked)).unwrap();
    let store = fixture.store();
    assert_eq!(store.header().columns, asked[1..]);
    for object in objects(&store) {
        let tips = column(&asked[1..], "tips", object.columns).unwrap();
        let is_stated = object.annotation_id == 900;
        assert!(if is_stated { tips == [1.5, -2.0] } else { tips.iter().all(|v| v.is_nan()) });
        assert_eq!(column(&asked[1..], "legs", object.columns), None);
    }
    let joined = Stores::new(vec![store, Fixture::prepared().store()], &Classes::default());
    assert_fails(joined, &["columns differ"]);
    rewrite(&fixture.stored("columns.bin"), |bytes| bytes[0] ^= 1);
    assert_says(&open_error(&fixture), &["columns.bin", "checksum"]);
    std::fs::remove_file(fixture.stored("columns.bin")).unwrap();
    assert_says(&open_error(&fixture), &["columns.bin", "missing"]);
    fixture.prep_again();
    assert!(fixture.store().header().columns.is_empty() && !fixture.stored("columns.bin").exists());
}

/// A store may be replaced no matter which of its files are missing or damaged.
#[test]
fn damaged_store_can_be_overwritten() {
    let replace = |store: &Path, from: &str, to: &str| {
        rewrite(&store.join("header.json"), |bytes| {
            *bytes = String::from_utf8_lossy(bytes).replace(from, to).into_bytes();
        });
    };
    let damages: [&dyn Fn(&Path); 6] = [
        &|store| std::fs::remove_file(store.join("runs.bin")).unwrap(),
        &|store| std::fs::remove_file(store.join("header.json")).unwrap(),
        &|store| rewrite(&store.join("header.json"), |bytes| bytes.truncate(99)),
        &|store| rewrite(&store.join("header.json"), |bytes| bytes.fill(0)),
        &|store| replace(store, "\"files\"", "\"fileS\""),
        &|store| replace(store, "\"version\": 2", "\"version\": 1"),
    ];
    for damage in damages {
        let fixture = keypoints::prepared();
        damage(&fixture.store_path());
        open_error(&fixture);
        fixture.prep_again();
        fixture.store().verify_all().unwrap();
        let names = std::fs::read_dir(fixture.dir.path()).unwrap();
        assert_eq!(names.count(), 3, "images, annotations and the store");
    }
}

#[test]
fn overwrite_replaces_only_stores_and_only_if_asked() {
    let fixture = Fixture::prepared();
    assert_fails(
        fixture.prep_with(|options| options.pixels = dali::PixelEncoding::Raw),
        &["exists already", "--overwrite"],
    );
    let held = fixture.store();
    fixture.prep_again();
    // A reader of the old store keeps its mapping.
    held.verify_all().unwrap();
    assert_eq!(held.file_name(0), "a.jpg");
    assert_eq!(fixture.store().len(), 1);

    let other = fixture.dir.path().join("thesis");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("chapter1"), "dear").unwrap();
    let replacing = fixture.prep_with(|options| {
        options.out = other.clone();
        options.overwrite = true;
    });
    assert_fails(replacing, &["thesis", "not overwritten"]);
    assert_eq!(std::fs::read(other.join("chapter1")).unwrap(), b"dear");

    let left = std::fs::read_dir(fixture.dir.path()).unwrap();
    let mut names = left.map(|entry| entry.unwrap().file_name());
    assert!(!names.any(|name| name.to_string_lossy().contains(".onegraph-")));
}
