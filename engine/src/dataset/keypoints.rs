//! The keypoints of a data set: their order, which is also the model's, and the pairs that are
//! swapped in flipped images.

use std::sync::Arc;

use crate::config::Config;
use dali::plain;
use dali::store::{Keypoints, Stores};

use super::DataSet;
use crate::error::EngineError;
use crate::progress::{Progress, counted};
use crate::view::Views;

impl DataSet {
    /// Keypoint names of a model that is trained on this data; empty if the model has no keypoints.
    pub(crate) fn keypoints_of_model(&self, config: &Config) -> Vec<String> {
        of_model(config, &self.store).map(|known| known.names.clone()).unwrap_or_default()
    }

    /// The views of the training images.
    pub(crate) fn views(&self, config: &Config) -> Views {
        let views = Views::new(config);
        let forbids =
            of_model(config, &self.store).is_some_and(|known| forbid_flips(config, known));
        if forbids { views.unflipped() } else { views }
    }

    /// Reorders the keypoints to the model's order `names`; nothing changes if it is empty. `whose`
    /// names the model in messages.
    ///
    /// # Errors
    /// [`EngineError::Usage`] if the data has different keypoints.
    pub fn take_keypoints(
        &mut self,
        names: &[String],
        whose: &str,
        progress: &Progress,
    ) -> Result<(), EngineError> {
        let known = self.store.contents().keypoints.as_ref();
        let own = known.map(|known| known.names.clone()).unwrap_or_default();
        if names.is_empty() || own == names {
            return Ok(());
        }
        let Some(store) = Arc::get_mut(&mut self.store) else {
            unreachable!("the data is not in use yet")
        };
        if store.order_keypoints(names) {
            progress.say(&format!(
                "note: {store} has the keypoints of {whose} in a different order: matched by name"
            ));
            return Ok(());
        }
        Err(EngineError::Usage(plain(&format!(
            "the keypoints of {store} are {}, but the keypoints of {whose} are {}: use data with \
             the same keypoint names",
            own.join(", "),
            names.join(", ")
        ))))
    }

    /// For each keypoint, in the order of the data's file, its index in the model's order; `None`
    /// if the orders are equal.
    pub(crate) fn keypoints_of_file(&self) -> Option<Vec<usize>> {
        let known = self.store.contents().keypoints.as_ref()?;
        let file = self.store.stores().find_map(|store| store.header().keypoints.as_ref())?;
        known.order_of(&file.names).filter(|_| file.names != known.names)
    }
}

/// The keypoints of a store; `None` if the model has no keypoints.
pub(super) fn of_model<'a>(config: &Config, store: &'a Stores) -> Option<&'a Keypoints> {
    store.contents().keypoints.as_ref().filter(|_| config.model.kind.has_keypoints())
}

/// True if images must not be flipped, since neither the names nor the config determine which
/// keypoints are swapped. A single keypoint is assumed to be on the axis of symmetry.
fn forbid_flips(config: &Config, known: &Keypoints) -> bool {
    let count = known.names.len();
    let is_given = config.model.keypoint_head.flip_pairs.is_some();
    count > 1 && !is_given && known.flipped().into_iter().eq(0..count)
}

/// Messages about the keypoints that are swapped in flipped training images.
///
/// # Errors
/// [`EngineError::Usage`] for pairs of unknown keypoints.
pub(super) fn flips(config: &Config, known: &Keypoints) -> Result<Vec<String>, EngineError> {
    const KEY: &str = "model.keypoint_head.flip_pairs";
    let (names, input) = (plain(&known.names.join(", ")), &config.input);
    let pairs = config.model.keypoint_head.flip_pairs.as_deref();
    let partners = known.partners(pairs).map_err(|why| {
        EngineError::Usage(format!("{KEY} {}; the keypoints are {names}", plain(&why)))
    })?;
    if input.flip_probability + input.augment.vertical_flip == 0.0 {
        return Ok(vec![]);
    }
    if forbid_flips(config, known) {
        return Ok(vec![format!(
            "warning: the keypoints {names} contain no pair of left and right, so images are not \
             flipped; give the pairs as {KEY} ([] if all are on the axis of symmetry), or set \
             input.flip_probability and input.augment.vertical_flip to 0"
        )]);
    }
    let swapped = partners.iter().enumerate().filter(|(own, other)| own < other).count();
    let (swapped, all) = (counted(swapped, "pair"), counted(known.names.len(), "keypoint"));
    let mut sentences = vec![format!("flipped images swap {swapped} of {all}")];
    let alone = plain(&known.one_sided(&partners).join(", "));
    if pairs.is_none() && !alone.is_empty() {
        sentences.push(format!(
            "warning: keypoints without a counterpart on the other side are not swapped in flipped \
             images: {alone}; if that is wrong, give all pairs as {KEY}"
        ));
    }
    Ok(sentences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flip_requires_keypoint_pairs() {
        const NONE: &str = "warning: the keypoints 1, 2 contain no pair of left and right, so";
        let pairs = |list: &str| format!("model.keypoint_head.flip_pairs={list}");
        let default = || "train.seed=1".to_string();
        for (names, set, told) in [
            ("left_eye right_eye nose", default(), "flipped images swap 1 pair of 3 keypoints"),
            ("1 2", default(), NONE),
            ("1 2", "input.flip_probability=0".into(), ""),
            ("1 2", pairs("[['2', '1']]"), "swap 1 pair of 2"),
            ("head tail", pairs("[]"), "swap 0 pairs of 2"),
            ("1 2", pairs("[['1', '3']]"), "flip_pairs names `3`, which is not a keypoint; the"),
            ("tip", default(), "swap 0 pairs of 1 keypoint"),
            ("l r left_ear", default(), "not swapped in flipped images: left_ear; if"),
        ] {
            let config = Config::load("micro", &[set]).expect("a config");
            let names = names.split(' ').map(String::from).collect();
            let found = flips(&config, &Keypoints { names, skeleton: vec![] });
            let found = found.map_or_else(|error| error.to_string(), |all| all.join("; "));
            assert!(found.is_empty() == told.is_empty() && found.contains(told), "{found}");
        }
    }
}
