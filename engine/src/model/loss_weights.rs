//! The weights of the classes in the classifier's loss.

use std::collections::HashMap;

use crate::config::{ConfigError, LossWeights};

use crate::classes::NO_CATEGORY;
use crate::error::EngineError;
use crate::names::nearest;

/// Name of the background class in the config.
const BACKGROUND: &str = "background";

/// The weight of each class, background first; empty if the config sets no weights. `classes` are
/// the model's classes, from class 1.
///
/// # Errors
/// [`ConfigError::Invalid`] for an unknown or ambiguous name, or if all weights are 0.
pub(crate) fn class_weights(
    weights: &LossWeights,
    classes: &[(String, u64)],
    num_classes: usize,
) -> Result<Vec<f32>, EngineError> {
    if weights.classes.is_empty() {
        return Ok(vec![]);
    }
    let invalid = |key: &str, problem| {
        let key = format!("loss_weights.classes{key}");
        Err(ConfigError::Invalid { file: "config".into(), key, problem }.into())
    };
    let is_reserved = classes.iter().any(|(name, _)| name == BACKGROUND);
    if is_reserved && weights.classes.contains_key(BACKGROUND) {
        let problem =
            "means RoIs without an object, and is also a class of the data; rename the class";
        return invalid(".background", problem.into());
    }
    let names = || [BACKGROUND].into_iter().chain(classes.iter().map(|(name, _)| name.as_str()));
    let mut places = HashMap::new();
    names().enumerate().for_each(|(class, name)| _ = places.entry(name).or_insert(class));
    let mut all = vec![1.0; num_classes + 1];
    for (name, weight) in &weights.classes {
        let Some(&class) = places.get(name.as_str()) else {
            let near = nearest(name, names().map(String::from)).join(", ");
            let problem = format!("is not a class of the training data; did you mean {near}?");
            return invalid(&format!(".{name}"), problem);
        };
        all[class] = *weight;
    }
    // Classes that the data lacks have no name and no objects, so their weights do not count.
    let named = all[1..].iter().zip(classes).filter(|(_, (name, _))| name != NO_CATEGORY);
    if !classes.is_empty() && named.map(|(weight, _)| weight).all(|weight| *weight == 0.0) {
        return invalid(
            "",
            "is 0 for every class, so no class is trained; give one above 0".into(),
        );
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn class_weights_apply_by_name_and_invalid_weights_are_rejected() {
        // A model with more classes than the data has.
        for (first, set, expected) in [
            ("cat", &[][..], Ok(&[][..])),
            ("cat", &[("dog", 2.5), (BACKGROUND, 0.5)], Ok(&[0.5, 1.0, 2.5, 1.0])),
            ("cat", &[("cat", 0.0)], Ok(&[1.0, 0.0, 1.0, 1.0])),
            ("background", &[("dog", 2.0)], Ok(&[1.0, 1.0, 2.0, 1.0])),
            (
                "cat",
                &[("dgo", 1.0)],
                Err("dgo` is not a class of the training data; did you mean dog,"),
            ),
            ("cat", &[("cat", 0.0), ("dog", 0.0)], Err("classes` is 0 for every class")),
            ("background", &[(BACKGROUND, 2.0)], Err("is also a class of the data")),
        ] {
            let classes = [first, "dog"].map(|name| (name.to_string(), 7));
            let set = set.iter().map(|(name, weight)| (name.to_string(), *weight)).collect();
            let weights = LossWeights { classes: set, ..LossWeights::default() };
            match (class_weights(&weights, &classes, 3), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(error), Err(words)) => assert!(error.to_string().contains(words), "{error}"),
                found => panic!("{found:?}"),
            }
        }
    }
}
