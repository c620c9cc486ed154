//! The report about loading weights, tensor by tensor, and the check that everything required was
//! loaded.

use std::collections::BTreeMap;
use std::path::Path;

use super::names::part;
use crate::error::EngineError;
use crate::model::depends_on_classes;

/// Maximum number of names in messages; the log lists all.
const LISTED: usize = 3;

/// A tensor's name and shape, in torchvision's layout.
pub type Named = (String, Vec<usize>);

/// A tensor whose shape in the file differs from the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Its name.
    pub name: String,
    /// Its shape in the model.
    pub model: Vec<usize>,
    /// Its shape in the file.
    pub file: Vec<usize>,
}

/// Result for each tensor when weights are loaded.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Parameters filled from the file.
    pub loaded: Vec<String>,
    /// Parameters that are missing from the file.
    pub missing: Vec<Named>,
    /// Parameters whose shape in the file is different.
    pub mismatched: Vec<Mismatch>,
    /// Parameters that were not requested.
    pub left: Vec<Named>,
    /// Tensors in the file that are not parameters of the model.
    pub unexpected: Vec<Named>,
    /// Unexpected tensors that belong to a requested part of the model, which means that the file
    /// is for a different model.
    pub misfits: Vec<Named>,
    /// Additional notes for the user.
    pub notes: Vec<String>,
}

/// The parameters that may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tolerance {
    /// None: for evaluation, prediction, and backbones.
    Nothing,
    /// Parameters whose shape depends on the number of classes.
    Classes,
}

impl LoadReport {
    /// Parameters that keep their initial values, with their shapes.
    pub fn initial(&self) -> impl Iterator<Item = (&str, &[usize])> {
        let named = self.missing.iter().chain(&self.left).map(|(n, s)| (n.as_str(), s.as_slice()));
        named.chain(self.mismatched.iter().map(|m| (m.name.as_str(), m.model.as_slice())))
    }

    /// A summary in one line. If anything is missing or unexpected, also a table by part of the
    /// model, and the first names for each outcome.
    pub fn describe(&self) -> String {
        let initial: Vec<Named> = self.initial().map(|(n, s)| (n.into(), s.to_vec())).collect();
        let mut text = format!(
            "{} parameters loaded, {} initialised, {} missing, {} mismatched; {} tensors \
             unexpected",
            self.loaded.len(),
            initial.len(),
            self.missing.len(),
            self.mismatched.len(),
            self.unexpected.len(),
        );
        if !initial.is_empty() || !self.unexpected.is_empty() {
            text += &self.table();
        }
        let mismatched: Vec<String> = self.mismatched.iter().map(Mismatch::describe).collect();
        for (kind, names) in [
            ("initialised", names(&initial)),
            ("missing", names(&self.missing)),
            ("mismatched", mismatched),
            ("unexpected", names(&self.unexpected)),
        ] {
            if !names.is_empty() {
                text += &format!("\n  {kind}: {}", few(&names));
            }
        }
        for note in &self.notes {
            text += &format!("\n  {note}");
        }
        text
    }

    /// A table with the number of tensors by outcome, with a row for each part of the model or
    /// file.
    fn table(&self) -> String {
        const OUTCOMES: [&str; 4] = ["loaded", "initialised", "missing", "unexpected"];
        let mut parts: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
        let mut count = |name, outcome: usize| parts.entry(part(name)).or_default()[outcome] += 1;
        self.loaded.iter().for_each(|name| count(name, 0));
        self.initial().for_each(|(name, _)| count(name, 1));
        self.missing.iter().for_each(|(name, _)| count(name, 2));
        self.unexpected.iter().for_each(|(name, _)| count(name, 3));
        let width = parts.keys().map(|part| part.len()).max().unwrap_or(0);
        let row = |part: &str, cells: [String; 4]| {
            let cells = cells.iter().zip(OUTCOMES).map(|(cell, outcome)| {
                let width = outcome.len();
                format!("  {cell:>width$}")
            });
            format!("\n  {part:width$}{}", cells.collect::<String>())
        };
        let rows = parts.iter().map(|(part, counts)| row(part, counts.map(|n| n.to_string())));
        row("", OUTCOMES.map(String::from)) + &rows.collect::<String>()
    }

    /// Logs every tensor that was not loaded as expected.
    pub fn log(&self, path: &Path) {
        let (path, loaded) = (path.display(), self.loaded.len());
        tracing::info!(%path, loaded, "loaded weights");
        let log = |kind: &str, (name, shape): (&str, &[usize])| {
            tracing::debug!(name, ?shape, "{kind}");
        };
        self.initial().for_each(|tensor| log("initialised", tensor));
        for Mismatch { name, model, file } in &self.mismatched {
            tracing::debug!(name, ?model, ?file, "mismatched");
        }
        for (kind, list) in [("missing", &self.missing), ("unexpected", &self.unexpected)] {
            list.iter().for_each(|(name, shape)| log(kind, (name, shape)));
        }
    }

    /// Checks that all required parameters were loaded, and that the file is not for a different
    /// model.
    ///
    /// # Errors
    /// [`EngineError::Weights`] lists the first problems, and ends with the advice `mend`.
    pub fn check(&self, path: &Path, tolerance: Tolerance, mend: &str) -> Result<(), EngineError> {
        self.check_some(path)?;
        let counts = |name: &str, shape: &[usize]| {
            tolerance == Tolerance::Nothing || !depends_on_classes(name, shape)
        };
        let missing = self.missing.iter().filter(|(name, shape)| counts(name, shape));
        let missing: Vec<Named> = missing.cloned().collect();
        let mismatched = self.mismatched.iter().filter(|m| counts(&m.name, &m.model));
        let mismatched: Vec<String> = mismatched.map(Mismatch::describe).collect();
        let mut gaps = Vec::new();
        for (count, what, list) in [
            (missing.len(), "parameters of the model are not in it", names(&missing)),
            (mismatched.len(), "parameters have a different shape in it", mismatched),
            (self.misfits.len(), "of its tensors do not exist in the model", names(&self.misfits)),
        ] {
            if count > 0 {
                gaps.push(format!("{count} {what}: {}", few(&list)));
            }
        }
        if gaps.is_empty() {
            return Ok(());
        }
        let reason = format!("it does not fit the model: {}; {mend}", gaps.join("; "));
        Err(EngineError::Weights { path: path.to_path_buf(), reason })
    }

    /// Checks that at least one parameter was loaded.
    ///
    /// # Errors
    /// [`EngineError::Weights`] lists the first names in the file.
    pub fn check_some(&self, path: &Path) -> Result<(), EngineError> {
        if !self.loaded.is_empty() {
            return Ok(());
        }
        let mismatched = self.mismatched.iter().map(Mismatch::describe);
        let found: Vec<String> = mismatched.chain(names(&self.unexpected)).collect();
        let reason = format!(
            "none of its tensors has the name and shape of a parameter of the model: {}; use the \
             config that the weights were trained with, or rename the tensors (docs/weights.md \
             lists the supported names)",
            few(&found)
        );
        Err(EngineError::Weights { path: path.to_path_buf(), reason })
    }

    /// Records an unused tensor of the file. `parts` are the requested parts of the model.
    pub(super) fn add_unexpected(&mut self, name: &str, shape: &[usize], parts: &[&str]) {
        let tensor = (name.to_string(), shape.to_vec());
        if parts.contains(&part(name)) {
            self.misfits.push(tensor.clone());
        }
        self.unexpected.push(tensor);
    }
}

impl Mismatch {
    fn describe(&self) -> String {
        format!("`{}` ({:?} in the file, {:?} in the model)", self.name, self.file, self.model)
    }
}

fn names(list: &[Named]) -> Vec<String> {
    list.iter().map(|(name, shape)| format!("`{name}` {shape:?}")).collect()
}

/// The first names, and the number of omitted names.
pub(super) fn few(names: &[String]) -> String {
    let shown = names[..names.len().min(LISTED)].join(", ");
    match names.len().saturating_sub(LISTED) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}
