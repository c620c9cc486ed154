//! Names of tensors: those of torchvision, detectron2, Detectron, maskrcnn-benchmark and
//! Tensorpack, and the order of class rows. Ours are torchvision's of today.

mod benchmark;
mod detectron;
mod detectron2;
mod tensorpack;
mod torchvision;

use std::collections::BTreeMap;

use super::container::Values;

pub(super) use detectron::{fill_statistics, has_statistics};
pub(super) use detectron2::from_ours as detectron2_from_ours;

/// The constant that torchvision's and detectron2's frozen batch norms add to the variance.
pub(crate) const EPS: f64 = 1e-5;

/// The project whose names a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// torchvision's, of either generation, and what onegraph writes itself.
    Torchvision,
    /// detectron2's: the background is the last class, and has no rows for boxes and masks.
    Detectron2,
    /// Detectron's and Caffe2's, read for the backbone; Detectron's norms have no statistics.
    Detectron,
    /// maskrcnn-benchmark's, which torchvision's descend from.
    Benchmark,
    /// Tensorpack's: TensorFlow's layouts; the background is the first class, and has no rows for
    /// masks.
    Tensorpack,
}

impl Dialect {
    /// The project's name.
    pub fn name(self) -> &'static str {
        match self {
            Dialect::Torchvision => "torchvision",
            Dialect::Detectron2 => "detectron2",
            Dialect::Detectron => "Detectron",
            Dialect::Benchmark => "maskrcnn-benchmark",
            Dialect::Tensorpack => "Tensorpack",
        }
    }
}

/// Tensors under our names.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) dialect: Dialect,
    pub(super) tensors: BTreeMap<String, Values>,
    /// detectron2's mean and standard deviation of the pixels, 0..255, in its order of channels.
    pub(super) pixels: Option<[[f32; 3]; 2]>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Translates the tensors of a file.
///
/// # Errors
/// In words: a tensor that is there twice, under two names, or rows that are not those of classes.
pub(super) fn translate(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let has = |test: fn(&str) -> bool| stored.keys().any(|name| test(name));
    if has(detectron::is_name) {
        detectron::to_ours(stored)
    } else if has(detectron2::is_name) {
        detectron2::to_ours(stored)
    } else if has(benchmark::is_name) {
        benchmark::to_ours(stored)
    } else if has(tensorpack::is_name) {
        tensorpack::to_ours(stored)
    } else {
        let tensors = renamed(stored, torchvision::current)?;
        Ok(Translated { dialect: Dialect::Torchvision, tensors, pixels: None, notes: vec![] })
    }
}

/// A module's name by the pattern `to`, if it has one by `from`: the `#` of both is a number, that
/// of `to` greater by `offset`. Patterns without one are names.
fn matched(module: &str, from: &str, to: &str, offset: isize) -> Option<String> {
    let Some((before, after)) = from.split_once('#') else {
        return (module == from).then(|| to.to_string());
    };
    let number = module.strip_prefix(before)?.strip_suffix(after)?.parse::<usize>().ok()?;
    Some(to.replace('#', &number.checked_add_signed(offset)?.to_string()))
}

/// The tensors under new names.
fn renamed(
    stored: BTreeMap<String, Values>,
    name: impl Fn(&str) -> String,
) -> Result<BTreeMap<String, Values>, String> {
    let mut tensors = BTreeMap::new();
    for (old, values) in stored {
        let new = name(&old);
        if tensors.insert(new.clone(), values).is_some() {
            return Err(format!("it holds `{new}` twice, under two of its names"));
        }
    }
    Ok(tensors)
}

#[cfg(test)]
mod tests;
