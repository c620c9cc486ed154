//! Tensorpack's names, `group0/block0/conv1/W`, and TensorFlow's layouts: a convolution is [height,
//! width, in, out], a transposed one [height, width, out, in], a fully connected layer [in, out];
//! the first one is over channel, row, column, as features are NCHW there too. The background is
//! the first class, and has no rows for masks.

use std::collections::BTreeMap;

use super::{Dialect, Translated, matched};
use crate::weights::container::Values;

/// Modules outside of the blocks, ours first; `#` is a number, which is less in ours by the last
/// field.
const MODULES: [(&str, &str, isize); 18] = [
    ("backbone.body.conv1", "conv0", 0),
    ("backbone.body.bn1", "conv0/bn", 0),
    ("backbone.body.bn1", "conv0/gn", 0),
    ("backbone.fpn.inner_blocks.#.0", "fpn/lateral_1x1_c#", 2),
    ("backbone.fpn.layer_blocks.#.0", "fpn/posthoc_3x3_p#", 2),
    ("rpn.head.conv.#.0", "rpn/conv#", 0),
    ("rpn.head.cls_logits", "rpn/class", 0),
    ("rpn.head.bbox_pred", "rpn/box", 0),
    ("roi_heads.box_head.fc#", "fastrcnn/fc#", 0),
    ("roi_heads.box_head.#.0", "fastrcnn/conv#", 0),
    ("roi_heads.box_predictor.cls_score", "fastrcnn/outputs/class", 0),
    ("roi_heads.box_predictor.bbox_pred", "fastrcnn/outputs/box", 0),
    // Without a pyramid.
    ("roi_heads.box_predictor.cls_score", "fastrcnn/class", 0),
    ("roi_heads.box_predictor.bbox_pred", "fastrcnn/box", 0),
    ("roi_heads.mask_head.#.0", "maskrcnn/fcn#", 0),
    ("roi_heads.mask_predictor.conv5_mask", "maskrcnn/deconv", 0),
    ("roi_heads.mask_predictor.mask_fcn_logits", "maskrcnn/conv", 0),
    // The classifier that a backbone was trained with.
    ("fc", "linear", 0),
];
/// Ends of names, ours first.
const VALUES: [(&str, &str); 6] = [
    ("weight", "/W"),
    ("bias", "/b"),
    ("weight", "/gamma"),
    ("bias", "/beta"),
    ("running_mean", "/mean/EMA"),
    ("running_var", "/variance/EMA"),
];
/// Layers of a block, ours first, each with that of its norm.
const LAYERS: [(&str, &str, &str); 4] = [
    ("conv1", "bn1", "conv1"),
    ("conv2", "bn2", "conv2"),
    ("conv3", "bn3", "conv3"),
    ("downsample.0", "downsample.1", "convshortcut"),
];
/// Beginnings of the parts of a detector behind its body.
const PARTS: [&str; 5] = ["fpn/", "rpn/", "fastrcnn/", "maskrcnn/", "cascade_rcnn"];
const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.bias";
const MASKS: &str = "roi_heads.mask_predictor.mask_fcn_logits.";

/// True if a tensor has a name that only Tensorpack gives.
pub(super) fn is_name(name: &str) -> bool {
    matches!(name, "conv0/W" | "conv0/W:0") || name.starts_with("group0/block0/")
}

/// The tensors under our names, in torchvision's layouts, with rows of 0 for the masks of the
/// background.
pub(super) fn to_ours(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let is_box_conv = |name: &&String| name.starts_with("fastrcnn/conv") && name.ends_with("/W");
    let box_convs = stored.keys().filter(is_box_conv).count();
    let mut weights = BTreeMap::new();
    for (name, values) in stored {
        // TensorFlow's name of a variable's value, and the state of its optimizer.
        let name = name.strip_suffix(":0").unwrap_or(&name);
        if name.ends_with("/Momentum") {
            continue;
        }
        let our = ours(name, box_convs);
        if our.is_none() && PARTS.iter().any(|part| name.starts_with(part)) {
            return Err(format!(
                "`{name}` has no place here: of Tensorpack's models, cascades and norms in pyramid \
                 and heads are not read"
            ));
        }
        let our = our.unwrap_or_else(|| name.to_string());
        if weights.insert(our, turned(values)).is_some() {
            return Err(format!("it holds `{name}` twice, under two of its names"));
        }
    }
    let outputs = weights.get(CLASSIFIER).map(|(_, values)| values.len());
    let mut notes = Vec::new();
    for (name, (shape, values)) in weights.iter_mut().filter(|(name, _)| name.starts_with(MASKS)) {
        let Some(rows) = shape.first_mut() else { continue };
        if outputs.is_some_and(|outputs| outputs.checked_sub(1) != Some(*rows)) {
            return Err(format!(
                "`{name}` has {rows} rows, one for each class, and the classifier {} outputs, one \
                 more for the background",
                outputs.unwrap_or(0)
            ));
        }
        let row = values.len() / (*rows).max(1);
        *rows = rows.saturating_add(1);
        values.splice(0..0, vec![0.0; row]);
        notes =
            vec!["the background has no masks in Tensorpack: its rows are 0, and unread".into()];
    }
    Ok(Translated { dialect: Dialect::Tensorpack, tensors: weights, pixels: None, notes })
}

/// Our name of a tensor.
fn ours(name: &str, box_convs: usize) -> Option<String> {
    let ends = VALUES.iter().find_map(|(our, end)| Some((name.strip_suffix(end)?, our)));
    let (module, value) = ends?;
    // Behind convolutions torchvision counts modules: them, the flatten, then this layer.
    let behind =
        || (module == "fastrcnn/fc").then(|| format!("roi_heads.box_head.{}", box_convs + 1));
    let known = || MODULES.iter().find_map(|(our, their, n)| matched(module, their, our, -n));
    let module = known().or_else(behind).or_else(|| block(module))?;
    Some(format!("{module}.{value}"))
}

/// Our name of a layer in a block of the body, or of its norm.
fn block(module: &str) -> Option<String> {
    let mut words = module.split('/');
    let stage: usize = words.next()?.strip_prefix("group")?.parse().ok()?;
    let block: usize = words.next()?.strip_prefix("block")?.parse().ok()?;
    let layer = words.next()?;
    let (conv, norm, _) = LAYERS.iter().find(|(.., their)| *their == layer)?;
    let layer = match (words.next(), words.next()) {
        (None, None) => conv,
        (Some("bn" | "gn"), None) => norm,
        _ => return None,
    };
    Some(format!("backbone.body.layer{}.{block}.{layer}", stage.checked_add(1)?))
}

/// A tensor whose last two indices come first and turned: what TensorFlow's layouts of convolutions
/// and fully connected layers are in torchvision's. Vectors stay.
fn turned((shape, values): Values) -> Values {
    let [rest @ .., from, to] = &shape[..] else { return (shape, values) };
    // Sides without elements may be of any length.
    if values.is_empty() {
        return ([&[*to, *from], rest].concat(), values);
    }
    let places: usize = rest.iter().product();
    let mut turned = Vec::with_capacity(values.len());
    for b in 0..*to {
        for a in 0..*from {
            turned.extend((0..places).map(|place| values[(place * from + a) * to + b]));
        }
    }
    let shape = [&[*to, *from], rest].concat();
    (shape, turned)
}
