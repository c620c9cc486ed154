//! Golden data: every family in the golden folder against our own numbers.
//!
//! Families that share code are listed here, those of detectron2's models in `d2_families`; the
//! others are in the modules of their cases.
//! The folder is `$ONEGRAPH_GOLDEN`, by default `shared/golden` next to the checkout; missing data
//! is reported as `SKIPPED`.

mod anchors;
mod bodies;
mod boxes;
mod coco_eval;
mod coco_masks;
mod colours;
mod convert;
mod convnext;
mod d2_config;
mod d2_eval;
mod d2_families;
mod d2_keypoints;
mod d2_maps;
mod d2_model;
mod d2_ops;
mod d2_steps;
mod dense;
mod groups;
mod images;
mod keypoints;
mod keypoints_eval;
mod losses;
mod lvis_eval;
mod maps;
mod mlperf_maps;
mod mlperf_model;
mod mlperf_ops;
mod model_eval;
mod model_setup;
mod model_train;
mod nms;
mod onnx_files;
mod recorded;
mod reference;
mod rois;
mod samples;
mod solver;
mod support;
mod views;
mod weights_names;

use model_setup::{ALL, Recorded};
use reference::{CASCADE, FPN, GN, LSJ};

#[test]
fn golden_d2_data() {
    views::d2_data();
    d2_ops::sizes();
}

#[test]
fn golden_model_features() {
    ALL.into_iter().for_each(model_train::features);
}

#[test]
fn model_features_in_bf16() {
    [Recorded::Plain, Recorded::V2].into_iter().for_each(model_train::features_in_bf16);
}

#[test]
fn golden_model_rpn() {
    ALL.into_iter().for_each(model_train::rpn);
}

#[test]
fn golden_model_roi() {
    ALL.into_iter().for_each(model_train::roi);
}

#[test]
fn golden_model_grads() {
    ALL.into_iter().for_each(model_train::grads);
}

#[test]
fn golden_model_inputs_losses() {
    ALL.into_iter().for_each(model_train::inputs_losses);
}

#[test]
fn golden_model_eval() {
    ALL.into_iter().for_each(model_eval::run);
}

#[test]
fn golden_model_eval_of_exchanged_weights() {
    ALL.into_iter().for_each(model_eval::exchanged);
}

#[test]
fn onnx_of_torchvision() {
    [Recorded::Plain, Recorded::V2].into_iter().for_each(onnx_files::torchvision);
}

#[test]
fn onnx_of_detectron2() {
    [&FPN, &LSJ, &CASCADE, &GN].into_iter().for_each(onnx_files::detectron2);
}

#[test]
fn golden_weights_names() {
    weights_names::run();
    weights_names::benchmark();
    weights_names::state_dicts();
}
