//! Names of tensors: torchvision's old ones, and what a name says about its tensor.

/// Prefix of the backbone's parameters.
pub(super) const BODY: &str = "backbone.body.";

/// A parameter with one element per class, background included.
pub(super) const CLASSIFIER: &str = "roi_heads.box_predictor.cls_score.bias";

/// The current name of a tensor: torchvision renamed those of its FPN, RPN head and mask head, and
/// renames them itself when it loads an older file (`_load_from_state_dict` of each module).
pub(super) fn current(name: &str) -> String {
    renamed(name).unwrap_or_else(|| name.to_string())
}

fn renamed(name: &str) -> Option<String> {
    let (module, value) = name.rsplit_once('.')?;
    if !["weight", "bias"].contains(&value) {
        return None;
    }
    if module == "rpn.head.conv" {
        return Some(format!("{module}.0.0.{value}"));
    }
    if let Some(number) = module.strip_prefix("roi_heads.mask_head.mask_fcn") {
        let index = number.parse::<usize>().ok()?.checked_sub(1)?;
        return Some(format!("roi_heads.mask_head.{index}.0.{value}"));
    }
    let blocks = ["backbone.fpn.inner_blocks.", "backbone.fpn.layer_blocks."];
    let index = blocks.iter().find_map(|block| module.strip_prefix(block))?;
    index.parse::<usize>().ok()?;
    Some(format!("{module}.0.{value}"))
}

/// Whether the shape of a parameter depends on the number of classes.
pub(super) fn depends_on_classes(name: &str) -> bool {
    const PREDICTORS: [&str; 2] =
        ["roi_heads.box_predictor.", "roi_heads.mask_predictor.mask_fcn_logits."];
    PREDICTORS.iter().any(|predictor| name.starts_with(predictor))
}

/// A tensor that torch's batch norms store and that no frozen one has.
pub(super) fn is_batch_counter(name: &str) -> bool {
    name.ends_with(".num_batches_tracked")
}

/// The part of the model that a name belongs to, such as `backbone.fpn`.
pub(super) fn part(name: &str) -> &str {
    let mut dots = name.match_indices('.').map(|(at, _)| at);
    dots.nth(1).map_or(name, |end| &name[..end])
}

#[cfg(test)]
mod tests {
    use super::{current, depends_on_classes, part};

    /// Both generations as torchvision's own remapping pairs them.
    #[test]
    fn old_names_become_todays_and_todays_stay() {
        for (old, new) in [
            ("backbone.fpn.inner_blocks.0.weight", "backbone.fpn.inner_blocks.0.0.weight"),
            ("backbone.fpn.layer_blocks.3.bias", "backbone.fpn.layer_blocks.3.0.bias"),
            ("rpn.head.conv.weight", "rpn.head.conv.0.0.weight"),
            ("roi_heads.mask_head.mask_fcn1.weight", "roi_heads.mask_head.0.0.weight"),
            ("roi_heads.mask_head.mask_fcn4.bias", "roi_heads.mask_head.3.0.bias"),
        ] {
            assert_eq!(current(old), new);
            assert_eq!(current(new), new);
        }
        for same in [
            "rpn.head.cls_logits.weight",
            "backbone.body.conv1.weight",
            "roi_heads.mask_head.mask_fcn0.weight",
            "roi_heads.mask_predictor.mask_fcn_logits.weight",
            "weight",
        ] {
            assert_eq!(current(same), same);
        }
    }

    #[test]
    fn only_predictors_depend_on_the_classes() {
        assert!(depends_on_classes("roi_heads.box_predictor.bbox_pred.bias"));
        assert!(depends_on_classes("roi_heads.mask_predictor.mask_fcn_logits.weight"));
        assert!(!depends_on_classes("roi_heads.mask_predictor.conv5_mask.weight"));
        assert!(!depends_on_classes("roi_heads.box_head.fc6.weight"));
        assert_eq!(part("backbone.fpn.inner_blocks.0.0.weight"), "backbone.fpn");
        assert_eq!(part("fc.weight"), "fc.weight");
    }
}
