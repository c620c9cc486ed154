//! The presets, compiled into the binary.

use std::path::Path;

/// Name and text of each preset; presets for CPUs come first.
const PRESETS: &[(&str, &str)] = &[
    ("quickstart", include_str!("../quickstart.toml")),
    ("quickstart_keypoints", include_str!("../quickstart_keypoints.toml")),
    ("tiny", include_str!("../tiny.toml")),
    ("micro", include_str!("../micro.toml")),
    ("overfit_coco8", include_str!("../overfit_coco8.toml")),
    ("cpu_r50_256", include_str!("../cpu_r50_256.toml")),
    ("torchvision_r18", include_str!("../torchvision_r18.toml")),
    ("torchvision_r34", include_str!("../torchvision_r34.toml")),
    ("torchvision_r50", include_str!("../torchvision_r50.toml")),
    ("torchvision_r50_v2", include_str!("../torchvision_r50_v2.toml")),
    ("torchvision_keypoint_r50", include_str!("../torchvision_keypoint_r50.toml")),
    ("torchvision_r101", include_str!("../torchvision_r101.toml")),
    ("torchvision_r152", include_str!("../torchvision_r152.toml")),
    ("torchvision_resnext50", include_str!("../torchvision_resnext50.toml")),
    ("torchvision_resnext101", include_str!("../torchvision_resnext101.toml")),
    ("convnext_tiny", include_str!("../convnext_tiny.toml")),
    ("faster_r50", include_str!("../faster_r50.toml")),
    ("finetune", include_str!("../finetune.toml")),
    ("finetune_v2", include_str!("../finetune_v2.toml")),
    ("finetune_r18", include_str!("../finetune_r18.toml")),
    ("detectron2_r50_1x", include_str!("../detectron2_r50_1x.toml")),
    ("detectron2_r50_3x", include_str!("../detectron2_r50_3x.toml")),
    ("detectron2_r101_3x", include_str!("../detectron2_r101_3x.toml")),
    ("detectron2_faster_r50_3x", include_str!("../detectron2_faster_r50_3x.toml")),
    ("detectron2_r50_c4_3x", include_str!("../detectron2_r50_c4_3x.toml")),
    ("detectron2_r101_c4_3x", include_str!("../detectron2_r101_c4_3x.toml")),
    ("detectron2_r50_dc5_3x", include_str!("../detectron2_r50_dc5_3x.toml")),
    ("detectron2_x101_3x", include_str!("../detectron2_x101_3x.toml")),
    ("detectron2_cascade_r50_3x", include_str!("../detectron2_cascade_r50_3x.toml")),
    ("detectron2_keypoint_r50_3x", include_str!("../detectron2_keypoint_r50_3x.toml")),
    ("detectron2_r50_lsj", include_str!("../detectron2_r50_lsj.toml")),
    ("mlperf_r50", include_str!("../mlperf_r50.toml")),
    ("mlperf_8", include_str!("../mlperf_8.toml")),
    ("mlperf_16", include_str!("../mlperf_16.toml")),
    ("mlperf_48", include_str!("../mlperf_48.toml")),
    ("mlperf_64", include_str!("../mlperf_64.toml")),
    ("mlperf_128", include_str!("../mlperf_128.toml")),
    ("mlperf_256", include_str!("../mlperf_256.toml")),
    ("mlperf_256_groups_of_4", include_str!("../mlperf_256_groups_of_4.toml")),
    ("tuned_r50", include_str!("../tuned_r50.toml")),
    ("novograd_384", include_str!("../novograd_384.toml")),
    ("novograd_512", include_str!("../novograd_512.toml")),
];

/// The text of a preset, by its name with or without `.toml`.
pub fn preset(name: &str) -> Option<&'static str> {
    let stem = name.strip_suffix(".toml").unwrap_or(name);
    PRESETS.iter().find(|(known, _)| *known == stem).map(|(_, text)| *text)
}

/// Names of all presets, without `.toml`.
pub fn preset_names() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// Name and text of the preset named by the last component of a path.
pub(crate) fn preset_of_path(path: &Path) -> Option<(String, &'static str)> {
    let name = path.file_name()?.to_str()?;
    Some((name.strip_suffix(".toml").unwrap_or(name).to_string(), preset(name)?))
}

/// Minimum similarity (0 to 1) of a suggested preset name.
const MIN_SIMILARITY: f64 = 0.6;

/// For an error message: the preset with a name similar to a path, if any, and the names of all
/// presets.
pub(crate) fn advice(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let stem = stem.to_lowercase().replace('-', "_");
    let alike = |name| strsim::normalized_damerau_levenshtein(&stem, name);
    let nearest = preset_names().max_by(|a, b| alike(a).total_cmp(&alike(b)));
    let nearest = nearest.filter(|name| alike(name) >= MIN_SIMILARITY);
    let nearest = nearest.map_or(String::new(), |name| format!("did you mean {name}? "));
    format!("{nearest}the presets are {}", preset_names().collect::<Vec<_>>().join(", "))
}
