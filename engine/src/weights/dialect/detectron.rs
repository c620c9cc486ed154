//! Detectron's and Caffe2's names of a ResNet: `conv1_w`, `res_conv1_bn_s`, `res2_0_branch2a_w`,
//! `res2_0_branch1_bn_b`, `fc1000_w`, as in `R-50.pkl`. Norms are a scale and a shift alone.

use std::collections::BTreeMap;

use super::{Dialect, Translated};
use crate::weights::container::Values;

/// Tensors of the backbone begin so in our names, without the prefix of a detector.
const STEM: &str = "conv1.weight";

/// Whether a tensor has a name of Detectron.
pub(super) fn is_name(name: &str) -> bool {
    name == "conv1_w" || name.starts_with("res2_0_branch")
}

/// Our name: that of torchvision's classifier, without a prefix. `None` for what this model has no
/// place for.
fn ours(name: &str) -> Option<String> {
    let (module, value, is_norm) = if let Some(module) = name.strip_suffix("_bn_s") {
        (module, "weight", true)
    } else if let Some(module) = name.strip_suffix("_bn_b") {
        (module, "bias", true)
    } else {
        (name.strip_suffix("_w")?, "weight", false)
    };
    if (module, is_norm) == ("conv1", false) {
        return Some(STEM.into());
    }
    if (module, is_norm) == ("res_conv1", true) {
        return Some(format!("bn1.{value}"));
    }
    let mut words = module.strip_prefix("res")?.split('_');
    let (stage, block) = (words.next()?.parse::<usize>().ok()?, words.next()?);
    let stage = stage.checked_sub(1).filter(|stage| *stage > 0)?;
    block.parse::<usize>().ok()?;
    let layer = match (words.next()?, is_norm) {
        ("branch1", false) => "downsample.0",
        ("branch1", true) => "downsample.1",
        ("branch2a", false) => "conv1",
        ("branch2b", false) => "conv2",
        ("branch2c", false) => "conv3",
        ("branch2a", true) => "bn1",
        ("branch2b", true) => "bn2",
        ("branch2c", true) => "bn3",
        _ => return None,
    };
    words.next().is_none().then(|| format!("layer{stage}.{block}.{layer}.{value}"))
}

/// The backbone under our names. The biases of its convolutions are left out, as Detectron and
/// detectron2 do: norms follow all of them. The rest keeps its names.
pub(super) fn to_ours(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let is_bias = |name: &str| {
        let of = name.strip_suffix("_b").map(|module| format!("{module}_w"));
        of.and_then(|weight| ours(&weight)).is_some()
    };
    let (biases, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
        stored.into_iter().partition(|(name, _)| is_bias(name));
    let tensors = super::renamed(kept, |name| ours(name).unwrap_or_else(|| name.to_string()))?;
    let mut notes = vec![
        "the norms of Detectron have no statistics: mean 0 and a variance that leaves their scale \
         as it is"
            .to_string(),
    ];
    if !biases.is_empty() {
        let names: Vec<String> = biases.keys().map(|name| format!("`{name}`")).collect();
        let names = names.join(", ");
        notes.push(format!("left out, as Detectron does: {names}"));
    }
    Ok(Translated { dialect: Dialect::Detectron, tensors, notes })
}

/// Gives each norm that lacks them the statistics that leave its scale bitwise as it is: mean 0 and
/// variance 1 - `eps`, rounded to f32.
///
/// The fold `scale / sqrt(variance + eps)` is exact although the variance is rounded: that moves
/// the square root by at most 2^-26, and f32 has 2^-25 and more to either side of each number.
pub(in crate::weights) fn fill_statistics(tensors: &mut BTreeMap<String, Values>, eps: f64) {
    let norm = |name: &str| {
        let module = name.strip_suffix(".weight")?;
        let last = module.rsplit('.').next()?;
        let is_norm = last.starts_with("bn") || module.ends_with("downsample.1");
        is_norm.then(|| module.to_string())
    };
    let norms: Vec<(String, Vec<usize>)> = tensors
        .iter()
        .filter_map(|(name, (shape, _))| Some((norm(name)?, shape.clone())))
        .collect();
    for (module, shape) in norms {
        let len = shape.iter().product();
        for (what, value) in [("running_mean", 0.0), ("running_var", (1.0 - eps) as f32)] {
            let name = format!("{module}.{what}");
            tensors.entry(name).or_insert_with(|| (shape.clone(), vec![value; len]));
        }
    }
}
