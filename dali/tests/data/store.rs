//! A store is whole or refused; it replaces only stores, and only when asked.

use std::path::Path;

use dali::Store;

use crate::fixture::{Fixture, assert_says};

fn prepared() -> Fixture {
    let fixture = Fixture::new();
    fixture.prep().unwrap();
    fixture
}

/// Replaces a file of the store; its own are read-only.
fn rewrite(path: &Path, alter: impl Fn(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    alter(&mut bytes);
    std::fs::remove_file(path).unwrap();
    std::fs::write(path, bytes).unwrap();
}

fn open_error(fixture: &Fixture) -> String {
    Store::open(&fixture.store_path()).unwrap_err().to_string()
}

#[test]
fn a_changed_byte_in_any_file_is_found() {
    for name in ["images.bin", "objects.bin", "parts.bin", "coords.bin", "names.bin"] {
        let fixture = prepared();
        rewrite(&fixture.store_path().join(name), |bytes| bytes[3] ^= 0x10);
        assert_says(&open_error(&fixture), &[name, "checksum", "onegraph prep"]);
    }
    let fixture = prepared();
    rewrite(&fixture.store_path().join("pixels.bin"), |bytes| bytes[30] ^= 0x10);
    // Pixels are too many to be read at each start.
    let store = fixture.store();
    assert_says(&store.verify_all().unwrap_err().to_string(), &["pixels.bin", "checksum"]);
}

#[test]
fn a_cut_or_missing_file_is_found() {
    for name in ["images.bin", "objects.bin", "parts.bin", "coords.bin", "names.bin", "pixels.bin"]
    {
        let fixture = prepared();
        let path = fixture.store_path().join(name);
        rewrite(&path, |bytes| bytes.truncate(bytes.len() - 1));
        assert_says(&open_error(&fixture), &[name, "bytes long"]);
        std::fs::remove_file(&path).unwrap();
        assert_says(&open_error(&fixture), &[name]);
    }
    assert_says(&Store::open(Path::new("/nowhere")).unwrap_err().to_string(), &["/nowhere"]);
}

#[test]
fn a_header_that_lies_is_found() {
    let set = |alter: &dyn Fn(&mut serde_json::Value)| {
        let fixture = prepared();
        rewrite(&fixture.store_path().join("header.json"), |bytes| {
            let mut header = serde_json::from_slice(bytes).unwrap();
            alter(&mut header);
            *bytes = header.to_string().into_bytes();
        });
        open_error(&fixture)
    };
    let message = set(&|header| header["version"] = 9.into());
    assert_says(&message, &["header.json", "version 9", "reads 1", "onegraph prep"]);
    let message = set(&|header| header["capacities"]["coords"] = 2.into());
    assert_says(&message, &["header.json", "capacities"]);
    assert_says(&set(&|header| header["num_images"] = 2.into()), &["header.json", "counts"]);
    assert_says(&set(&|header| header["categories"][0]["label"] = 5.into()), &["labels"]);
    let message = set(&|header| {
        header["categories"].as_array_mut().unwrap().pop();
    });
    assert_says(&message, &["objects.bin", "annotation 100", "no category"]);
}

/// With true checksums, so that only the check of the records can find them.
#[test]
fn indices_that_lead_astray_are_found() {
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
        let fixture = prepared();
        let path = fixture.store_path().join(name);
        rewrite(&path, |bytes| bytes[at] = 0x70);
        let crc32 = crc32fast::hash(&std::fs::read(&path).unwrap());
        rewrite(&fixture.store_path().join("header.json"), |bytes| {
            let mut header: serde_json::Value = serde_json::from_slice(bytes).unwrap();
            header["files"][name]["crc32"] = crc32.into();
            *bytes = header.to_string().into_bytes();
        });
        assert_says(&open_error(&fixture), &[expected]);
    }
}

#[test]
fn only_stores_are_replaced_and_only_when_asked() {
    let fixture = prepared();
    let error = fixture.prep().unwrap_err().to_string();
    assert_says(&error, &["exists already", "--overwrite"]);
    let held = fixture.store();
    fixture.prep_with(|options| options.overwrite = true).unwrap();
    // A reader of the old store keeps its mapping.
    held.verify_all().unwrap();
    assert_eq!(held.file_name(0), "a.jpg");
    assert_eq!(fixture.store().len(), 1);

    let other = fixture.dir.path().join("thesis");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("chapter1"), "dear").unwrap();
    let error = fixture
        .prep_with(|options| {
            options.out = other.clone();
            options.overwrite = true;
        })
        .unwrap_err();
    assert_says(&error.to_string(), &["thesis", "leaves it alone"]);
    assert_eq!(std::fs::read(other.join("chapter1")).unwrap(), b"dear");

    let left = std::fs::read_dir(fixture.dir.path()).unwrap();
    let stray = |entry: &std::fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().into_owned();
        name.contains(".tmp-") || name.contains(".old-")
    };
    assert!(!left.map(Result::unwrap).any(|entry| stray(&entry)));
}
