//! The entries of a COCO file, with the fields that training needs; other fields are ignored.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use super::fields::{flag, id, rotation, side};

/// A complete annotation file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Dataset {
    /// Images, in file order.
    pub images: Vec<Image>,
    /// Annotations, in file order.
    pub annotations: Vec<Annotation>,
    /// Categories, in file order.
    pub categories: Vec<Category>,
}

impl Dataset {
    /// The id of the root category: it has no objects, and is the `supercategory` of all other
    /// categories. Roboflow writes one with the project's name.
    pub(crate) fn root(&self) -> Option<u64> {
        let mut below: HashMap<&str, usize> = HashMap::new();
        for above in self.categories.iter().filter_map(|of| of.supercategory.as_deref()) {
            *below.entry(above).or_default() += 1;
        }
        let others = self.categories.len().saturating_sub(1);
        let is_root = |of: &&Category| {
            below.get(of.name.as_str()).is_some_and(|count| *count == others)
                && of.supercategory.as_ref() != Some(&of.name)
        };
        let root = self.categories.iter().find(is_root)?.id;
        self.annotations.iter().all(|object| object.category_id != root).then_some(root)
    }
}

/// One entry of `images`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "ImageFields")]
pub struct Image {
    /// Image id.
    pub id: u64,
    /// File name, relative to the images directory.
    pub file_name: String,
    /// Rows of pixels.
    pub height: u32,
    /// Columns of pixels.
    pub width: u32,
}

#[derive(Deserialize)]
struct ImageFields {
    #[serde(deserialize_with = "id")]
    id: u64,
    file_name: Option<String>,
    coco_url: Option<String>,
    #[serde(deserialize_with = "side")]
    height: u32,
    #[serde(deserialize_with = "side")]
    width: u32,
}

impl TryFrom<ImageFields> for Image {
    type Error = &'static str;
    fn try_from(fields: ImageFields) -> Result<Image, &'static str> {
        let ImageFields { id, file_name, coco_url, height, width } = fields;
        // LVIS has a URL instead of a file name.
        let file_name = file_name.or_else(|| name_in_url(&coco_url?));
        let file_name = file_name.ok_or("missing field `file_name`")?;
        Ok(Image { id, file_name, height, width })
    }
}

/// The file of an LVIS image: the last two components of its `coco_url`.
pub(crate) fn name_in_url(url: &str) -> Option<String> {
    let (start, name) = url.rsplit_once('/')?;
    let (_, folder) = start.rsplit_once('/')?;
    Some(format!("{folder}/{name}"))
}

/// One entry of `annotations`.
#[derive(Clone, Default, PartialEq, Deserialize)]
pub struct Annotation {
    /// Annotation id.
    #[serde(deserialize_with = "id")]
    pub id: u64,
    /// Id of the annotated image.
    #[serde(deserialize_with = "id")]
    pub image_id: u64,
    /// Id of the object's category.
    #[serde(deserialize_with = "id")]
    pub category_id: u64,
    /// x, y, width, height in pixels.
    #[serde(default)]
    pub bbox: Option<Vec<f64>>,
    /// Area in pixels; if absent, the area of the mask is used.
    #[serde(default)]
    pub area: Option<f64>,
    /// True if the annotation marks a crowd.
    #[serde(default, deserialize_with = "flag")]
    pub iscrowd: bool,
    /// The mask.
    #[serde(default)]
    pub segmentation: Option<Segmentation>,
    /// x, y (pixels) and visibility (0, 1 or 2) of each keypoint, consecutively; not validated yet.
    #[serde(default)]
    pub keypoints: Option<Vec<f64>>,
    /// Rotation of the box in degrees, from CVAT's `attributes`.
    #[serde(default, rename = "attributes", deserialize_with = "rotation")]
    pub rotation: f64,
    /// Values of the additional columns of the store ([`crate::store::Column`]); filled in by
    /// `prep`.
    #[serde(skip)]
    pub columns: Vec<f32>,
}

/// One entry of `categories`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Category {
    /// Category id; may be sparse.
    #[serde(deserialize_with = "id")]
    pub id: u64,
    /// Name.
    pub name: String,
    /// Names of the keypoints of the category's objects; empty if they have none.
    #[serde(default, deserialize_with = "or_none")]
    pub keypoints: Vec<String>,
    /// Pairs of keypoints (counted from 1) that are connected by a line. Invalid items of the list
    /// are ignored, as the lines only serve for drawing.
    #[serde(default, deserialize_with = "pairs")]
    pub skeleton: Vec<[u32; 2]>,
    /// Name of the category's supercategory.
    #[serde(default, deserialize_with = "text_or_none")]
    pub supercategory: Option<String>,
}

// `prep` hashes the debug text into a store's source key, by which it recognises an up-to-date
// store. Without keypoints the text is the same as in versions without keypoint support, so that
// existing stores stay valid.
impl fmt::Debug for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            id, image_id, category_id, bbox, area, iscrowd, segmentation, keypoints, ..
        } = self;
        let mut all = f.debug_struct("Annotation");
        all.field("id", id).field("image_id", image_id).field("category_id", category_id);
        all.field("bbox", bbox).field("area", area).field("iscrowd", iscrowd);
        all.field("segmentation", segmentation);
        if keypoints.is_some() {
            all.field("keypoints", keypoints);
        }
        all.finish()
    }
}

impl fmt::Debug for Category {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, name, keypoints, skeleton, .. } = self;
        let mut all = f.debug_struct("Category");
        all.field("id", id).field("name", name);
        if !keypoints.is_empty() {
            all.field("keypoints", keypoints).field("skeleton", skeleton);
        }
        all.finish()
    }
}

/// A mask in one of COCO's three forms.
#[derive(Debug, Clone, PartialEq)]
pub enum Segmentation<F = f32> {
    /// Polygon rings of x, y pairs.
    Polygons(Vec<Vec<F>>),
    /// Run-length encoding in column order, for an image of this size.
    Runs {
        /// Rows and columns.
        size: [u32; 2],
        /// The runs.
        counts: RunCounts,
    },
}

/// Run lengths, as a list or as COCO's compressed string.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum RunCounts {
    /// Plain lengths, starting with zeros.
    List(Vec<u32>),
    /// COCO's compressed form.
    Text(String),
}

/// Some tools write null instead of an empty list.
fn or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn text_or_none<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(serde_json::Value::deserialize(deserializer)?.as_str().map(str::to_string))
}

/// The items of a list that are pairs of integers; empty for a value that is not a list.
fn pairs<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<[u32; 2]>, D::Error> {
    let list = serde_json::Value::deserialize(deserializer)?;
    let pair = |value: &serde_json::Value| {
        let [from, to] = value.as_array()?.as_slice() else { return None };
        let [from, to] = [from, to].map(|end| u32::try_from(end.as_u64()?).ok());
        Some([from?, to?])
    };
    Ok(list.as_array().into_iter().flatten().filter_map(pair).collect())
}

impl<'de, F: Deserialize<'de>> Deserialize<'de> for Segmentation<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form<F>(PhantomData<F>);
        impl<'de, F: Deserialize<'de>> Visitor<'de> for Form<F> {
            type Value = Segmentation<F>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`segmentation` as a list of polygons or {size, counts}")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut rings = Vec::new();
                while let Some(ring) = seq.next_element()? {
                    rings.push(ring);
                }
                Ok(Segmentation::Polygons(rings))
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let (mut size, mut h, mut w, mut counts) = (None, None, None, None);
                while let Some(key) = map.next_key::<String>()? {
                    match key.as_str() {
                        "size" => once(&mut size, "segmentation.size", &mut map)?,
                        "counts" => once(&mut counts, "segmentation.counts", &mut map)?,
                        // hotcoco's Python package writes the size as `h` and `w`.
                        "h" => once(&mut h, "segmentation.h", &mut map)?,
                        "w" => once(&mut w, "segmentation.w", &mut map)?,
                        _ => drop(map.next_value::<de::IgnoredAny>()?),
                    }
                }
                let size = size.or_else(|| Some([h?, w?]));
                Ok(Segmentation::Runs {
                    size: size.ok_or_else(|| de::Error::missing_field("segmentation.size"))?,
                    counts: counts
                        .ok_or_else(|| de::Error::missing_field("segmentation.counts"))?,
                })
            }
        }
        deserializer.deserialize_any(Form(PhantomData))
    }
}

/// Reads the value of a key, and rejects a repeated key.
fn once<'de, T: Deserialize<'de>, A: MapAccess<'de>>(
    slot: &mut Option<T>,
    key: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    match slot.replace(map.next_value()?) {
        Some(_) => Err(de::Error::duplicate_field(key)),
        None => Ok(()),
    }
}
