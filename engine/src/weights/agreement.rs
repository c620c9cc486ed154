//! Checks whether a model of another project may be taken for the config's, which tensors by
//! themselves do not show.

use crate::config::{ChannelOrder, Config};

use super::conventions::differences;
use super::dialect::Dialect;
use super::extent::Extent;
use super::file::WeightsFile;

/// Mean and standard deviation of the pixels, 0..255, in a project's defaults: blue first.
fn default_pixels(dialect: Dialect) -> [[f32; 3]; 2] {
    const IMAGENET_MEAN: [f32; 3] = [103.53, 116.28, 123.675];
    match dialect {
        Dialect::Benchmark => [[102.9801, 115.9465, 122.7717], [1.0; 3]],
        Dialect::Tensorpack => [IMAGENET_MEAN, [57.375, 57.12, 58.395]],
        _ => [IMAGENET_MEAN, [1.0; 3]],
    }
}

/// The preset of a project's conventions, and the keys that change it, for projects without
/// conventions of their own in [`differences`].
pub(super) fn like(dialect: Dialect) -> Option<(&'static str, &'static [&'static str])> {
    match dialect {
        Dialect::Benchmark => Some(("mlperf_r50", &[])),
        Dialect::Tensorpack => Some((
            "detectron2_r50_3x",
            &[
                "input.std=[57.375,57.12,58.395]",
                "input.resize_filter=bilinear",
                "model.backbone.stride_in_1x1=false",
                "model.roi.sampling_ratio=2",
            ],
        )),
        Dialect::Torchvision | Dialect::Detectron2 | Dialect::Detectron => None,
    }
}

/// Keys that change what a model computes from its tensors, but for those of pixels.
const CONVENTIONS: [&str; 12] = [
    "input.resize_filter",
    "input.resize_rounding",
    "model.anchors.cell_rule",
    "model.anchors.stride_rule",
    "model.backbone.norm_eps",
    "model.backbone.stride_in_1x1",
    "model.boxes.legacy_plus_one",
    "model.detections.min_size",
    "model.detections.paste_rule",
    "model.roi.aligned",
    "model.roi.level_eps",
    "model.roi.sampling_ratio",
];

/// Constants of pixels that differ by less are the same: presets have three digits.
const PIXEL_TOLERANCE: f32 = 0.01;

/// Warnings about weights of other projects that are taken, one line each.
pub(super) fn warnings(file: &WeightsFile, extent: Extent, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let found = disagreements(file, extent, config);
    if !found.is_empty() {
        let found = found.join("; ");
        lines.push(format!(
            "warning: taken by name alone: by its defaults {} does not have what this config has: \
             {found}",
            file.dialect().name()
        ));
    }
    if file.dialect() == Dialect::Detectron2 && file.is_backbone() {
        lines.push(
            "warning: the file does not say for which images its backbone is, nor where that \
             strides: check input and model.backbone.stride_in_1x1"
                .to_string(),
        );
    }
    lines
}

/// Properties of the config that the other project's model in the file lacks: by the file's pixel
/// constants if it has them, else by that project's defaults.
pub(super) fn disagreements(file: &WeightsFile, extent: Extent, config: &Config) -> Vec<String> {
    if let Some((preset, set)) = like(file.dialect()) {
        let set: Vec<String> = set.iter().map(|text| text.to_string()).collect();
        let theirs = Config::load(preset, &set).and_then(|theirs| config.differences(&theirs));
        let theirs = theirs.unwrap_or_else(|fault| unreachable!("a preset of ours: {fault}"));
        let is_whole = extent != Extent::Backbone && !file.is_backbone();
        let counts = |key: &str| is_whole || key.starts_with("model.backbone.");
        let theirs = theirs.iter().filter(|d| CONVENTIONS.contains(&&*d.key) && counts(&d.key));
        let keys = theirs.map(|d| format!("{} = {}, and not {}", d.key, d.from, d.to));
        return pixels(file, config).into_iter().chain(keys).collect();
    }
    // A backbone by itself may be a converted one of any project's conventions.
    if file.dialect() != Dialect::Detectron2 || file.is_backbone() {
        return vec![];
    }
    let (model, is_whole) = (&config.model, extent != Extent::Backbone);
    let mut found: Vec<String> = pixels(file, config).into_iter().collect();
    if model.backbone.strides_in_1x1() == Some(false) {
        found.push("the stride in the 3x3 (model.backbone.stride_in_1x1)".into());
    }
    if is_whole && !model.roi.aligned {
        found.push("RoIAlign not shifted by half a pixel (model.roi.aligned)".into());
    }
    let ratio = model.roi.sampling_ratio;
    if is_whole && ratio != 0 {
        found.push(format!(
            "RoIAlign of {ratio} x {ratio} samples a bin at any size of the RoI \
             (model.roi.sampling_ratio)"
        ));
    }
    let of_part = |what: &String| is_whole || what.contains("(model.backbone.");
    found.extend(differences(config, Dialect::Detectron2).into_iter().filter(of_part));
    found
}

/// The config's pixel constants, if the file's are others.
fn pixels(file: &WeightsFile, config: &Config) -> Option<String> {
    let input = &config.input;
    let ours = [input.mean, input.std].map(|values| values.map(|value| value / input.pixel_scale));
    let theirs = file.pixels().unwrap_or(default_pixels(file.dialect()));
    let is_blue_first = input.channel_order == ChannelOrder::Bgr;
    // In photographs blue is the darkest channel and red the lightest.
    let [blue, _, red] = theirs[0];
    let is_theirs = if blue == red { is_blue_first } else { blue < red };
    let far = |(a, b): (&f32, &f32)| (a - b).abs() > PIXEL_TOLERANCE;
    let are_others = ours.as_flattened().iter().zip(theirs.as_flattened()).any(far);
    let described = |[mean, std]: [[f32; 3]; 2], is_blue_first: bool| {
        let order = if is_blue_first { "BGR" } else { "RGB" };
        let rounded = |values: [f32; 3]| values.map(|value| (value * 1e3).round() / 1e3);
        format!("{order} less {:?} over {:?}", rounded(mean), rounded(std))
    };
    let whose = if file.pixels().is_some() { "the file" } else { file.dialect().name() };
    (are_others || is_theirs != is_blue_first).then(|| {
        format!(
            "pixels in {}, where {whose}'s are in {} (input)",
            described(ours, is_blue_first),
            described(theirs, is_theirs)
        )
    })
}
