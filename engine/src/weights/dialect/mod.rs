//! Dialects: the names that other projects give to tensors, their layouts, and their rows of
//! classes; a file each. Our names are torchvision's of today.

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

/// Projects whose files are known by a name; any other file has torchvision's.
const MARKED: [Dialect; 4] =
    [Dialect::Detectron, Dialect::Detectron2, Dialect::Benchmark, Dialect::Tensorpack];

/// True if a model has a property that the project's models lack; and the property.
pub(super) type Difference = (bool, String);

/// Notes on the tensors of a file: of their names by ours, and of the names that were left out.
type Notes = fn(&BTreeMap<String, String>, &[String]) -> Result<Vec<String>, String>;

/// A project's tensors, and its models where they differ from others of the same tensors.
pub(super) struct Rules {
    /// The project's name.
    name: &'static str,
    /// Beginnings of names that only this project gives.
    marks: &'static [&'static str],
    /// Names of modules.
    names: &'static [Group],
    /// Ends of names behind the module, ours first; without any, both are the last word.
    ends: &'static [(&'static str, &'static str)],
    /// True for a tensor that is no weight, or that the project leaves out itself.
    is_left_out: fn(&str) -> bool,
    /// Beginnings of names that are refused where no pattern has them, and why.
    refused: (&'static [&'static str], &'static str),
    /// A tensor in torchvision's layout.
    layout: fn(Values) -> Values,
    background: Background,
    notes: Notes,
    /// Mean and standard deviation of the pixels, 0..255, by the project's defaults.
    pub(super) pixels: [[f32; 3]; 2],
    /// The preset with the conventions of the project's models, and keys that change it.
    pub(super) like: Option<(&'static str, &'static [&'static str])>,
    /// Properties that no model of the project has, beside those that none of any project has.
    pub(super) lacks: fn(&Config) -> Vec<Difference>,
}

/// Where a project's models have the background.
struct Background {
    /// The last row of the classifier; else the first one, as here.
    is_last: bool,
    /// Predictors without rows for it, and how many they have for each class.
    lacking: &'static [(&'static str, usize)],
    /// The note on the rows that are added.
    note: &'static str,
}

/// A project whose tensors are as torchvision's.
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
    // Blue first.
    pixels: [[103.53, 116.28, 123.675], [1.0; 3]],
    like: None,
    lacks: |_| vec![],
};

const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.";
/// The deltas of boxes, four for each class or for all.
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

    /// The project that gives these names.
    fn of<'a>(names: impl Iterator<Item = &'a String> + Clone) -> Self {
        let has = |mark: &&str| names.clone().any(|name| name.starts_with(*mark));
        let marked = MARKED.into_iter().find(|dialect| dialect.rules().marks.iter().any(has));
        marked.unwrap_or(Dialect::Torchvision)
    }

    /// Parameters under the project's names, with its rows of the background.
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
    /// Mean and standard deviation of the pixels, 0..255, in the file's order of channels, if it
    /// has them as detectron2's do.
    pub(super) pixels: Option<[[f32; 3]; 2]>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Translates the tensors of a file.
///
/// # Errors
/// In words: a tensor that is there twice, under two names, or rows that are not those of classes.
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
    /// Rows for each class in a predictor that has none for the background.
    fn rows(&self, name: &str) -> Option<usize> {
        let found = self.lacking.iter().find(|(predictor, _)| name.starts_with(predictor));
        found.map(|(_, rows)| *rows)
    }

    /// Puts the background first, with rows of 0 where the project has none: true if there are any.
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
            // Four deltas are those of all classes, but in a plain model of one class.
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

    /// The reverse of [`Self::add`], for a tensor of ours.
    fn remove(&self, name: &str, (shape, values): &mut Values) {
        let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
        let plain = without_stage(name).unwrap_or_else(|| name.to_string());
        if self.is_last && plain.starts_with(CLASSIFIER) {
            values.rotate_left(row);
        }
        // Deltas of each class are eight or more: the background has some too.
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
