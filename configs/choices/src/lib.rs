//! Enum-valued config keys that ops or data loading depend on, and their words in a config.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Storage type of feature maps, gradients and the weights that kernels read on a GPU, and operand
/// type of GEMMs. Accumulation is always in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Stored in fp16, multiplied on tensor cores.
    #[default]
    Fp16,
    /// Stored in fp32, multiplied on tensor cores in tf32.
    Tf32,
    /// Stored and multiplied in fp32.
    Fp32,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Self; 3] = [Self::Fp16, Self::Tf32, Self::Fp32];

    /// The name in CUDA sources, kernel names and configs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fp16 => "fp16",
            Self::Tf32 => "tf32",
            Self::Fp32 => "fp32",
        }
    }
}

/// Precision of GEMMs on a CPU; everything else is in fp32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuPrecision {
    /// Operands and accumulation in fp32.
    #[default]
    Fp32,
    /// Operands rounded to bf16, accumulation in fp32.
    Bf16,
}

/// How the pixels of a resized image are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeFilter {
    /// Bilinear interpolation of four neighbours in f32, without antialiasing.
    Bilinear,
    /// Pillow's `Image.BILINEAR`: averages an area when downscaling, and rounds to bytes.
    Pil,
}

/// How the sides of a resized image are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResizeRounding {
    /// `floor(side * scale)`, scale = `min(min_size / short, max_size / long)`.
    FloorScale,
    /// Short side `min_size`, or `max_size * short / long` rounded half to even if that is smaller;
    /// the long side is rounded down and may exceed `max_size`.
    HalfEven,
    /// Both sides `floor(side * scale + 0.5)`, where the scale includes the limit of `max_size`.
    HalfUp,
}

/// Position of the small constant in the formula that assigns a RoI to a pyramid level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LevelEps {
    /// 1e-6, added to the logarithm.
    #[default]
    AfterLog,
    /// 1e-8, added to the argument of the logarithm.
    InLog,
}

/// How a predicted mask is pasted into its image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PasteRule {
    /// Mask padded with zeros and resized to the box, which is enlarged in proportion and rounded
    /// to integers.
    #[default]
    IntegerBox,
    /// Mask sampled at the centre of each pixel of the unrounded box.
    GridSample,
}

/// How a mask target is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MaskTargetRule {
    /// Polygons shifted and scaled to the RoI, then rasterized by COCO's rules.
    CocoPolygon,
    /// RoIAlign of the object's bitmap at network resolution.
    RoiAlignBitmap,
}

/// How a store keeps pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PixelEncoding {
    /// The original JPEG, decoded each time the image is loaded; images in other formats are stored
    /// as `raw`.
    Jpeg,
    /// Decoded RGB, one byte per value.
    Raw,
}

/// How images without objects are treated; a crowd counts as an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EmptyImages {
    /// Kept, with background only.
    Keep,
    /// Dropped.
    Drop,
}
