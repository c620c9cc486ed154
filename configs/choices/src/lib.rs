//! Choices in a config that ops or data depend on: one definition of each, and its words.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a GPU holds feature maps, their gradients and the weights that kernels read, and how it
/// multiplies matrices of them. Sums are always in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Held in fp16, multiplied on tensor cores.
    #[default]
    Fp16,
    /// Held in fp32, multiplied on tensor cores in tf32.
    Tf32,
    /// Held and multiplied in fp32.
    Fp32,
}

impl Precision {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fp16, Self::Tf32, Self::Fp32];

    /// Its name, in sources, names of kernels and configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp32 => "fp32",
        }
    }
}

/// How a CPU multiplies matrices; all else is in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuPrecision {
    /// Factors and sums in fp32.
    #[default]
    Fp32,
    /// Factors rounded to bf16, sums in fp32.
    Bf16,
}

/// How the pixels of a resized image are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeFilter {
    /// Blend of four neighbours in f32, without antialiasing.
    Bilinear,
    /// Pillow's `Image.BILINEAR`: an area where it shrinks, and bytes as result.
    Pil,
}

/// How the sides of a resized image are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeRounding {
    /// `floor(side * scale)`, scale = `min(min_size / short, max_size / long)`.
    FloorScale,
    /// Short side `min_size`, or `max_size * short / long` rounded half to even; the long side is
    /// truncated and may exceed `max_size`.
    HalfEven,
    /// Both sides `floor(side * scale + 0.5)`, after the limit of `max_size`.
    HalfUp,
}

/// Where the constant is added that keeps a RoI at a boundary between levels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LevelEps {
    /// 1e-6, added to the logarithm.
    #[default]
    AfterLog,
    /// 1e-8, added to what the logarithm is taken of.
    InLog,
}

/// How a predicted mask is drawn into its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PasteRule {
    /// Mask with a border of zeros, resized to the grown box with integer corners.
    #[default]
    IntegerBox,
    /// Mask sampled at the centre of each pixel, in the box as it is.
    GridSample,
}

/// How a mask target is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskTargetRule {
    /// Polygons shifted and scaled to the RoI, then COCO's polygon rasterizer.
    CocoPolygon,
    /// RoIAlign of the bitmap at network resolution.
    RoiAlignBitmap,
}

/// How a store keeps pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PixelEncoding {
    /// The original JPEG, decoded on every visit; other formats are stored as `raw`.
    Jpeg,
    /// Decoded RGB, one byte per value.
    Raw,
}

/// How images without objects are treated; a crowd counts as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyImages {
    /// Kept, as pure background.
    Keep,
    /// Dropped.
    Drop,
}
