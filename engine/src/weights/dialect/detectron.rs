//! Caffe2's names of a ResNet, as in both published versions of `R-50.pkl`: `conv1_w`,
//! `res2_0_branch2a_w`, `fc1000_w`. In Detectron's version, a norm is only a scale and a shift
//! (`res_conv1_bn_s`, `_bn_b`). detectron2's version also has the statistics (`res_conv1_bn_gamma`,
//! `_bn_beta`, `_bn_running_mean`, `_bn_running_var`).

use std::collections::BTreeMap;

use super::pattern::{HERE, Names};
use super::{EPS, PLAIN, Rules};
use crate::weights::container::Values;
use crate::weights::report::few;

const VARIANCE: &str = "running_var";

pub(super) static RULES: Rules = Rules {
    name: "Detectron",
    marks: &["conv1_w", "res2_0_branch"],
    // Names as in torchvision's classifier, without the prefix of the backbone.
    names: &[(
        HERE,
        &[
            ("conv1", "conv1"),
            ("bn1", "res_conv1_bn"),
            ("layer{1}.{0}.conv1", "res{2}_{0}_branch2a"),
            ("layer{1}.{0}.conv2", "res{2}_{0}_branch2b"),
            ("layer{1}.{0}.conv3", "res{2}_{0}_branch2c"),
            ("layer{1}.{0}.bn1", "res{2}_{0}_branch2a_bn"),
            ("layer{1}.{0}.bn2", "res{2}_{0}_branch2b_bn"),
            ("layer{1}.{0}.bn3", "res{2}_{0}_branch2c_bn"),
            ("layer{1}.{0}.downsample.0", "res{2}_{0}_branch1"),
            ("layer{1}.{0}.downsample.1", "res{2}_{0}_branch1_bn"),
        ],
    )],
    // `rm` is the mean and `riv` the variance, as in detectron2's code.
    ends: &[
        (".weight", "_w"),
        (".weight", "_s"),
        (".weight", "_gamma"),
        (".bias", "_b"),
        (".bias", "_beta"),
        (".running_mean", "_rm"),
        (".running_mean", "_running_mean"),
        (".running_var", "_riv"),
        (".running_var", "_running_var"),
    ],
    is_left_out: is_bias_of_convolution,
    notes,
    ..PLAIN
};

/// True for the bias of a convolution. Detectron and detectron2 skip these biases too, since a norm
/// follows.
fn is_bias_of_convolution(name: &str) -> bool {
    let names = || Names::of_theirs(RULES.names, RULES.ends, std::iter::empty());
    name.ends_with("_b") && !name.ends_with("_bn_b") && names().ours(name).is_some()
}

fn notes(names: &BTreeMap<String, String>, biases: &[String]) -> Result<Vec<String>, String> {
    let mut notes = Vec::new();
    if !has_statistics(names.keys()) {
        if names.values().any(|name| name.ends_with("_bn_gamma")) {
            return Err(
                "its norms have `_bn_gamma` but no `_bn_running_var`: get the complete file".into(),
            );
        }
        notes.push(
            "Detectron's norms have no statistics: mean and variance are set so that their scale \
             stays unchanged"
                .to_string(),
        );
    }
    if !biases.is_empty() {
        let names: Vec<String> = biases.iter().map(|name| format!("`{name}`")).collect();
        notes.push(format!("skipped, as in Detectron: {}", few(&names)));
    }
    Ok(notes)
}

/// True if the norms have statistics, as in detectron2's version.
pub(in crate::weights) fn has_statistics<'a>(mut names: impl Iterator<Item = &'a String>) -> bool {
    names.any(|name| name.ends_with(VARIANCE))
}

/// Adapts the statistics of norms to a model whose norms add `eps` to the variance, so that they
/// compute the same as in the file's project.
///
/// Without statistics, the mean becomes 0 and the variance 1 - `eps`, rounded to f32. The folded
/// scale `scale / sqrt(variance + eps)` is bit-identical to `scale`: rounding the variance changes
/// the square root by at most 2^-26, while adjacent f32 values differ by at least 2^-25. Statistics
/// in the file are for norms that add [`EPS`]; if `eps` is smaller, the difference is added to the
/// variances.
pub(in crate::weights) fn fill_statistics(tensors: &mut BTreeMap<String, Values>, eps: f64) {
    if has_statistics(tensors.keys()) {
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
