//! Fine-tuning for different classes. The predictors' rows of classes whose name is also in the
//! file are copied; all others are reinitialised.

use dali::plain;
use graph::StateSet;

use super::file::WeightsFile;
use super::layout::{from_torchvision, to_torchvision};
use crate::classes::NO_CATEGORY;
use crate::model::{Param, class_rows, depends_on_classes};

/// Reorders the channels of a loaded keypoint predictor from `theirs`, the keypoints in the file,
/// to `ours`, the keypoints of the model. Keypoints that are missing in the file get their initial
/// values for `seed`. Returns a note if any channel changes.
pub(crate) fn map_keypoints(
    theirs: &[String],
    ours: &[String],
    seed: u64,
    params: &[Param],
    state: &mut StateSet,
) -> Option<String> {
    if theirs == ours || theirs.is_empty() || theirs.len() != ours.len() {
        return None;
    }
    let place = |name| theirs.iter().position(|known| known == name);
    let from: Vec<Option<usize>> = ours.iter().map(place).collect();
    for param in params.iter().filter(|param| param.name.contains(".kps_score_lowres.")) {
        let Some(tensor) = state.get_mut(&param.name) else { continue };
        let initial = super::init::values(param, seed);
        let (rows, initial) = (tensor.as_f32_mut(), initial.chunks_exact(ours.len()));
        for (row, initial) in rows.chunks_exact_mut(ours.len()).zip(initial) {
            let loaded = row.to_vec();
            for ((to, from), initial) in row.iter_mut().zip(&from).zip(initial) {
                *to = from.map_or(*initial, |from| loaded[from]);
            }
        }
    }
    let (theirs, names) = (theirs.join(", "), ours.join(", "));
    Some(plain(&match from.contains(&None) {
        false => format!("note: the file's keypoints are {theirs}: matched by name to {names}"),
        true => format!(
            "warning: the file's keypoints are {theirs}, but the data's are {names}: keypoints \
             that the file lacks start from initial values"
        ),
    }))
}

/// The result of copying predictor rows by class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappedClasses {
    /// Names of copied classes, each with its class number in the file, from 1.
    pub taken: Vec<(String, usize)>,
    /// Names of reinitialised classes.
    pub anew: Vec<String>,
    /// Names of the parameters that were changed.
    pub params: Vec<String>,
}

impl MappedClasses {
    /// Two lines: the copied classes, and the reinitialised classes.
    pub fn describe(&self) -> String {
        const LISTED: usize = 12;
        let list = |names: Vec<String>| match names.len().saturating_sub(LISTED) {
            0 => names.join(", "),
            more => format!("{} and {more} more", names[..LISTED].join(", ")),
        };
        let taken = self.taken.iter().map(|(name, class)| format!("{name} (class {class})"));
        let (some, none) = (self.taken.len(), self.anew.len());
        let all = some + none;
        let mut text =
            format!("{some} of {all} classes, matched by name, get their weights from the file");
        if some > 0 {
            text += &format!(": {}", list(taken.collect()));
        }
        if none > 0 {
            text += &format!("\n  {none} reinitialised: {}", list(self.anew.clone()));
        }
        text
    }
}

/// Copies the predictors' rows of classes from a file to the model. Classes are matched by name,
/// ignoring case: `theirs` are the file's, `ours` the model's. The background is copied too. Rows
/// of other classes keep their values. Predictors with a different row length are skipped.
pub fn map_classes(
    file: &WeightsFile,
    theirs: &[(String, u64)],
    ours: &[(String, u64)],
    params: &[Param],
    state: &mut StateSet,
) -> MappedClasses {
    let rows = |bias: &str| Some(params.iter().find(|param| param.name == bias)?.shape[0]);
    let (before, classes) = class_rows(rows).unwrap_or_default();
    let (from, to) = (file.num_classes().unwrap_or(0) + before, classes + before);
    let place = |name: &str| {
        let is_same = |(other, _): &(String, u64)| other.eq_ignore_ascii_case(name);
        let class = theirs.iter().position(is_same).map(|at| at + before);
        class.filter(|row| name != NO_CATEGORY && *row < from)
    };
    let named = || ours.iter().filter(|(name, _)| name != NO_CATEGORY);
    let mut mapped = MappedClasses { taken: vec![], anew: vec![], params: vec![] };
    for (name, _) in named() {
        match place(name) {
            Some(row) => mapped.taken.push((name.clone(), row - before + 1)),
            None => mapped.anew.push(name.clone()),
        }
    }
    let of_classes = ours.iter().zip(before..to);
    let of_classes = of_classes.filter_map(|((name, _), to)| Some((place(name)?, to)));
    let rows: Vec<(usize, usize)> = (0..before).map(|row| (row, row)).chain(of_classes).collect();
    for param in params.iter().filter(|p| depends_on_classes(&p.name, &p.shape)) {
        let (Some((stored, values)), Some(tensor)) =
            (file.tensors.get(&param.name), state.get_mut(&param.name))
        else {
            continue;
        };
        let (model, mut filled) = to_torchvision(param, tensor.as_f32());
        // The first dimension has the same number of rows for each class.
        let (Some((&their_rows, rest)), Some((&our_rows, own))) =
            (stored.split_first(), model.split_first())
        else {
            continue;
        };
        let fits = rest == own && their_rows % from == 0 && our_rows % to == 0;
        if !fits || their_rows / from != our_rows / to {
            continue;
        }
        let len = values.len() / from;
        for (from, to) in &rows {
            filled[to * len..][..len].copy_from_slice(&values[from * len..][..len]);
        }
        tensor.as_f32_mut().copy_from_slice(&from_torchvision(param, &filled));
        mapped.params.push(param.name.clone());
    }
    mapped
}
