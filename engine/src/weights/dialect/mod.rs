//! Dialects: tensor names, layouts, and order of class rows in other projects, one module each.
//! onegraph uses the names of current torchvision.

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

/// The project whose tensor names a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// torchvision, with old or new names, and onegraph.
    Torchvision,
    /// detectron2: the background is the last class, and has no rows in the box and mask
    /// predictors.
    Detectron2,
    /// Detectron and Caffe2, for backbones only. Detectron's norms have no statistics.
    Detectron,
    /// maskrcnn-benchmark, from which torchvision's models were derived.
    Benchmark,
    /// Tensorpack: TensorFlow's layouts; the background is the first class, and has no rows in the
    /// mask predictor.
    Tensorpack,
}

/// Projects that are recognised by the prefix of a tensor name. All other files are assumed to be
/// torchvision's.
const MARKED: [Dialect; 4] =
    [Dialect::Detectron, Dialect::Detectron2, Dialect::Benchmark, Dialect::Tensorpack];

/// True if the config's model has a property that the project's models lack, and a description of
/// the property.
pub(super) type Difference = (bool, String);

/// Makes notes about a file, from the map of our names to the original names, and the names of
/// skipped tensors.
type Notes = fn(&BTreeMap<String, String>, &[String]) -> Result<Vec<String>, String>;

/// Conversion of a project's tensors, and properties of its models.
pub(super) struct Rules {
    /// The project's name.
    name: &'static str,
    /// Name prefixes that only this project uses.
    marks: &'static [&'static str],
    /// Module names, as pairs of our name and the project's.
    names: &'static [Group],
    /// Suffixes that follow a module's name, as pairs of ours and the project's. If empty, the last
    /// component of the name is the suffix, and the same in both.
    ends: &'static [(&'static str, &'static str)],
    /// True for tensors to skip: they are not weights, or the project itself skips them.
    is_left_out: fn(&str) -> bool,
    /// Name prefixes that are rejected if no pattern matches, and the reason.
    refused: (&'static [&'static str], &'static str),
    /// Converts a tensor to torchvision's layout.
    layout: fn(Values) -> Values,
    background: Background,
    notes: Notes,
    /// Default mean and standard deviation of pixels, in 0..255.
    pub(super) pixels: [[f32; 3]; 2],
    /// The preset with the project's conventions, and overrides for it.
    pub(super) like: Option<(&'static str, &'static [&'static str])>,
    /// Properties that no model of the project has, in addition to properties that only onegraph
    /// has.
    pub(super) lacks: fn(&Config) -> Vec<Difference>,
}

/// The position of the background in a project's models.
struct Background {
    /// True if it is the last row of the classifier, false if it is the first, as in onegraph.
    is_last: bool,
    /// Predictors without rows for the background, and their number of rows per class.
    lacking: &'static [(&'static str, usize)],
    /// The note for the user about added rows.
    note: &'static str,
}

/// Rules that change nothing: torchvision's tensors.
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
/// Prefix of the layer that predicts box deltas: four per class, or four class-agnostic ones.
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

    /// Recognises the project from tensor names.
    fn of<'a>(names: impl Iterator<Item = &'a String> + Clone) -> Self {
        let has = |mark: &&str| names.clone().any(|name| name.starts_with(*mark));
        let marked = MARKED.into_iter().find(|dialect| dialect.rules().marks.iter().any(has));
        marked.unwrap_or(Dialect::Torchvision)
    }

    /// Converts parameters to the project's names and order of class rows.
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

/// A file's tensors, translated to our names.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) dialect: Dialect,
    pub(super) tensors: BTreeMap<String, Values>,
    /// Mean and standard deviation of pixels, in 0..255 and in the file's channel order, if the
    /// file has them (detectron2).
    pub(super) pixels: Option<[[f32; 3]; 2]>,
    /// Notes for the user.
    pub(super) notes: Vec<String>,
}

/// Translates the tensors of a file.
///
/// # Errors
/// A message: a tensor that occurs twice under different names, a rejected name, or rows that do
/// not match the number of classes.
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
            return Err(format!("`{theirs}` is not supported: {why}"));
        }
        let name = found.unwrap_or_else(|| theirs.clone());
        if tensors.insert(name.clone(), (rules.layout)(values)).is_some() {
            return Err(format!("it contains `{name}` twice, under different names"));
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
    /// Number of rows per class of a predictor without background rows; `None` for other tensors.
    fn rows(&self, name: &str) -> Option<usize> {
        let found = self.lacking.iter().find(|(predictor, _)| name.starts_with(predictor));
        found.map(|(_, rows)| *rows)
    }

    /// Moves the background to the first row, and adds rows of zeros where the project has none.
    /// Returns true if any were added.
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
            // A layer with exactly four deltas is class-agnostic, except in a model with one class
            // that is not a cascade.
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
                    "`{}` has {first} rows instead of {rows} for each of {classes} classes: \
                     class-agnostic masks are not supported",
                    theirs[name]
                ));
            }
            *first += rows;
            values.splice(0..0, vec![0.0; rows * row]);
            has_added = true;
        }
        Ok(has_added)
    }

    /// Inverse of [`Self::add`], for one tensor under our name.
    fn remove(&self, name: &str, (shape, values): &mut Values) {
        let row = values.len() / shape.first().copied().unwrap_or(1).max(1);
        let plain = without_stage(name).unwrap_or_else(|| name.to_string());
        if self.is_last && plain.starts_with(CLASSIFIER) {
            values.rotate_left(row);
        }
        // A layer with exactly four deltas is class-agnostic: class-specific layers of onegraph
        // have at least eight, including the background's.
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
