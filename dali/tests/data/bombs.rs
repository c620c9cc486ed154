//! Hostile input: files that declare more than they contain, links out of the folder, and extreme
//! numbers.

use std::os::unix::fs::symlink;

use dali::decode::{self, DecodeFault, MAX_PIXELS};
use jpeg_encoder::ColorType;
use rustix::fs::{CWD, Mode, mkfifoat};
use serde_json::{Value, json};

use crate::fixture::{Fixture, gradient, jpeg};

/// A PNG of a few bytes that declares this size.
fn png_of(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut chunk = |kind: &[u8; 4], data: &[u8]| {
        bytes.extend((data.len() as u32).to_be_bytes());
        let body = [kind.as_slice(), data].concat();
        bytes.extend(&body);
        bytes.extend(crc32fast::hash(&body).to_be_bytes());
    };
    let sides = [width.to_be_bytes(), height.to_be_bytes()].concat();
    chunk(b"IHDR", &[sides.as_slice(), &[8, 2, 0, 0, 0]].concat());
    chunk(b"IDAT", &[0x78, 0x9C, 0x63, 0x00, 0x00, 0x00, 0x01, 0x00, 0x01]);
    chunk(b"IEND", &[]);
    bytes
}

/// A JPEG whose frame header declares this size.
fn jpeg_of(width: u16, height: u16) -> Vec<u8> {
    let mut bytes = jpeg(&gradient(20, 10), 20, 10, ColorType::Rgb);
    let frame = bytes.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
    bytes[frame + 5..frame + 7].copy_from_slice(&height.to_be_bytes());
    bytes[frame + 7..frame + 9].copy_from_slice(&width.to_be_bytes());
    bytes
}

#[test]
fn image_size_is_checked_before_allocation() {
    for bytes in [png_of(100_000, 100_000), png_of(u32::MAX >> 1, 9), jpeg_of(65_535, 65_535)] {
        let fault = decode::probe(&bytes).unwrap_err();
        assert!(matches!(fault, DecodeFault::Pixels { max: MAX_PIXELS, .. }), "{fault}");
    }
    assert!(decode::probe(&jpeg_of(0, 10)).is_err());
    assert!(decode::probe_within(&jpeg_of(20, 10), 200).is_ok());
    assert!(decode::probe_within(&jpeg_of(20, 10), 199).is_err());

    let mut fixture = Fixture::new();
    fixture.json["images"][0]["width"] = 100_000.into();
    fixture.json["images"][0]["height"] = 100_000.into();
    fixture.write("a.jpg", &png_of(100_000, 100_000));
    fixture.assert_refused(&[
        "a.jpg",
        "100000x100000",
        &MAX_PIXELS.to_string(),
        "max_image_pixels",
    ]);
}

#[test]
fn file_names_cannot_leave_images_folder() {
    for name in ["/etc/passwd", "../secret.jpg", "a/../../secret.jpg", ""] {
        let mut fixture = Fixture::new();
        fixture.json["images"][0]["file_name"] = name.into();
        std::fs::write(fixture.dir.path().join("secret.jpg"), jpeg_of(20, 10)).unwrap();
        fixture.assert_refused(&["images[0] (id 7)", "file_name", "inside"]);
    }
    let mut fixture = Fixture::new();
    std::fs::create_dir(fixture.images().join("sub")).unwrap();
    fixture.write_jpeg("sub/a.jpg", 20, 10);
    fixture.json["images"][0]["file_name"] = "./sub/a.jpg".into();
    fixture.prep().unwrap();
}

#[test]
fn special_files_are_not_read() {
    let refused = |make: &dyn Fn(&std::path::Path)| {
        let mut fixture = Fixture::new();
        fixture.json["images"][0]["file_name"] = "odd.jpg".into();
        make(&fixture.images().join("odd.jpg"));
        fixture.assert_refused(&["odd.jpg", "not a regular file"]);
    };
    refused(&|path| mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR).unwrap());
    refused(&|path| symlink("/dev/zero", path).unwrap());
    refused(&|path| std::fs::create_dir(path).unwrap());
    // A sparse file with a length of 16 TiB.
    let mut fixture = Fixture::new();
    fixture.json["images"][0]["file_name"] = "odd.jpg".into();
    let file = std::fs::File::create(fixture.images().join("odd.jpg")).unwrap();
    if file.set_len(1 << 43).is_ok() {
        fixture.assert_refused(&["odd.jpg", "more than any image"]);
    }
}

/// Each number in the file is replaced by each extreme value: the result must be a store or a
/// one-line error.
#[test]
fn extreme_numbers_are_stored_or_rejected() {
    let values = [
        json!(-1),
        json!(u64::from(u32::MAX)),
        json!((1_u64 << 32) + 10),
        json!(u64::MAX),
        json!(1e38),
        json!(-1e300),
    ];
    let mut fixture = Fixture::of([json!({
        "id": 101, "image_id": 7, "category_id": 3, "bbox": [0, 0, 20, 10], "area": 4,
        "segmentation": {"size": [10, 20], "counts": [0, 4, 190]},
    })]);
    let mut places = Vec::new();
    numbers(&fixture.json, String::new(), &mut places);
    assert!(places.len() > 30, "{places:?}");
    let sound = fixture.json.clone();
    for place in &places {
        for value in &values {
            fixture.json = sound.clone();
            *fixture.json.pointer_mut(place).unwrap() = value.clone();
            match fixture.prep_with(|options| options.overwrite = true) {
                Ok(_) => {
                    let store = fixture.store();
                    store.verify_all().unwrap();
                    for object in store.image(0).objects.map(|obj| store.object(obj)) {
                        let values = object.bbox_xywh.iter().chain([&object.area]);
                        assert!(values.copied().all(f32::is_finite), "{place} = {value}");
                    }
                }
                Err(error) => {
                    let error = error.to_string();
                    assert!(error.contains("annotations.json") || error.contains("image "));
                }
            }
        }
    }
}

fn numbers(value: &Value, at: String, found: &mut Vec<String>) {
    match value {
        Value::Number(_) => found.push(at),
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(i, item)| numbers(item, format!("{at}/{i}"), found))
        }
        Value::Object(map) => {
            map.iter().for_each(|(key, item)| numbers(item, format!("{at}/{key}"), found))
        }
        _ => {}
    }
}
