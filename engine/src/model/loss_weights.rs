//! The weight of each loss in the sum that training minimizes, and of each class in that of the
//! classifier.

use std::collections::HashMap;

use configs::{ConfigError, LossWeights};

use crate::error::EngineError;
use crate::names::nearest;

/// The name of the class of an RoI without an object.
const BACKGROUND: &str = "background";

/// The weight of a loss by its name in logs, that of a further stage of a cascade as that of the
/// first; 1 for one that has no key, such as that of a head of one's own.
pub(crate) fn weight_of(weights: &LossWeights, loss: &str) -> f32 {
    match loss.split_once("_stage").map_or(loss, |(first, _)| first) {
        "loss_objectness" => weights.objectness,
        "loss_rpn_box_reg" => weights.rpn_box_reg,
        "loss_classifier" => weights.classifier,
        "loss_box_reg" => weights.box_reg,
        "loss_mask" => weights.mask,
        "loss_keypoint" => weights.keypoint,
        _ => 1.0,
    }
}

/// The weight of each class of a model, background first; none if the config weighs none. `classes`
/// name the model's, from class 1.
///
/// # Errors
/// [`ConfigError::Invalid`] for a name that is no class.
pub(crate) fn class_weights(
    weights: &LossWeights,
    classes: &[(String, u64)],
    num_classes: usize,
) -> Result<Vec<f32>, EngineError> {
    if weights.classes.is_empty() {
        return Ok(vec![]);
    }
    let names = || [BACKGROUND].into_iter().chain(classes.iter().map(|(name, _)| name.as_str()));
    let mut places = HashMap::new();
    names().enumerate().for_each(|(class, name)| _ = places.entry(name).or_insert(class));
    let mut all = vec![1.0; num_classes + 1];
    for (name, weight) in &weights.classes {
        let Some(&class) = places.get(name.as_str()) else {
            let near = nearest(name, names().map(String::from)).join(", ");
            let problem = format!("is no class of the training data; did you mean {near}?");
            let key = format!("loss_weights.classes.{name}");
            return Err(ConfigError::Invalid { file: "config".into(), key, problem }.into());
        };
        all[class] = *weight;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_weigh_by_name_and_a_wrong_name_is_refused() {
        let mut weights = LossWeights::default();
        let classes = ["cat", "dog"].map(|name| (name.to_string(), 7));
        let found = |weights: &LossWeights| class_weights(weights, &classes, 3);
        assert!(found(&weights).expect("none").is_empty());
        weights.classes = [("dog".into(), 2.5), (BACKGROUND.into(), 0.5)].into();
        // A model of more classes than the data has.
        assert_eq!(found(&weights).expect("known"), [0.5, 1.0, 2.5, 1.0]);
        weights.classes.insert("dgo".into(), 1.0);
        let error = found(&weights).expect_err("unknown").to_string();
        let words = "config: `loss_weights.classes.dgo` is no class of the training data; did you \
                     mean dog, ";
        assert!(error.starts_with(words), "{error}");
    }
}
