//! detectron2's names of a ResNet, FPN, RPN and the heads, and its order of classes: the background
//! is the last row of the classifier, and has none in the predictors of boxes and masks.

use std::collections::BTreeMap;

use super::{Dialect, Translated, matched};
use crate::weights::container::Values;

/// Prefix of the backbone's body, here and there: below a pyramid, by itself in a detector, and
/// alone in a file.
const BODIES: [(&str, &str); 3] =
    [("backbone.body.", "backbone.bottom_up."), ("backbone.body.", "backbone."), ("", "")];
/// The body's last stage, where RoIs run through it.
const ON_ROIS: (&str, &str) = ("backbone.body.layer4.", "roi_heads.");
/// Modules that have another name, ours first; `#` is a number, which is less in ours by the last
/// field.
const MODULES: [(&str, &str, isize); 15] = [
    ("backbone.fpn.inner_blocks.#.0", "backbone.fpn_lateral#", 2),
    ("backbone.fpn.inner_blocks.#.1", "backbone.fpn_lateral#.norm", 2),
    ("backbone.fpn.layer_blocks.#.0", "backbone.fpn_output#", 2),
    ("backbone.fpn.layer_blocks.#.1", "backbone.fpn_output#.norm", 2),
    ("rpn.head.conv.#.0", "proposal_generator.rpn_head.conv.conv#", 0),
    ("rpn.head.cls_logits", "proposal_generator.rpn_head.objectness_logits", 0),
    ("rpn.head.bbox_pred", "proposal_generator.rpn_head.anchor_deltas", 0),
    ("roi_heads.box_head.#.0", "roi_heads.box_head.conv#", 1),
    ("roi_heads.box_head.#.1", "roi_heads.box_head.conv#.norm", 1),
    ("roi_heads.mask_head.#.0", "roi_heads.mask_head.mask_fcn#", 1),
    ("roi_heads.mask_head.#.1", "roi_heads.mask_head.mask_fcn#.norm", 1),
    ("roi_heads.mask_predictor.conv5_mask", "roi_heads.mask_head.deconv", 0),
    ("roi_heads.mask_predictor.mask_fcn_logits", "roi_heads.mask_head.predictor", 0),
    ("roi_heads.keypoint_predictor.kps_score_lowres", "roi_heads.keypoint_head.score_lowres", 0),
    ("fc", "stem.fc", 0),
];
/// Layers of the body's blocks.
const LAYERS: [(&str, &str); 8] = [
    ("conv1", "conv1"),
    ("conv2", "conv2"),
    ("conv3", "conv3"),
    ("bn1", "conv1.norm"),
    ("bn2", "conv2.norm"),
    ("bn3", "conv3.norm"),
    ("downsample.0", "shortcut"),
    ("downsample.1", "shortcut.norm"),
];
/// Tensors that detectron2 stores and makes from its config: they are no weights.
const CONSTANTS: [&str; 3] = ["pixel_mean", "pixel_std", "proposal_generator.anchor_generator."];

const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.";
/// The deltas of boxes, four for each class or for all.
const DELTAS: &str = "roi_heads.box_predictor.bbox_pred.";
/// Predictors with rows for each class, and how many.
const PREDICTORS: [(&str, usize); 2] =
    [(DELTAS, 4), ("roi_heads.mask_predictor.mask_fcn_logits.", 1)];

/// True if a tensor has a name that only detectron2 gives.
pub(super) fn is_name(name: &str) -> bool {
    const OWN: [&str; 5] =
        ["backbone.bottom_up.", "backbone.stem.", "proposal_generator.", "stem.conv1.", "res2.0."];
    OWN.iter().any(|own| name.starts_with(own))
}

/// The one convolution of an RPN's head, which has a number only beside another; ours first.
const RPN_CONV: (&str, &str) = ("rpn.head.conv.0.0", "proposal_generator.rpn_head.conv");

/// Layers of the box head: the fully connected ones count from 1 there, and from 6 here.
const BOX_HEAD: &str = "roi_heads.box_head.";
const FIRST_FC: usize = 6;

/// Modules of which a cascade has one for each stage: it numbers them all, we the further ones.
const OF_STAGES: [&str; 2] = ["roi_heads.box_head", "roi_heads.box_predictor"];

/// The name of a tensor as it is in a plain model, and the stage of a cascade that it belongs to,
/// if it names one.
fn without_stage(name: &str, is_ours: bool) -> (String, Option<usize>) {
    let before = if is_ours { "_stage" } else { "." };
    let found = OF_STAGES.iter().find_map(|module| {
        let (stage, rest) = name.strip_prefix(module)?.strip_prefix(before)?.split_once('.')?;
        Some((format!("{module}.{rest}"), Some(stage.parse().ok()?)))
    });
    found.unwrap_or_else(|| (name.to_string(), None))
}

/// The reverse of [`without_stage`].
fn with_stage(name: String, stage: Option<usize>, is_ours: bool) -> String {
    let Some(stage) = stage.filter(|stage| !is_ours || *stage > 0) else { return name };
    let module = OF_STAGES.iter().find_map(|module| {
        let rest = name.strip_prefix(module)?.strip_prefix('.')?;
        let before = if is_ours { "_stage" } else { "." };
        Some(format!("{module}{before}{stage}.{rest}"))
    });
    module.unwrap_or(name)
}

/// Facts of a model that the names of some modules depend on.
#[derive(Debug, Clone, Copy, Default)]
struct Layers {
    /// It has several box heads.
    is_cascade: bool,
    /// Convolutions of the box head; behind them torchvision counts modules: the convolutions, the
    /// flatten, then each fully connected layer with its ReLU.
    box_convs: usize,
    /// The RPN has several convolutions.
    rpn_convs: bool,
    /// The body has no pyramid on it.
    is_bare: bool,
    /// RoIs run through the body's last stage.
    is_c4: bool,
}

impl Layers {
    /// By our names of a model's parameters.
    fn of_ours<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        let (mut has_pyramid, mut has_layers) = (false, false);
        for name in names {
            has_pyramid |= name.starts_with("backbone.fpn.");
            has_layers |= name.starts_with(BOX_HEAD);
            found.is_cascade |= without_stage(name, true).1.is_some();
            found.rpn_convs |= name.starts_with("rpn.head.conv.1.");
            let conv = name.strip_prefix(BOX_HEAD).and_then(|rest| rest.strip_suffix(".0.weight"));
            found.box_convs += usize::from(conv.is_some());
        }
        found.is_bare = !has_pyramid;
        found.is_c4 = !has_pyramid && !has_layers;
        found
    }

    /// By detectron2's names.
    fn of_theirs<'a>(names: impl Iterator<Item = &'a str>) -> Self {
        let mut found = Self::default();
        for name in names {
            let (name, stage) = without_stage(name, false);
            found.is_cascade |= stage.is_some();
            let rest = name.strip_prefix(BOX_HEAD).and_then(|rest| rest.strip_prefix("conv"));
            let conv = rest.and_then(|rest| rest.strip_suffix(".weight"));
            let is_conv = conv.is_some_and(|number| !number.contains('.'));
            found.box_convs += usize::from(is_conv && stage.is_none_or(|stage| stage == 0));
        }
        found
    }

    /// The other project's name of a fully connected layer of the box head.
    fn fc(self, module: &str, to_ours: bool) -> Option<String> {
        let layer = module.strip_prefix(BOX_HEAD)?;
        let number = |text: Option<&str>| text?.parse::<usize>().ok();
        let behind_convs = self.box_convs > 0;
        let first = if behind_convs { self.box_convs + 1 } else { FIRST_FC };
        let step = if behind_convs { 2 } else { 1 };
        let prefix = if behind_convs { "" } else { "fc" };
        if to_ours {
            let number = number(layer.strip_prefix("fc"))?.checked_sub(1)?;
            return Some(format!("{BOX_HEAD}{prefix}{}", first + step * number));
        }
        let number = number(layer.strip_prefix(prefix))?.checked_sub(first)?;
        Some(format!("{BOX_HEAD}fc{}", number / step + 1))
    }
}

/// The other project's name of a tensor; as it is if it has none.
fn renamed(name: &str, layers: Layers, to_ours: bool) -> String {
    if !layers.is_cascade {
        return translated(name, layers, to_ours).unwrap_or_else(|| name.to_string());
    }
    let (plain, stage) = without_stage(name, !to_ours);
    let plain = translated(&plain, layers, to_ours).unwrap_or(plain);
    // Every module of a cascade's stages has a number there.
    with_stage(plain, stage.or((!to_ours).then_some(0)), to_ours)
}

fn translated(name: &str, layers: Layers, to_ours: bool) -> Option<String> {
    let (module, value) = name.rsplit_once('.')?;
    if let Some(layer) = layers.fc(module, to_ours) {
        return Some(format!("{layer}.{value}"));
    }
    if let Some(layer) = keypoint_conv(module, to_ours) {
        return Some(format!("{layer}.{value}"));
    }
    if to_ours && module == RPN_CONV.1 {
        return Some(format!("{}.{value}", RPN_CONV.0));
    }
    if !to_ours && module == RPN_CONV.0 && !layers.rpn_convs {
        return Some(format!("{}.{value}", RPN_CONV.1));
    }
    for (our, their, offset) in MODULES {
        let found = match to_ours {
            true => matched(module, their, our, -offset),
            false => matched(module, our, their, offset),
        };
        if let Some(found) = found {
            return Some(format!("{found}.{value}"));
        }
    }
    if to_ours && let Some(layer) = module.strip_prefix(ON_ROIS.1).and_then(|m| body(m, true)) {
        return Some(format!("{}{layer}.{value}", BODIES[0].0));
    }
    if !to_ours && layers.is_c4 && module.starts_with(ON_ROIS.0) {
        let layer = body(module.strip_prefix(BODIES[0].0)?, false)?;
        return Some(format!("{}{layer}.{value}", ON_ROIS.1));
    }
    let skipped = usize::from(!to_ours && layers.is_bare);
    BODIES.iter().skip(skipped).find_map(|(our, their)| {
        let (from, to) = if to_ours { (their, our) } else { (our, their) };
        let module = body(module.strip_prefix(from)?, to_ours)?;
        Some(format!("{to}{module}.{value}"))
    })
}

/// The other project's name of a convolution of the keypoint head: they count from 1 there, and
/// here with a ReLU behind each.
fn keypoint_conv(module: &str, to_ours: bool) -> Option<String> {
    const HEAD: &str = "roi_heads.keypoint_head.";
    let layer = module.strip_prefix(HEAD)?;
    if to_ours {
        let number = layer.strip_prefix("conv_fcn")?.parse::<usize>().ok()?.checked_sub(1)?;
        return Some(format!("{HEAD}{}", 2 * number));
    }
    Some(format!("{HEAD}conv_fcn{}", layer.parse::<usize>().ok()? / 2 + 1))
}

/// The name of a module inside the body.
fn body(module: &str, to_ours: bool) -> Option<String> {
    const STEM: [(&str, &str); 2] = [("conv1", "stem.conv1"), ("bn1", "stem.conv1.norm")];
    let pick = |pairs: &[(&str, &str)], name: &str| {
        let pair = pairs.iter().find(|(our, their)| name == if to_ours { *their } else { *our })?;
        Some((if to_ours { pair.0 } else { pair.1 }).to_string())
    };
    if let Some(stem) = pick(&STEM, module) {
        return Some(stem);
    }
    let mut words = module.splitn(3, '.');
    let (stage, block, layer) = (words.next()?, words.next()?, words.next()?);
    block.parse::<usize>().ok()?;
    let (from, to) = if to_ours { ("res", "layer") } else { ("layer", "res") };
    let stage: usize = stage.strip_prefix(from)?.parse().ok()?;
    let stage = if to_ours { stage.checked_sub(1)? } else { stage.checked_add(1)? };
    Some(format!("{to}{stage}.{block}.{}", pick(&LAYERS, layer)?))
}

/// The tensors under our names, with the background first and its dead rows 0.
pub(super) fn to_ours(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let constant = |name: &str| stored.get(name)?.1.as_slice().try_into().ok();
    let pixels = constant("pixel_mean").zip(constant("pixel_std")).map(|(mean, std)| [mean, std]);
    let is_constant = |name: &str| CONSTANTS.iter().any(|constant| name.starts_with(constant));
    let layers = Layers::of_theirs(stored.keys().map(String::as_str));
    let weights = stored.into_iter().filter(|(name, _)| !is_constant(name)).collect();
    let mut tensors = super::renamed(weights, |name| renamed(name, layers, true))?;
    let mut notes = Vec::new();
    let outputs = tensors.get(&format!("{CLASSIFIER}bias")).map(|(_, values)| values.len());
    let classes = outputs.and_then(|outputs| outputs.checked_sub(1));
    for (name, (shape, values)) in &mut tensors {
        let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
        let (plain, _) = without_stage(name, true);
        if plain.starts_with(CLASSIFIER) {
            values.rotate_right(row);
        }
        // Four deltas are those of all classes, but in a plain model of one class.
        let is_shared = shape.first() == Some(&4) && (layers.is_cascade || classes != Some(1));
        if plain.starts_with(DELTAS) && is_shared {
            continue;
        }
        let rows = PREDICTORS.iter().find(|(predictor, _)| plain.starts_with(predictor));
        let (Some((_, rows)), Some(classes), Some(first)) = (rows, classes, shape.first_mut())
        else {
            continue;
        };
        if *first != rows * classes {
            return Err(format!(
                "`{}` has {first} rows, and not {rows} for each of {classes} classes: masks that \
                 all classes share are not read",
                renamed(name, layers, false)
            ));
        }
        *first += rows;
        values.splice(0..0, vec![0.0; rows * row]);
        if notes.is_empty() {
            notes.push(
                "the background has no rows for boxes and masks in detectron2; nothing reads \
                 them, and they are 0"
                    .into(),
            );
        }
    }
    Ok(Translated { dialect: Dialect::Detectron2, tensors, pixels, notes })
}

/// Parameters under detectron2's names, with the background last and without its dead rows.
pub(in crate::weights) fn from_ours(params: Vec<(String, Values)>) -> Vec<(String, Values)> {
    let layers = Layers::of_ours(params.iter().map(|(name, _)| name.as_str()));
    let translate = |(name, (mut shape, mut values)): (String, Values)| {
        let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
        let (plain, _) = without_stage(&name, true);
        if plain.starts_with(CLASSIFIER) {
            values.rotate_left(row);
        }
        // Deltas of each class are eight or more: the background has some too.
        let is_shared = plain.starts_with(DELTAS) && shape.first() == Some(&4);
        let rows = PREDICTORS.iter().find(|(predictor, _)| plain.starts_with(predictor));
        let rows = rows.filter(|_| !is_shared);
        if let (Some((_, rows)), Some(first)) = (rows, shape.first_mut()) {
            *first -= rows;
            values.drain(..rows * row);
        }
        (renamed(&name, layers, false), (shape, values))
    };
    params.into_iter().map(translate).collect()
}
