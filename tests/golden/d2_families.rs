//! The families of detectron2's models, one after another.

use crate::reference::{LSJ, TRAINED};
use crate::{d2_eval, d2_model, d2_steps};

#[test]
fn golden_d2_features() {
    TRAINED.into_iter().for_each(d2_model::features);
}

#[test]
fn golden_d2_rpn() {
    TRAINED.into_iter().for_each(d2_model::rpn);
}

#[test]
fn golden_d2_roi() {
    TRAINED.into_iter().for_each(d2_model::roi);
}

#[test]
fn golden_d2_grads() {
    TRAINED.into_iter().for_each(d2_model::grads);
}

#[test]
fn golden_d2_inputs_losses() {
    TRAINED.into_iter().for_each(d2_steps::inputs_losses);
}

#[test]
fn golden_d2_eval() {
    TRAINED.into_iter().chain([&LSJ]).for_each(d2_eval::run);
}
