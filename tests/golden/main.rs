//! Golden data: every family of the golden folder against our own numbers.
//!
//! One line a family here; a module each for the cases. The folder is `$ONEGRAPH_GOLDEN`, else
//! `shared/golden` beside the checkout; what is absent says `SKIPPED`.

mod coco_eval;
mod coco_masks;
mod support;

#[test]
fn golden_coco_masks() {
    coco_masks::run();
}

#[test]
fn golden_coco_eval() {
    coco_eval::run();
}
