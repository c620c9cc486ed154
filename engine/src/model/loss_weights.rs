//! The weight of each loss in the sum that training minimizes.

use configs::LossWeights;

/// The weight of a loss by its name in logs; 1 for one that has no key, such as that of a head of
/// one's own.
pub(crate) fn weight_of(weights: &LossWeights, loss: &str) -> f32 {
    match loss {
        "loss_objectness" => weights.objectness,
        "loss_rpn_box_reg" => weights.rpn_box_reg,
        "loss_classifier" => weights.classifier,
        "loss_box_reg" => weights.box_reg,
        "loss_mask" => weights.mask,
        _ => 1.0,
    }
}
