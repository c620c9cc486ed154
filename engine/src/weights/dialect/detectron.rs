//! Caffe2's names of a ResNet, as the two published kinds of `R-50.pkl` have them: `conv1_w`,
//! `res2_0_branch2a_w`, `fc1000_w`. The norms of Detectron's file are only a scale and a shift,
//! `res_conv1_bn_s` and `_bn_b`; detectron2's copy has their statistics, `res_conv1_bn_gamma`,
//! `_bn_beta`, `_bn_running_mean` and `_bn_running_var`.

use std::collections::BTreeMap;

use super::{Dialect, EPS, Translated};
use crate::weights::container::Values;
use crate::weights::report::few;

/// Tensors of the backbone begin so in our names, without the prefix of a detector.
const STEM: &str = "conv1.weight";
/// Endings of a norm's tensors, and ours; `rm` and `riv` as detectron2 reads them.
const NORM: [(&str, &str); 8] = [
    ("_bn_s", "weight"),
    ("_bn_gamma", "weight"),
    ("_bn_b", "bias"),
    ("_bn_beta", "bias"),
    ("_bn_rm", "running_mean"),
    ("_bn_running_mean", "running_mean"),
    ("_bn_riv", VARIANCE),
    ("_bn_running_var", VARIANCE),
];
const VARIANCE: &str = "running_var";

/// True if a tensor has a name of Detectron.
pub(super) fn is_name(name: &str) -> bool {
    name == "conv1_w" || name.starts_with("res2_0_branch")
}

/// Our name, as in torchvision's classifier, without a prefix. `None` for a tensor that this model
/// has no place for.
fn ours(name: &str) -> Option<String> {
    let norm = NORM.iter().find_map(|(end, value)| Some((name.strip_suffix(end)?, *value)));
    let (module, value, is_norm) = match norm {
        Some((module, value)) => (module, value, true),
        None => (name.strip_suffix("_w")?, "weight", false),
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
    let is_cut = stored.keys().any(|name| name.ends_with("_bn_gamma"));
    let (biases, kept): (BTreeMap<_, _>, BTreeMap<_, _>) =
        stored.into_iter().partition(|(name, _)| is_bias(name));
    let tensors = super::renamed(kept, |name| ours(name).unwrap_or_else(|| name.to_string()))?;
    let mut notes = Vec::new();
    if !has_statistics(&tensors) {
        if is_cut {
            return Err(
                "its norms have `_bn_gamma` and no `_bn_running_var`: get the whole file".into()
            );
        }
        notes.push(
            "the norms of Detectron have no statistics: mean 0 and a variance that leaves their \
             scale as it is"
                .to_string(),
        );
    }
    if !biases.is_empty() {
        let names: Vec<String> = biases.keys().map(|name| format!("`{name}`")).collect();
        notes.push(format!("left out, as Detectron does: {}", few(&names)));
    }
    Ok(Translated { dialect: Dialect::Detectron, tensors, pixels: None, notes })
}

/// True if norms have their statistics, as in detectron2's file.
pub(in crate::weights) fn has_statistics(tensors: &BTreeMap<String, Values>) -> bool {
    tensors.keys().any(|name| name.ends_with(VARIANCE))
}

/// Makes each norm compute what it does in its file, for a model whose norms add `eps` to the
/// variance.
///
/// Without statistics the scale stays bitwise as it is: mean 0 and variance 1 - `eps`, rounded to
/// f32. The fold `scale / sqrt(variance + eps)` is exact although the variance is rounded: that
/// moves the square root by at most 2^-26, and f32 has 2^-25 and more to either side of each
/// number. With statistics, which are for norms that add [`EPS`], the variance takes up what `eps`
/// lacks of that.
pub(in crate::weights) fn fill_statistics(tensors: &mut BTreeMap<String, Values>, eps: f64) {
    if has_statistics(tensors) {
        let lacking = (EPS - eps).max(0.0);
        let variances = tensors.iter_mut().filter(|(name, _)| name.ends_with(VARIANCE));
        for value in variances.flat_map(|(_, (_, values))| values) {
            *value = (f64::from(*value) + lacking) as f32;
        }
        return;
    }
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
        for (what, value) in [("running_mean", 0.0), (VARIANCE, (1.0 - eps) as f32)] {
            let name = format!("{module}.{what}");
            tensors.entry(name).or_insert_with(|| (shape.clone(), vec![value; len]));
        }
    }
}
