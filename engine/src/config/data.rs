//! `[input]` and `[data]`: the source of the images, and their conversion to network inputs.

use choices::{EmptyImages, PixelEncoding, ResizeFilter, ResizeRounding};
use configs::table;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::augment::Augment;

table! {
    /// `[input]`: conversion of a decoded image to the network's input tensor: resize, flip,
    /// normalization `(value * pixel_scale - mean) / std`, padding.
    pub struct Input {
        /// Size of the short side after resizing, unless `max_size` limits it. Default 800.
        #[key(range = 1..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub min_size: usize = 800,
        /// Maximum size of the long side after resizing. Default 1333.
        #[key(range = 1..=16_384, unit = "pixels", resume = Step, mlperf = Preprocessing)]
        pub max_size: usize = 1333,
        /// Images are padded at the bottom and right so that both sides are multiples of this.
        /// Default 32.
        #[key(range = 1..=16_384, unit = "pixels", resume = Step, mlperf = Free)]
        pub size_divisor: usize = 32,
        /// Mean that is subtracted from each channel, in `channel_order`. Default `[0.485, 0.456,
        /// 0.406]`.
        #[key(each = -1e6..=1e6, resume = Step, mlperf = Preprocessing)]
        pub mean: [f32; 3] = [0.485, 0.456, 0.406],
        /// Standard deviation that each channel is divided by, in `channel_order`. Default `[0.229,
        /// 0.224, 0.225]`.
        #[key(each = 0.0..=1e6, resume = Step, mlperf = Preprocessing)]
        pub std: [f32; 3] = [0.229, 0.224, 0.225],
        /// Factor by which the u8 values are multiplied, before `mean` and `std`. Default 1/255;
        /// use 1 if `mean` is in the range 0 to 255.
        #[key(range = 0.0..=1e6, resume = Step, mlperf = Preprocessing)]
        pub pixel_scale: f32 = 1.0 / 255.0,
        /// Channel order of the network's input: `"rgb"` (default) or `"bgr"`.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub channel_order: ChannelOrder = ChannelOrder::Rgb,
        /// Probability of a horizontal flip of a training image. Default 0.5.
        #[key(range = 0.0..=1.0, unit = "probability", resume = Step, mlperf = Preprocessing)]
        pub flip_probability: f32 = 0.5,
        /// Number of different padded shapes for landscape images, and for portrait images. Default
        /// 3.
        #[key(range = 1..=64, unit = "shapes", resume = Step, mlperf = Free)]
        pub buckets_per_orientation: usize = 3,
        /// Rounding of resized sides: `"floor_scale"` (default, torchvision), `"half_even"`
        /// (MLPerf) or `"half_up"` (detectron2).
        #[key(resume = Step, mlperf = Preprocessing)]
        pub resize_rounding: ResizeRounding = ResizeRounding::FloorScale,
        /// Interpolation of resizing: `"bilinear"` (default, torchvision on tensors: four
        /// neighbours in f32) or `"pil"` (the MLPerf reference: Pillow's bilinear filter, which
        /// averages when downscaling, rounded to bytes).
        #[key(resume = Step, mlperf = Rule)]
        pub resize_filter: ResizeFilter = ResizeFilter::Bilinear,
        /// Random augmentation of training images.
        pub augment: Augment,
    }
}

/// Order of the network's three input channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChannelOrder {
    /// Red first.
    Rgb,
    /// Blue first (Caffe weights).
    Bgr,
}

table! {
    /// `[data]`: training and validation sets. Relative paths are relative to the working
    /// directory.
    pub struct Data {
        /// Folder of the training images. Default: none.
        #[key(resume = Free, mlperf = Free)]
        pub train_images: Option<String> = None,
        /// COCO JSON of the training set. Default: none.
        #[key(resume = Free, mlperf = Free)]
        pub train_annotations: Option<String> = None,
        /// Folder of the validation images. Default: none.
        #[key(resume = Free, mlperf = Free)]
        pub val_images: Option<String> = None,
        /// COCO JSON of the validation set. Default: none.
        #[key(resume = Free, mlperf = Free)]
        pub val_annotations: Option<String> = None,
        /// Prepared store of the training set (`onegraph prep`). Default: none.
        #[key(resume = Free, mlperf = Free)]
        pub train_store: Option<String> = None,
        /// Prepared store of the validation set. Default: none. Without validation data there are
        /// no evaluations.
        #[key(resume = Free, mlperf = Free)]
        pub val_store: Option<String> = None,
        /// Several training sets, whose classes are merged by name. Each is `{ store = DIR }` or `{
        /// images = DIR, annotations = FILE }`. Default `[]`: one set, given by the keys above.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub train: Vec<Set> = Vec::new(),
        /// Several validation sets, merged like `train`. Default `[]`: one set, given by the keys
        /// above.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub val: Vec<Set> = Vec::new(),
        /// Fraction of the training images that is held out for validation, if there is no
        /// validation set. Images are selected by a hash of their file names (image ids for COCO
        /// and LVIS), so an image stays in its split when images are added. Default 0: none.
        #[key(range = 0.0..=0.9, unit = "share", resume = Free, mlperf = Preprocessing)]
        pub val_fraction: f64 = 0.0,
        /// Use a synthetic data set instead of files. Default: none.
        #[key(resume = Drawing, mlperf = Free)]
        pub synthetic: Option<Synthetic> = None,
        /// Names of classes to train and evaluate on; objects of other classes are ignored. Default
        /// `[]`: all.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub classes: Vec<String> = Vec::new(),
        /// Merge all classes into one, called `object`. Default false.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub single_class: bool = false,
        /// Encoding of pixels in a store that is built from COCO files: `"jpeg"` (default; the
        /// bytes of the original file) or `"raw"` (decoded u8).
        #[key(resume = Step, mlperf = Preprocessing)]
        pub pixels: PixelEncoding = PixelEncoding::Jpeg,
        /// Training images without objects: `"drop"` (default, as in torchvision and MLPerf's
        /// reference) or `"keep"`. Validation always keeps them. A crowd counts as an object, but
        /// with `"drop"` a training set that has only crowds is rejected.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub empty: EmptyImages = EmptyImages::Drop,
        /// Training images with fewer labelled keypoints than this are dropped (detectron2: 1,
        /// torchvision: 10). Default 0: none.
        #[key(range = 0..=1_000_000, unit = "keypoints", resume = Step, mlperf = Preprocessing)]
        pub min_keypoints: usize = 0,
        /// Repeat factor sampling, as in detectron2: images with a rare class, which occurs in less
        /// than this fraction of the images, are repeated within an epoch. Default 0: none.
        #[key(range = 0.0..=1.0, unit = "share", resume = Step, mlperf = Preprocessing)]
        pub repeat_threshold: f64 = 0.0,
        /// Repeat factor of an image whose rarest class occurs in a fraction `f` of the images:
        /// `"sqrt"` (default, detectron2), `sqrt(repeat_threshold / f)`, or `"linear"`,
        /// `repeat_threshold / f`.
        #[key(resume = Step, mlperf = Preprocessing)]
        pub repeat: RepeatRule = RepeatRule::Sqrt,
        /// Minimum number of images per epoch; a smaller data set is repeated within the epoch.
        /// Default 0: each image once.
        #[key(range = 0..=1_000_000, unit = "images", resume = Step, mlperf = Preprocessing)]
        pub min_epoch_images: usize = 0,
        /// Train only on these image ids. Default `[]`: all.
        #[key(each = 0..=i64::MAX, unit = "image ids", resume = Step, mlperf = Preprocessing)]
        pub ids: Vec<u64> = Vec::new(),
        /// Train only on the first `max_images` images. Default 0: all.
        #[key(range = 0..=1_000_000_000, unit = "images", resume = Step, mlperf = Preprocessing)]
        pub max_images: usize = 0,
        /// Maximum size of an image. Larger images are rejected before memory is allocated. Default
        /// 178956970, as in PIL (512 MiB of RGB).
        #[key(range = 1..=1_000_000_000, unit = "pixels", resume = Free, mlperf = Free)]
        pub max_image_pixels: usize = 178_956_970,
    }
}

table! {
    /// `[[data.train]]` and `[[data.val]]`: one data set, a prepared store or COCO files.
    pub struct Set {
        /// Prepared store (`onegraph prep`). Default: none.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub store: Option<String> = None,
        /// Folder of the images. Default: none.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub images: Option<String> = None,
        /// COCO JSON. Default: none.
        #[key(resume = Free, mlperf = Preprocessing)]
        pub annotations: Option<String> = None,
    }
}

/// Repeat factor of images with a rare class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RepeatRule {
    /// `sqrt(repeat_threshold / f)`, where `f` is the fraction of images with the class.
    Sqrt,
    /// `repeat_threshold / f`, where `f` is the fraction of images with the class.
    Linear,
}

table! {
    /// `[data.synthetic]`: a generated data set, with images of geometric shapes.
    pub struct Synthetic {
        /// Kind of synthetic images. Default `"shapes"`, the only kind.
        #[key(resume = Drawing, mlperf = Free)]
        pub kind: String = "shapes".to_string(),
        /// Training images. Default 3000.
        #[key(range = 1..=1_000_000, unit = "images", resume = Drawing, mlperf = Free)]
        pub train_images: usize = 3000,
        /// Validation images. Default 100.
        #[key(range = 1..=1_000_000, unit = "images", resume = Free, mlperf = Free)]
        pub val_images: usize = 100,
        /// Side of the square images in pixels. Default 128.
        #[key(range = 32..=4096, unit = "pixels", resume = Drawing, mlperf = Free)]
        pub image_size: usize = 128,
        /// Seed of the synthetic images. Default 0.
        #[key(range = 0..=i64::MAX, resume = Drawing, mlperf = Free)]
        pub seed: u64 = 0,
        /// Folder for the images and the store. Default `"runs/data/shapes"`.
        #[key(resume = Free, mlperf = Free)]
        pub dir: String = "runs/data/shapes".to_string(),
    }
}
