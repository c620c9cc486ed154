//! Golden data: every family of the golden folder against our own numbers.
//!
//! One line a family here; a module each for the cases. The folder is `$ONEGRAPH_GOLDEN`, else
//! `shared/golden` beside the checkout; what is absent says `SKIPPED`.

mod coco_eval;
mod coco_masks;
mod model_eval;
mod model_setup;
mod model_train;
mod support;

#[test]
fn golden_coco_masks() {
    coco_masks::run();
}

#[test]
fn golden_coco_eval() {
    coco_eval::run();
}

#[test]
fn golden_model_features() {
    model_train::features();
}

#[test]
fn golden_model_rpn() {
    model_train::rpn();
}

#[test]
fn golden_model_roi() {
    model_train::roi();
}

#[test]
fn golden_model_grads() {
    model_train::grads();
}

#[test]
fn golden_model_inputs_losses() {
    model_train::inputs_losses();
}

#[test]
fn golden_model_eval() {
    model_eval::run();
}
