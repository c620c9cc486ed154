//! torchvision's older names: it renamed the tensors of its FPN, RPN head and mask head, and
//! renames them itself when it loads an older file (`_load_from_state_dict` of each module).

/// The current name of a tensor.
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

#[cfg(test)]
mod tests {
    use super::current;

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
}
