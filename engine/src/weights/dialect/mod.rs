//! Dialects: other projects' tensor names, layouts, and class rows; one file each. onegraph's names
//! are current torchvision's.

mod benchmark;
mod detectron;
mod detectron2;
mod pattern;
mod tensorpack;
mod torchvision;

use std::collections::BTreeMap;

use super::container::Values;
use super::names::without_stage;
use crate::config::Config;
use pattern::{Group, Names};

pub(super) use detectron::{fill_statistics, has_statistics};
pub use detectron2::settings as detectron2_settings;

/// The epsilon that torchvision's and detectron2's frozen batch norms add to the variance.
pub(crate) const EPS: f64 = 1e-5;

/// The project whose tensor names a file has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// torchvision's, old and new, and onegraph's own files.
    Torchvision,
    /// detectron2's: the background is the last class, and has no rows for boxes and masks.
    Detectron2,
    /// Detectron's and Caffe2's, read for the backbone; Detectron's norms have no statistics.
    Detectron,
    /// maskrcnn-benchmark's, the origin of torchvision's.
    Benchmark,
    /// Tensorpack's: TensorFlow's layouts; the background is the first class, and has no rows for
    /// masks.
    Tensorpack,
}

/// Projects whose files are recognised by a name; any other file has torchvision's.
const MARKED: [Dialect; 4] =
    [Dialect::Detectron, Dialect::Detectron2, Dialect::Benchmark, Dialect::Tensorpack];

/// True if a model has a property that the project's models lack; and the property.
pub(super) type Difference = (bool, String);

/// Notes on the tensors of a file: from their original names by ours, and the skipped names.
type Notes = fn(&BTreeMap<String, String>, &[String]) -> Result<Vec<String>, String>;

/// A project's tensors, and the properties of its models.
pub(super) struct Rules {
    /// The project's name.
    name: &'static str,
    /// Prefixes of names that only this project uses.
    marks: &'static [&'static str],
    /// Names of modules.
    names: &'static [Group],
    /// Suffixes of names after the module, ours first; without any, both are the last word.
    ends: &'static [(&'static str, &'static str)],
    /// True for a tensor that is not a weight, or that the project skips itself.
    is_left_out: fn(&str) -> bool,
    /// Prefixes of names that are rejected unless a pattern matches, and why.
    refused: (&'static [&'static str], &'static str),
    /// Converts a tensor to torchvision's layout.
    layout: fn(Values) -> Values,
    background: Background,
    notes: Notes,
    /// Mean and standard deviation of the pixels, 0..255, in the project's defaults.
    pub(super) pixels: [[f32; 3]; 2],
    /// The preset with the conventions of the project's models, and overrides of it.
    pub(super) like: Option<(&'static str, &'static [&'static str])>,
    /// Properties that no model of the project has, in addition to those that no other project has.
    pub(super) lacks: fn(&Config) -> Vec<Difference>,
}

/// The position of the background in a project's models.
struct Background {
    /// In the last row of the classifier; else in the first one, as here.
    is_last: bool,
    /// Predictors without rows for it, and their rows per class.
    lacking: &'static [(&'static str, usize)],
    /// The note on the rows that are added.
    note: &'static str,
}

/// A project whose tensors equal torchvision's.
const PLAIN: Rules = Rules {
    name: "torchvision",
    marks: &[],
    names: &[],
    ends: &[],
    is_left_out: |_| false,
    refused: (&[], ""),
    layout: |values| values,
    background: Background { is_last: false, lacking: &[], note: "" },
    notes: |_, _| Ok(vec![]),
    // BGR order.
    pixels: [[103.53, 116.28, 123.675], [1.0; 3]],
    like: None,
    lacks: |_| vec![],
};

const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.";
/// The box deltas, four per class or class-agnostic.
const DELTAS: &str = "roi_heads.box_predictor.bbox_pred.";
const MASKS: &str = "roi_heads.mask_predictor.mask_fcn_logits.";

impl Dialect {
    /// The project's name.
    pub fn name(self) -> &'static str {
        self.rules().name
    }

    pub(super) fn rules(self) -> &'static Rules {
        match self {
            Dialect::Torchvision => &torchvision::RULES,
            Dialect::Detectron2 => &detectron2::RULES,
            Dialect::Detectron => &detectron::RULES,
            Dialect::Benchmark => &benchmark::RULES,
            Dialect::Tensorpack => &tensorpack::RULES,
        }
    }

    /// The project that uses these names.
    fn of<'a>(names: impl Iterator<Item = &'a String> + Clone) -> Self {
        let has = |mark: &&str| names.clone().any(|name| name.starts_with(*mark));
        let marked = MARKED.into_iter().find(|dialect| dialect.rules().marks.iter().any(has));
        marked.unwrap_or(Dialect::Torchvision)
    }

    /// Parameters under the project's names, with its background rows.
    pub(super) fn export(self, params: Vec<(String, Values)>) -> Vec<(String, Values)> {
        let rules = self.rules();
        let names = Names::of_ours(rules.names, params.iter().map(|(name, _)| name));
        let translate = |(name, mut values): (String, Values)| {
            rules.background.remove(&name, &mut values);
            (names.theirs(&name), values)
        };
        params.into_iter().map(translate).collect()
    }
}

/// Tensors under our names.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) dialect: Dialect,
    pub(super) tensors: BTreeMap<String, Values>,
    /// Mean and standard deviation of the pixels, 0..255, in the file's channel order, if it has
    /// them like detectron2.
    pub(super) pixels: Option<[[f32; 3]; 2]>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Translates the tensors of a file.
///
/// # Errors
/// A message: a tensor that occurs twice, under two names, or rows that do not match the classes.
pub(super) fn translate(stored: BTreeMap<String, Values>) -> Result<Translated, String> {
    let dialect = Dialect::of(stored.keys());
    let rules = dialect.rules();
    let constant = |name: &str| stored.get(name)?.1.as_slice().try_into().ok();
    let pixels = constant("pixel_mean").zip(constant("pixel_std")).map(|(mean, std)| [mean, std]);
    let names = Names::of_theirs(rules.names, rules.ends, stored.keys());
    let (mut tensors, mut origins, mut left_out) = (BTreeMap::new(), BTreeMap::new(), vec![]);
    for (theirs, values) in stored {
        if (rules.is_left_out)(&theirs) {
            left_out.push(theirs);
            continue;
        }
        let found = names.ours(&theirs);
        let (parts, why) = rules.refused;
        if found.is_none() && parts.iter().any(|part| theirs.starts_with(part)) {
            return Err(format!("`{theirs}` has no place here: {why}"));
        }
        let name = found.unwrap_or_else(|| theirs.clone());
        if tensors.insert(name.clone(), (rules.layout)(values)).is_some() {
            return Err(format!("it holds `{name}` twice, under two of its names"));
        }
        origins.insert(name, theirs);
    }
    let mut notes = (rules.notes)(&origins, &left_out)?;
    if rules.background.add(&mut tensors, &origins)? {
        notes.push(rules.background.note.into());
    }
    Ok(Translated { dialect, tensors, pixels, notes })
}

impl Background {
    /// Rows per class in a predictor without background rows.
    fn rows(&self, name: &str) -> Option<usize> {
        let found = self.lacking.iter().find(|(predictor, _)| name.starts_with(predictor));
        found.map(|(_, rows)| *rows)
    }

    /// Moves the background first, with rows of 0 if the project has none: true if there are any.
    fn add(
        &self,
        tensors: &mut BTreeMap<String, Values>,
        theirs: &BTreeMap<String, String>,
    ) -> Result<bool, String> {
        let outputs = tensors.get(&format!("{CLASSIFIER}bias")).map(|(_, values)| values.len());
        let classes = outputs.and_then(|outputs| outputs.checked_sub(1));
        let is_cascade = tensors.keys().any(|name| without_stage(name).is_some());
        let mut has_added = false;
        for (name, (shape, values)) in tensors {
            let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
            let plain = without_stage(name).unwrap_or_else(|| name.clone());
            if self.is_last && plain.starts_with(CLASSIFIER) {
                values.rotate_right(row);
            }
            // Four deltas are class-agnostic, except in a plain model with one class.
            let is_shared = shape.first() == Some(&4) && (is_cascade || classes != Some(1));
            if plain.starts_with(DELTAS) && is_shared {
                continue;
            }
            let (Some(rows), Some(classes), Some(first)) =
                (self.rows(&plain), classes, shape.first_mut())
            else {
                continue;
            };
            if *first != rows * classes {
                return Err(format!(
                    "`{}` has {first} rows, and not {rows} for each of {classes} classes: masks \
                     that all classes share are not read",
                    theirs[name]
                ));
            }
            *first += rows;
            values.splice(0..0, vec![0.0; rows * row]);
            has_added = true;
        }
        Ok(has_added)
    }

    /// The inverse of [`Self::add`], for one of our tensors.
    fn remove(&self, name: &str, (shape, values): &mut Values) {
        let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
        let plain = without_stage(name).unwrap_or_else(|| name.to_string());
        if self.is_last && plain.starts_with(CLASSIFIER) {
            values.rotate_left(row);
        }
        // Per-class deltas are eight or more: the background has some too.
        let is_shared = plain.starts_with(DELTAS) && shape.first() == Some(&4);
        if let (Some(rows), Some(first), false) = (self.rows(&plain), shape.first_mut(), is_shared)
        {
            *first -= rows;
            values.drain(..rows * row);
        }
    }
}

#[cfg(test)]
mod tests;
