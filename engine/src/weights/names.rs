//! Facts about a tensor that its name under torchvision's conventions states.

/// Prefix of the backbone's parameters.
pub(super) const BODY: &str = "backbone.body.";

/// A parameter with one element per class, background included.
pub(super) const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.bias";

/// True if the shape of a parameter depends on the number of classes. Four deltas are those of all
/// classes: with deltas of its own, the background has four, and another class.
pub(super) fn depends_on_classes(name: &str, shape: &[usize]) -> bool {
    const PREDICTORS: [&str; 2] =
        ["roi_heads.box_predictor", "roi_heads.mask_predictor.mask_fcn_logits."];
    let is_shared = name.contains(".bbox_pred.") && shape.first() == Some(&4);
    !is_shared && PREDICTORS.iter().any(|predictor| name.starts_with(predictor))
}

/// The part of the model that a name belongs to, such as `backbone.fpn`; the heads of a cascade's
/// stages are one.
pub(super) fn part(name: &str) -> &str {
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    let part = dots.nth(1).map_or(name, |end| &name[..end]);
    part.split_once(STAGE).map_or(part, |(first, _)| first)
}

/// The mark of a further stage of a cascade in the name of a module.
pub(super) const STAGE: &str = "_stage";

#[cfg(test)]
mod tests {
    use super::{depends_on_classes, part};

    #[test]
    fn only_predictors_depend_on_the_classes() {
        for (name, rows, depends, of) in [
            ("roi_heads.box_predictor.bbox_pred.bias", 8, true, "roi_heads.box_predictor"),
            ("roi_heads.box_predictor.bbox_pred.weight", 4, false, "roi_heads.box_predictor"),
            ("roi_heads.box_predictor_stage1.cls_score.bias", 4, true, "roi_heads.box_predictor"),
            ("roi_heads.mask_predictor.mask_fcn_logits.bias", 8, true, "roi_heads.mask_predictor"),
            ("roi_heads.mask_predictor.conv5_mask.bias", 8, false, "roi_heads.mask_predictor"),
            ("backbone.fpn.inner_blocks.0.0.weight", 8, false, "backbone.fpn"),
            ("fc.weight", 8, false, "fc.weight"),
        ] {
            assert_eq!((depends_on_classes(name, &[rows]), part(name)), (depends, of), "{name}");
        }
    }
}
