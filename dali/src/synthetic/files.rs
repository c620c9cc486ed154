//! The files of a synthetic data set: JPEG images and a COCO annotation file.

use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use hotcoco::mask;
use hotcoco::types::Segmentation;
use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::scene::{Scene, Visible};
use super::shapes::{CLASS_NAMES, KEYPOINT_NAMES, NUM_KEYPOINTS, SKELETON};
use super::{ANNOTATIONS, IMAGES, STORE};
use crate::error::DaliError;
use crate::store;

/// High quality keeps the edges of small shapes sharp.
const JPEG_QUALITY: u8 = 95;

/// Value in the annotation file that distinguishes a generated set from a user's data.
const DESCRIPTION: &str = "onegraph synthetic shapes";

/// A written image and its annotations.
pub(super) struct ImageFile {
    entry: Image,
    objects: Vec<Visible>,
}

/// The annotation file under construction.
#[derive(Serialize)]
pub(super) struct Annotations {
    info: Value,
    images: Vec<Image>,
    annotations: Vec<Annotation>,
    categories: Vec<Value>,
}

#[derive(Serialize)]
struct Image {
    id: u64,
    file_name: String,
    width: u32,
    height: u32,
}

#[derive(Serialize)]
struct Annotation {
    id: u64,
    image_id: u64,
    category_id: u64,
    bbox: [f64; 4],
    area: u64,
    iscrowd: u8,
    segmentation: Segmentation,
    keypoints: Vec<f64>,
    num_keypoints: usize,
}

impl Annotations {
    /// An annotation file without entries, with a description of the generator.
    pub(super) fn new(drawing: String) -> Annotations {
        let category = |(id, name): (u64, &&str)| {
            json!({
                "id": id, "name": name, "supercategory": "shape",
                "keypoints": KEYPOINT_NAMES, "skeleton": SKELETON,
            })
        };
        Annotations {
            info: json!({"description": DESCRIPTION, "version": "1", "drawing": drawing}),
            images: Vec::new(),
            annotations: Vec::new(),
            categories: (1..).zip(&CLASS_NAMES).map(category).collect(),
        }
    }
}

/// Writes image `idx` as `<id>.jpg`; ids begin at 1.
pub(super) fn write_image(dir: &Path, idx: usize, scene: Scene) -> Result<ImageFile, DaliError> {
    let id = idx as u64 + 1;
    let file_name = format!("{id:012}.jpg");
    let path = dir.join(&file_name);
    let mut jpeg = Vec::new();
    let mut encoder = Encoder::new(&mut jpeg, JPEG_QUALITY);
    // No chroma subsampling: colours are random, so an edge may be visible in chroma only.
    encoder.set_sampling_factor(SamplingFactor::F_1_1);
    encoder
        .encode(&scene.rgb, scene.width as u16, scene.height as u16, ColorType::Rgb)
        .map_err(|error| DaliError::io("encode", &path)(std::io::Error::other(error)))?;
    std::fs::write(&path, &jpeg).map_err(DaliError::io("write", &path))?;
    let entry = Image { id, file_name, width: scene.width, height: scene.height };
    Ok(ImageFile { entry, objects: scene.objects })
}

impl Annotations {
    pub(super) fn num_images(&self) -> usize {
        self.images.len()
    }

    /// Appends an image with its objects; annotation ids start at 1, in order.
    pub(super) fn push(&mut self, image: ImageFile) {
        for object in image.objects {
            let id = self.annotations.len() as u64 + 1;
            let area = mask::area(&object.mask);
            let bbox = mask::to_bbox(&object.mask);
            let size = [object.mask.h, object.mask.w];
            let segmentation = match object.outline {
                Some(outline) => Segmentation::Polygon(vec![outline]),
                // Masks alternate between COCO's two RLE forms, so that each set contains both.
                None if id.is_multiple_of(2) => {
                    Segmentation::UncompressedRle { size, counts: object.mask.counts }
                }
                None => {
                    let counts = mask::rle_to_string(&object.mask);
                    Segmentation::CompressedRle { size, counts }
                }
            };
            self.annotations.push(Annotation {
                id,
                image_id: image.entry.id,
                category_id: object.class_idx as u64 + 1,
                bbox,
                area,
                iscrowd: 0,
                segmentation,
                keypoints: object.keypoints.concat(),
                num_keypoints: NUM_KEYPOINTS,
            });
        }
        self.images.push(image.entry);
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), DaliError> {
        let write = || -> std::io::Result<()> {
            let mut file = BufWriter::new(std::fs::File::create(path)?);
            serde_json::to_writer(&mut file, self)?;
            file.flush()
        };
        write().map_err(DaliError::io("write", path))
    }
}

/// The part of the annotation file that identifies its origin.
#[derive(Deserialize)]
struct Head {
    info: HeadInfo,
    images: Vec<HeadImage>,
}

#[derive(Deserialize)]
struct HeadInfo {
    description: String,
    drawing: Option<String>,
}

#[derive(Deserialize)]
struct HeadImage {
    file_name: String,
}

/// Reads the beginning of the annotation file of the set at `dir`; `None` if it was not generated
/// here.
fn head(dir: &Path) -> Option<Head> {
    let file = std::fs::File::open(dir.join(ANNOTATIONS)).ok()?;
    let head: Head = serde_json::from_reader(BufReader::new(file)).ok()?;
    (head.info.description == DESCRIPTION).then_some(head)
}

/// The description of the generator in the set at `dir`; `None` if there is no set, or no
/// description.
pub(super) fn drawing_of(dir: &Path) -> Option<String> {
    head(dir)?.info.drawing
}

/// The files of the set at `dir`; `None` if the set was not generated here.
pub(super) fn manifest(dir: &Path) -> Option<Vec<PathBuf>> {
    let names = head(dir)?.images.into_iter().map(|image| image.file_name);
    // The generator writes no names that lead out of the folder; such names are ignored.
    let plain = |name: &String| Path::new(name).file_name() == Some(name.as_ref());
    let images = names.filter(plain).map(|name| Path::new(IMAGES).join(name));
    let store = store::manifest(&dir.join(STORE)).unwrap_or_default();
    let store = store.into_iter().map(|file| Path::new(STORE).join(file));
    Some(images.chain(store).chain([PathBuf::from(ANNOTATIONS)]).collect())
}
