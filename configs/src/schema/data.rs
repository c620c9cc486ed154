//! `[input]` and `[data]`: where images come from and how the network sees them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `[input]`: from a decoded image to the network's tensor,
/// `(value * pixel_scale - mean) / std`, resized, flipped and padded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Input {
    /// The short side is resized to this many pixels. Default 800.
    #[schemars(range(min = 1, max = 16_384), extend("unit" = "pixels"))]
    pub min_size: usize,
    /// The long side never exceeds this many pixels. Default 1333.
    #[schemars(range(min = 1, max = 16_384), extend("unit" = "pixels"))]
    pub max_size: usize,
    /// Sides are padded at the bottom and right to a multiple of this. Default 32 pixels.
    #[schemars(range(min = 1, max = 16_384), extend("unit" = "pixels"))]
    pub size_divisor: usize,
    /// Subtracted from each channel, in `channel_order`. Default `[0.485, 0.456, 0.406]`.
    #[schemars(inner(range(min = -1e6, max = 1e6)))]
    pub mean: [f32; 3],
    /// Divides each channel, in `channel_order`. Default `[0.229, 0.224, 0.225]`.
    #[schemars(inner(range(min = 0.0, max = 1e6)))]
    pub std: [f32; 3],
    /// Multiplies the u8 value before `mean` and `std`. Default 1/255; 1 for means in 0..255.
    #[schemars(range(min = 0.0, max = 1e6))]
    pub pixel_scale: f32,
    /// `"rgb"` (default) or `"bgr"`.
    pub channel_order: ChannelOrder,
    /// Probability of mirroring a training image. Default 0.5.
    #[schemars(range(min = 0.0, max = 1.0), extend("unit" = "probability"))]
    pub flip_probability: f32,
    /// Padded shapes for landscape images; portrait has as many. Default 3.
    #[schemars(range(min = 1, max = 64), extend("unit" = "shapes"))]
    pub buckets_per_orientation: usize,
    /// How a resized side is rounded: `"floor_scale"` (default, torchvision) or `"half_even"`
    /// (MLPerf).
    pub resize_rounding: ResizeRounding,
    /// How a resized pixel is made: `"bilinear"` (default, torchvision on tensors: four neighbours
    /// in f32) or `"pil"` (the MLPerf reference: Pillow's bilinear filter, which averages where it
    /// shrinks, rounded to bytes).
    pub resize_filter: ResizeFilter,
}

impl Default for Input {
    fn default() -> Self {
        Self {
            min_size: 800,
            max_size: 1333,
            size_divisor: 32,
            mean: [0.485, 0.456, 0.406],
            std: [0.229, 0.224, 0.225],
            pixel_scale: 1.0 / 255.0,
            channel_order: ChannelOrder::Rgb,
            flip_probability: 0.5,
            buckets_per_orientation: 3,
            resize_rounding: ResizeRounding::FloorScale,
            resize_filter: ResizeFilter::Bilinear,
        }
    }
}

/// Order of the network's three input channels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red first.
    #[default]
    Rgb,
    /// Blue first (Caffe weights).
    Bgr,
}

/// How a pixel of a resized image is made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeFilter {
    /// Blend of four neighbours in f32, without antialiasing.
    #[default]
    Bilinear,
    /// Pillow's `Image.BILINEAR`.
    Pil,
}

/// How the sides of a resized image are rounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeRounding {
    /// `floor(side * scale)`, scale = `min(min_size / short, max_size / long)`.
    #[default]
    FloorScale,
    /// Short side `min_size`, or `max_size * short / long` rounded half to even; the long side is
    /// truncated and may exceed `max_size`.
    HalfEven,
}

/// `[data]`: training and validation sets. Relative paths start at the working directory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Data {
    /// Folder of the training images. Default: none.
    pub train_images: Option<String>,
    /// COCO JSON of the training set. Default: none.
    pub train_annotations: Option<String>,
    /// Folder of the validation images. Default: none.
    pub val_images: Option<String>,
    /// COCO JSON of the validation set. Default: none.
    pub val_annotations: Option<String>,
    /// Prepared store of the training set (`onegraph prep`). Default: none.
    pub train_store: Option<String>,
    /// Prepared store of the validation set. Default: none.
    pub val_store: Option<String>,
    /// Use a synthetic data set instead of files. Default: none.
    pub synthetic: Option<Synthetic>,
    /// Pixels in a store: `"jpeg"` (default; the original file's bytes) or `"raw"` (decoded u8).
    pub pixels: PixelEncoding,
    /// Training images without objects: `"drop"` (default, as both references) or `"keep"`.
    /// Validation always keeps them.
    pub empty: EmptyImages,
    /// Train only on these image ids. Default `[]`: all.
    #[schemars(inner(range(min = 0, max = i64::MAX)), extend("unit" = "image ids"))]
    pub ids: Vec<u64>,
    /// Train only on the first `max_images` images. Default 0: all.
    #[schemars(range(min = 0, max = 1_000_000_000), extend("unit" = "images"))]
    pub max_images: usize,
    /// Largest image that is decoded, in pixels; a larger one is refused before memory is taken
    /// for it. Default 178956970, where PIL refuses too (512 MiB as RGB).
    #[schemars(range(min = 1, max = 1_000_000_000), extend("unit" = "pixels"))]
    pub max_image_pixels: usize,
}

impl Default for Data {
    fn default() -> Self {
        Self {
            train_images: None,
            train_annotations: None,
            val_images: None,
            val_annotations: None,
            train_store: None,
            val_store: None,
            synthetic: None,
            pixels: PixelEncoding::default(),
            empty: EmptyImages::default(),
            ids: Vec::new(),
            max_images: 0,
            max_image_pixels: 178_956_970,
        }
    }
}

/// `[data.synthetic]`: images of shapes, drawn by onegraph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Synthetic {
    /// What is drawn. Default, and so far only, `"shapes"`.
    pub kind: String,
    /// Training images. Default 3000.
    #[schemars(range(min = 1, max = 1_000_000), extend("unit" = "images"))]
    pub train_images: usize,
    /// Validation images. Default 100.
    #[schemars(range(min = 1, max = 1_000_000), extend("unit" = "images"))]
    pub val_images: usize,
    /// Side of the square images in pixels. Default 128.
    #[schemars(range(min = 32, max = 4096), extend("unit" = "pixels"))]
    pub image_size: usize,
    /// Seed of the drawing. Default 0.
    #[schemars(range(min = 0, max = i64::MAX))]
    pub seed: u64,
    /// Folder for the images and the store. Default `"runs/data/shapes"`.
    pub dir: String,
}

impl Default for Synthetic {
    fn default() -> Self {
        Self {
            kind: "shapes".to_string(),
            train_images: 3000,
            val_images: 100,
            image_size: 128,
            seed: 0,
            dir: "runs/data/shapes".to_string(),
        }
    }
}

/// How a store keeps pixels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PixelEncoding {
    /// The original JPEG, decoded on every visit.
    #[default]
    Jpeg,
    /// Decoded RGB, one byte per value.
    Raw,
}

/// How training treats images without objects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyImages {
    /// Trained on as pure background.
    Keep,
    /// Dropped.
    #[default]
    Drop,
}
