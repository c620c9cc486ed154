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
mod rois;
mod samples;
mod solver;
mod support;
mod views;
mod weights_names;

use d2_model::{CASCADE, FPN, GN, LSJ};
use model_setup::Recorded;

#[test]
fn golden_tv_resnet18() {
    bodies::run("tv_resnet18");
}

#[test]
fn golden_tv_resnet34() {
    bodies::run("tv_resnet34");
}

#[test]
fn golden_tv_resnet152() {
    bodies::run("tv_resnet152");
}

#[test]
fn golden_tv_resnext50() {
    bodies::run("tv_resnext50");
}

#[test]
fn golden_tv_resnext_g32() {
    bodies::run("tv_resnext_g32");
}

#[test]
fn golden_tv_convnext() {
    bodies::run("tv_convnext");
}

#[test]
fn golden_model_features() {
    model_train::features(Recorded::Plain);
}

#[test]
fn model_features_in_bf16() {
    model_train::features_in_bf16(Recorded::Plain);
    model_train::features_in_bf16(Recorded::V2);
}

#[test]
fn golden_model_rpn() {
    model_train::rpn(Recorded::Plain);
}

#[test]
fn golden_model_roi() {
    model_train::roi(Recorded::Plain);
}

#[test]
fn golden_model_grads() {
    model_train::grads(Recorded::Plain);
}

#[test]
fn golden_model_inputs_losses() {
    model_train::inputs_losses(Recorded::Plain);
}

#[test]
fn golden_model_eval_of_exchanged_weights() {
    model_eval::exchanged(Recorded::Plain);
}

#[test]
fn golden_model_eval() {
    model_eval::run(Recorded::Plain);
}

#[test]
fn golden_tv_maskrcnn_v2_features() {
    model_train::features(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_rpn() {
    model_train::rpn(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_roi() {
    model_train::roi(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_grads() {
    model_train::grads(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_losses() {
    model_train::inputs_losses(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_eval() {
    model_eval::run(Recorded::V2);
}

#[test]
fn golden_tv_maskrcnn_v2_eval_of_exchanged_weights() {
    model_eval::exchanged(Recorded::V2);
}

#[test]
fn golden_tv_keypointrcnn_features() {
    model_train::features(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_rpn() {
    model_train::rpn(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_roi() {
    model_train::roi(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_grads() {
    model_train::grads(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_losses() {
    model_train::inputs_losses(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_eval() {
    model_eval::run(Recorded::Keypoint);
}

#[test]
fn golden_tv_keypointrcnn_eval_of_exchanged_weights() {
    model_eval::exchanged(Recorded::Keypoint);
}

#[test]
fn onnx_of_torchvision() {
    onnx_files::torchvision(Recorded::Plain);
}

#[test]
fn onnx_of_torchvision_v2() {
    onnx_files::torchvision(Recorded::V2);
}

#[test]
fn onnx_of_detectron2() {
    onnx_files::detectron2(&FPN);
}

#[test]
fn onnx_of_detectron2_lsj() {
    onnx_files::detectron2(&LSJ);
}

#[test]
fn onnx_of_detectron2_cascade() {
    onnx_files::detectron2(&CASCADE);
}

#[test]
fn onnx_of_detectron2_gn() {
    onnx_files::detectron2(&GN);
}

#[test]
fn golden_weights_names() {
    weights_names::run();
    weights_names::benchmark();
    weights_names::state_dicts();
}
