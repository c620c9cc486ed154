//! Conventions of a model that are not visible in its tensors (normalization, rounding, RoIAlign,
//! ..): compares other projects' conventions with the config.

use crate::config::{ChannelOrder, Config, ExtraLevel};

use super::container::Container;
use super::dialect::{Dialect, Difference, EPS};
use super::extent::Extent;
use super::file::WeightsFile;
use super::published;

/// Properties of the config's model that no model of the other project can have; with the same
/// tensors, that project would compute something different. Only for projects to which weights are
/// exported.
pub fn differences(config: &Config, dialect: Dialect) -> Vec<String> {
    let mut found = unknown_to_both(config);
    found.extend((dialect.rules().lacks)(config));
    found.into_iter().filter_map(|(differs, what)| differs.then_some(what)).collect()
}

fn unknown_to_both(config: &Config) -> Vec<Difference> {
    let (model, backbone) = (&config.model, &config.model.backbone);
    let (eps, own) = (backbone.norm_eps, model.kind.family().own);
    let other_eps = (eps - EPS).abs() > f64::EPSILON;
    let short = model.box_head.hidden.len() != 2 && model.box_head.channels.is_empty();
    let added = format!("norms that add {eps} to the variance instead of {EPS}");
    vec![
        (backbone.own().is_some(), backbone.own().unwrap_or_default().into()),
        (own.is_some(), own.unwrap_or_default().into()),
        (other_eps, format!("{added} (model.backbone.norm_eps)")),
        (model.boxes.legacy_plus_one, "boxes of width x2 - x1 + 1 (model.boxes)".into()),
        (
            model.fpn.extra_level == ExtraLevel::None,
            "no level above the backbone's (model.fpn)".into(),
        ),
        (short, "a box head of one layer (model.box_head)".into()),
    ]
}

/// Warnings about contradictions between a config and the origin of a weights file, one line each.
pub(super) fn contradictions(file: &WeightsFile, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    if file.dialect() == Dialect::Detectron {
        let input = &config.input;
        if input.channel_order == ChannelOrder::Rgb {
            lines.push(
                "warning: Detectron's weights expect BGR images in 0..255 minus the mean: set \
                 input as in mlperf_r50 (channel_order, mean, std, pixel_scale)"
                    .to_string(),
            );
        }
        if config.model.backbone.strides_in_1x1() == Some(false) {
            lines.push(
                "warning: MSRA's ResNets have their strides in the 1x1 convolutions: set \
                 model.backbone.stride_in_1x1=true"
                    .to_string(),
            );
        }
    }
    let eps = config.model.backbone.norm_eps;
    if file.dialect() == Dialect::Detectron && file.has_statistics() && eps > EPS {
        lines.push(format!(
            "warning: the norms of this file add {EPS} to the variance, but the config's norms add \
             {eps}: set model.backbone.norm_eps={EPS}"
        ));
    }
    // A detector in a PyTorch format is assumed to be torchvision's own: runs of onegraph save
    // safetensors.
    let is_torchvisions = file.dialect() == Dialect::Torchvision
        && [Container::TorchZip, Container::TorchLegacy].contains(&file.container)
        && !file.is_backbone();
    let found = differences(config, Dialect::Torchvision);
    if is_torchvisions && !found.is_empty() {
        let found = found.join("; ");
        lines.push(format!(
            "warning: the config has properties that torchvision's models lack: {found}"
        ));
    }
    if published::is_without_epsilon(file.path()) && config.model.backbone.norm_eps > 0.0 {
        lines.push(
            "warning: torchvision evaluates this file with norms that add nothing to the variance: \
             set model.backbone.norm_eps=0"
                .to_string(),
        );
    }
    lines
}

/// Keys that affect what a model computes from its tensors, except pixel mean and standard
/// deviation.
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

/// Tolerance for pixel means and standard deviations (in 0 to 255), which other projects round.
const PIXEL_TOLERANCE: f32 = 0.01;

/// Warnings about loading another project's weights, one line each.
pub(super) fn warnings(file: &WeightsFile, extent: Extent, config: &Config) -> Vec<String> {
    let mut lines = Vec::new();
    let found = disagreements(file, extent, config);
    if !found.is_empty() {
        let found = found.join("; ");
        lines.push(format!(
            "warning: tensors were matched only by name: this config has properties that {}'s \
             default model lacks: {found}",
            file.dialect().name()
        ));
    }
    if file.dialect() == Dialect::Detectron2 && file.is_backbone() {
        lines.push(
            "warning: the file does not contain the image normalization and stride placement of \
             its backbone: check input and model.backbone.stride_in_1x1"
                .to_string(),
        );
    }
    lines
}

/// Differences between the config and the other project's model in the file. Pixel mean and
/// standard deviation are the file's, if it has them; everything else is that project's default.
pub(super) fn disagreements(file: &WeightsFile, extent: Extent, config: &Config) -> Vec<String> {
    if let Some((preset, set)) = file.dialect().rules().like {
        let set: Vec<String> = set.iter().map(|text| text.to_string()).collect();
        let theirs = Config::load(preset, &set).and_then(|theirs| config.differences(&theirs));
        let theirs = theirs.unwrap_or_else(|fault| unreachable!("a preset of ours: {fault}"));
        let is_whole = extent != Extent::Backbone && !file.is_backbone();
        let counts = |key: &str| is_whole || key.starts_with("model.backbone.");
        let theirs = theirs.iter().filter(|d| CONVENTIONS.contains(&&*d.key) && counts(&d.key));
        let keys = theirs.map(|d| format!("{} = {} instead of {}", d.key, d.from, d.to));
        return pixels(file, config).into_iter().chain(keys).collect();
    }
    // The conventions of a detectron2 file with only a backbone are unknown: it may have been
    // converted from any project.
    if file.dialect() != Dialect::Detectron2 || file.is_backbone() {
        return vec![];
    }
    let (model, is_whole) = (&config.model, extent != Extent::Backbone);
    let mut found: Vec<String> = pixels(file, config).into_iter().collect();
    if model.backbone.strides_in_1x1() == Some(false) {
        found.push("the stride in the 3x3 convolution (model.backbone.stride_in_1x1)".into());
    }
    if is_whole && !model.roi.aligned {
        found.push("RoIAlign not shifted by half a pixel (model.roi.aligned)".into());
    }
    let ratio = model.roi.sampling_ratio;
    if is_whole && ratio != 0 {
        found.push(format!(
            "RoIAlign with {ratio} x {ratio} samples per bin for all RoI sizes \
             (model.roi.sampling_ratio)"
        ));
    }
    let of_part = |what: &String| is_whole || what.contains("(model.backbone.");
    found.extend(differences(config, Dialect::Detectron2).into_iter().filter(of_part));
    found
}

/// Describes the config's pixel mean, standard deviation and channel order, if they differ from the
/// file's.
fn pixels(file: &WeightsFile, config: &Config) -> Option<String> {
    let input = &config.input;
    let ours = [input.mean, input.std].map(|values| values.map(|value| value / input.pixel_scale));
    let theirs = file.pixels.unwrap_or(file.dialect().rules().pixels);
    let is_blue_first = input.channel_order == ChannelOrder::Bgr;
    // The channel order follows from the means: in photographs, blue is the darkest channel and red
    // the brightest.
    let [blue, _, red] = theirs[0];
    let is_theirs = if blue == red { is_blue_first } else { blue < red };
    let far = |(a, b): (&f32, &f32)| (a - b).abs() > PIXEL_TOLERANCE;
    let are_others = ours.as_flattened().iter().zip(theirs.as_flattened()).any(far);
    let described = |[mean, std]: [[f32; 3]; 2], is_blue_first: bool| {
        let order = if is_blue_first { "BGR" } else { "RGB" };
        let rounded = |values: [f32; 3]| values.map(|value| (value * 1e3).round() / 1e3);
        format!("({order} - {:?}) / {:?}", rounded(mean), rounded(std))
    };
    let whose = if file.pixels.is_some() { "the file" } else { file.dialect().name() };
    (are_others || is_theirs != is_blue_first).then(|| {
        format!(
            "pixels as {}, but {whose}'s as {} (input)",
            described(ours, is_blue_first),
            described(theirs, is_theirs)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::weights::detectron2_settings;

    const PROJECTS: [Dialect; 2] = [Dialect::Torchvision, Dialect::Detectron2];

    fn config(preset: &str, set: &[&str]) -> Config {
        let set: Vec<String> = set.iter().map(|text| text.to_string()).collect();
        Config::load(preset, &set).unwrap()
    }

    /// A preset has no differences from the project that it reproduces, but some from other
    /// projects.
    #[test]
    fn differences_list_features_a_project_lacks() {
        let [torchvision, detectron2] = PROJECTS;
        let of_torchvision = "torchvision_r18 torchvision_r50 torchvision_r50_v2 torchvision_r101 \
                              faster_r50 cpu_r50_256";
        let of_detectron2 = "detectron2_r50_1x detectron2_r101_3x detectron2_r50_lsj \
                             detectron2_faster_r50_3x detectron2_cascade_r50_3x";
        for (presets, set, project, expected) in [
            (of_torchvision, &[][..], torchvision, &[][..]),
            (of_torchvision, &[], detectron2, &["anchors rounded to whole pixels"]),
            (of_detectron2, &[], detectron2, &[]),
            (
                of_detectron2,
                &[],
                torchvision,
                &["rounded half up", "not rounded (model.anchors", "level_eps"],
            ),
            // The rasterization of masks is not part of torchvision's model.
            ("finetune_r18", &[], torchvision, &[]),
            (
                "mlperf_r50",
                &[],
                torchvision,
                &[
                    "stride in the 1x1",
                    "BGR images",
                    "add 0 to",
                    "x2 - x1 + 1",
                    "nominal",
                    "Pillow's",
                    "Detectron's anchors",
                ],
            ),
            (
                "detectron2_r50_1x",
                &["model.fpn.norm=group_norm"],
                detectron2,
                &["group norms of 8 groups (model.backbone.norm_groups)"],
            ),
        ] {
            for preset in presets.split_whitespace() {
                let found = differences(&config(preset, set), project);
                assert_eq!(found.is_empty(), expected.is_empty(), "{preset}: {found:?}");
                let text = found.join("; ");
                assert!(expected.iter().all(|what| text.contains(what)), "{preset}: {text}");
            }
        }
        let absent = |preset, set, project, what| {
            !differences(&config(preset, set), project).join("; ").contains(what)
        };
        assert!(absent("mlperf_r50", &[], detectron2, "BGR images"));
        assert!(absent("mlperf_r50", &["model.backbone.block=basic"], torchvision, "1x1"));
    }

    #[test]
    fn detectron2_settings_are_derived_from_config() {
        let cascade = [
            "model.cascade.box_weight_factors=[2, 2, 2, 2, 1.5, 1.5, 1.6, 1.6]",
            "model.anchors.ratios=[1, 2, 1, 2, 1, 2, 1, 2, 1, 3]",
            "model.anchors.ratios_by_level=true",
            "model.rpn.convs=3",
        ];
        for (preset, set, expected) in [
            (
                "detectron2_r50_lsj",
                &[][..],
                &[
                    "MODEL.FPN.NORM FrozenBN",
                    "MODEL.ROI_BOX_HEAD.NUM_CONV 4",
                    "MODEL.ROI_MASK_HEAD.NORM FrozenBN",
                    "MODEL.RPN.CONV_DIMS [-1, -1]",
                ][..],
            ),
            (
                "detectron2_cascade_r50_3x",
                &cascade,
                &[
                    "MODEL.ROI_BOX_HEAD.CLS_AGNOSTIC_BBOX_REG True",
                    "MODEL.ROI_BOX_CASCADE_HEAD.IOUS [0.5, 0.6, 0.7]",
                    "MODEL.ROI_BOX_CASCADE_HEAD.BBOX_REG_WEIGHTS [[10.0, 10.0, 5.0, 5.0], \
                     [20.0, 20.0, 10.0, 10.0], [15.0, 15.0, 8.0, 8.0]]",
                    "MODEL.ANCHOR_GENERATOR.ASPECT_RATIOS [[1.0, 2.0], [1.0, 2.0], [1.0, 2.0], \
                     [1.0, 2.0], [1.0, 3.0]]",
                    "MODEL.RPN.CONV_DIMS [-1, -1, -1]",
                ],
            ),
            (
                "detectron2_x101_3x",
                &[],
                &["MODEL.RESNETS.NUM_GROUPS 32", "MODEL.RESNETS.WIDTH_PER_GROUP 8"],
            ),
            ("detectron2_r50_dc5_3x", &[], &["MODEL.RESNETS.RES5_DILATION 2"]),
            (
                "mlperf_r50",
                &[],
                &["MODEL.PIXEL_MEAN [102.9801, 115.9465, 122.7717]", "INPUT.FORMAT BGR"],
            ),
        ] {
            let settings = detectron2_settings(&config(preset, set), 80);
            for setting in expected {
                assert!(settings.iter().any(|own| own == setting), "{setting}: {settings:?}");
            }
        }
    }

    #[test]
    fn keys_named_in_conventions_exist() {
        let config = Config::default();
        let own = PROJECTS.iter().flat_map(|project| (project.rules().lacks)(&config));
        let rows = unknown_to_both(&config).into_iter().chain(own);
        let named: Vec<String> = rows
            .filter_map(|(_, what)| {
                what.strip_suffix(')')?.rsplit_once('(').map(|(_, key)| key.into())
            })
            .collect();
        assert_eq!(named.len(), 27);
        for key in named {
            let is_table = crate::config::schema().keys_of_table(&key).next().is_some();
            assert!(is_table || crate::config::schema().key(&key).is_some(), "{key}");
        }
    }
}
