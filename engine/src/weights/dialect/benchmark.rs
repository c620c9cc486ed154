//! maskrcnn-benchmark's names, in tensors of torchvision's layouts and order of classes.

use std::collections::BTreeMap;

use super::{Dialect, Translated, matched};
use crate::weights::container::Values;

/// Modules that have another name, ours first; `#` is a number, which is less in ours by the last
/// field.
const MODULES: [(&str, &str, isize); 7] = [
    ("backbone.body.conv1", "backbone.body.stem.conv1", 0),
    ("backbone.body.bn1", "backbone.body.stem.bn1", 0),
    ("backbone.fpn.inner_blocks.#.0", "backbone.fpn.fpn_inner#", 1),
    ("backbone.fpn.layer_blocks.#.0", "backbone.fpn.fpn_layer#", 1),
    ("rpn.head.conv.0.0", "rpn.head.conv", 0),
    ("roi_heads.mask_head.#.0", "roi_heads.mask.feature_extractor.mask_fcn#", 1),
    ("roi_heads.box_head.fc#", "roi_heads.box.feature_extractor.fc#", 0),
];
/// Beginnings of the other names, ours first.
const PARTS: [(&str, &str); 4] = [
    ("roi_heads.box_predictor.", "roi_heads.box.predictor."),
    ("roi_heads.mask_predictor.", "roi_heads.mask.predictor."),
    ("roi_heads.box_head.", "roi_heads.box.feature_extractor."),
    ("roi_heads.mask_head.", "roi_heads.mask.feature_extractor."),
];
/// Tensors that are made from the config: they are no weights.
const ANCHORS: &str = "rpn.anchor_generator.";

/// True if a tensor has a name that only maskrcnn-benchmark gives.
pub(super) fn is_name(name: &str) -> bool {
    const OWN: [&str; 3] = ["backbone.body.stem.", "roi_heads.box.", "backbone.fpn.fpn_inner"];
    OWN.iter().any(|own| name.starts_with(own))
}

/// The tensors under our names; parts that no model here has keep the rest of theirs.
pub(super) fn to_ours(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let weights = stored.into_iter().filter(|(name, _)| !name.starts_with(ANCHORS)).collect();
    let tensors = super::renamed(weights, |name| ours(name).unwrap_or_else(|| name.to_string()))?;
    Ok(Translated { dialect: Dialect::Benchmark, tensors, pixels: None, notes: vec![] })
}

fn ours(name: &str) -> Option<String> {
    let (module, value) = name.rsplit_once('.')?;
    let known = MODULES.iter().find_map(|(our, their, n)| matched(module, their, our, -n));
    if let Some(module) = known {
        return Some(format!("{module}.{value}"));
    }
    PARTS.iter().find_map(|(our, their)| Some(format!("{our}{}", name.strip_prefix(their)?)))
}
