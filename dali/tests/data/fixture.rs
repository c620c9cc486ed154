//! A small data set on disk, which tests modify.

use std::path::PathBuf;

use dali::prep::{self, PrepOptions, PrepReport};
use dali::store::{ObjectView, Segmentation};
use dali::{DaliError, Store};
use hotcoco::types::Rle;
use jpeg_encoder::{ColorType, Encoder};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Changes a JSON file.
pub(crate) type Alter = fn(&mut Value);

pub(crate) struct Fixture {
    pub(crate) dir: TempDir,
    pub(crate) json: Value,
}

impl Fixture {
    /// One 20x10 JPEG (id 7) with a square polygon, category ids 3 and 90.
    pub(crate) fn new() -> Fixture {
        let fixture = Fixture {
            dir: tempfile::tempdir().unwrap(),
            json: json!({
                "images": [{"id": 7, "file_name": "a.jpg", "width": 20, "height": 10}],
                "annotations": [annotation(100, 7, 90)],
                "categories": [{"id": 90, "name": "zebra"}, {"id": 3, "name": "ant"}],
            }),
        };
        std::fs::create_dir(fixture.images()).unwrap();
        fixture.write_jpeg("a.jpg", 20, 10);
        fixture
    }

    /// The data set of [`Self::new`], with its store.
    pub(crate) fn prepared() -> Fixture {
        let fixture = Fixture::new();
        fixture.prep().unwrap();
        fixture
    }

    /// The data set of [`Self::new`], with additional annotations.
    pub(crate) fn of(annotations: impl IntoIterator<Item = Value>) -> Fixture {
        let mut fixture = Fixture::new();
        annotations.into_iter().for_each(|annotation| fixture.add_annotation(annotation));
        fixture
    }

    pub(crate) fn images(&self) -> PathBuf {
        self.dir.path().join("images")
    }

    pub(crate) fn annotations_path(&self) -> PathBuf {
        self.dir.path().join("annotations.json")
    }

    pub(crate) fn store_path(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// Path of a file in the store.
    pub(crate) fn stored(&self, name: &str) -> PathBuf {
        self.store_path().join(name)
    }

    pub(crate) fn options(&self) -> PrepOptions {
        PrepOptions::new(self.images(), self.annotations_path(), self.store_path())
    }

    pub(crate) fn add_annotation(&mut self, annotation: Value) {
        self.json["annotations"].as_array_mut().unwrap().push(annotation);
    }

    pub(crate) fn add_image(&mut self, id: u64, file_name: &str, width: u16, height: u16) {
        let image = json!({"id": id, "file_name": file_name, "width": width, "height": height});
        self.json["images"].as_array_mut().unwrap().push(image);
    }

    /// Adds an image to the JSON, and creates its file.
    pub(crate) fn add_picture(&mut self, id: u64, name: &str, width: u16, height: u16) {
        self.add_image(id, name, width, height);
        self.write_jpeg(name, width, height);
    }

    pub(crate) fn write_jpeg(&self, name: &str, width: u16, height: u16) {
        self.write(name, &jpeg(&gradient(width, height), width, height, ColorType::Rgb));
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.images().join(name), bytes).unwrap();
    }

    /// Writes the JSON and runs prep with modified default options.
    pub(crate) fn prep_with(
        &self,
        alter: impl Fn(&mut PrepOptions),
    ) -> Result<PrepReport, DaliError> {
        std::fs::write(self.annotations_path(), self.json.to_string()).unwrap();
        self.run_with(alter)
    }

    /// Runs prep on the existing annotation file, with modified default options.
    pub(crate) fn run_with(
        &self,
        alter: impl Fn(&mut PrepOptions),
    ) -> Result<PrepReport, DaliError> {
        let mut options = self.options();
        alter(&mut options);
        prep::run(&options, &mut |_| ())
    }

    pub(crate) fn prep(&self) -> Result<PrepReport, DaliError> {
        self.prep_with(|_| ())
    }

    /// Runs prep, and opens the store.
    pub(crate) fn made(&self) -> (PrepReport, Store) {
        (self.prep().unwrap(), self.store())
    }

    /// Runs prep again, and replaces the store.
    pub(crate) fn prep_again(&self) -> PrepReport {
        self.prep_with(|options| options.overwrite = true).unwrap()
    }

    /// Asserts that prep fails with a message containing these parts.
    pub(crate) fn assert_refused(&self, parts: &[&str]) {
        assert_says(&self.prep_error(), parts);
    }

    pub(crate) fn store(&self) -> Store {
        Store::open(&self.store_path()).unwrap()
    }

    /// The message of prep's error; asserts that no store was created.
    pub(crate) fn prep_error(&self) -> String {
        let error = self.prep().unwrap_err().to_string();
        let left: Vec<_> = std::fs::read_dir(self.dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .filter(|name| name.to_string_lossy().starts_with("store"))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        error
    }
}

/// A 4x4 square at (2, 1), as a polygon.
pub(crate) fn annotation(id: u64, image_id: u64, category_id: u64) -> Value {
    json!({
        "id": id, "image_id": image_id, "category_id": category_id, "iscrowd": 0,
        "bbox": [2.0, 1.0, 4.0, 4.0], "area": 16.0,
        "segmentation": [[2.0, 1.0, 6.0, 1.0, 6.0, 5.0, 2.0, 5.0]],
    })
}

/// [`annotation`] of an ant in image 7, with the given fields replaced; null fields are removed.
pub(crate) fn altered(id: u64, fields: Value) -> Value {
    let mut value = annotation(id, 7, 3);
    let object = value.as_object_mut().unwrap();
    object.extend(fields.as_object().unwrap().clone());
    object.retain(|_, field| !field.is_null());
    value
}

/// All objects of a store.
pub(crate) fn objects(store: &Store) -> impl Iterator<Item = ObjectView<'_>> {
    (0..store.header().num_annotations).map(|obj| store.object(obj))
}

/// The pixels of a stored mask.
pub(crate) fn rle_of(segmentation: &Segmentation<'_>, height: u32, width: u32) -> Rle {
    match segmentation {
        Segmentation::Polygons(rings) => {
            let wide = |ring: &&[f32]| ring.iter().map(|&value| f64::from(value)).collect();
            let rings: Vec<Vec<f64>> = rings.iter().map(wide).collect();
            hotcoco::mask::fr_polys(&rings, height, width).unwrap()
        }
        Segmentation::Runs(runs) => Rle { h: height, w: width, counts: runs.to_vec() },
    }
}

/// A smooth RGB gradient, which JPEG preserves closely.
pub(crate) fn gradient(width: u16, height: u16) -> Vec<u8> {
    let pixel = |x: u16, y: u16| [(40 + 5 * x) as u8, (90 + 6 * y) as u8, 120];
    (0..height).flat_map(|y| (0..width).flat_map(move |x| pixel(x, y))).collect()
}

pub(crate) fn jpeg(values: &[u8], width: u16, height: u16, colour: ColorType) -> Vec<u8> {
    let mut bytes = Vec::new();
    Encoder::new(&mut bytes, 95).encode(values, width, height, colour).unwrap();
    bytes
}

pub(crate) fn png(picture: image::DynamicImage) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    picture.write_to(&mut bytes, image::ImageFormat::Png).unwrap();
    bytes.into_inner()
}

/// Asserts that the error message contains these parts.
pub(crate) fn assert_fails<T>(result: Result<T, impl std::fmt::Display>, parts: &[&str]) {
    let Err(error) = result else { panic!("no error, so nothing of {parts:?}") };
    assert_says(&error.to_string(), parts);
}

pub(crate) fn assert_says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "`{part}` not in: {message}");
    }
}
