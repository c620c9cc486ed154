//! The families of detectron2: names that begin with d2.

use crate::d2_model::{C4, CASCADE, DC5, FPN, GN, KEYPOINT, LSJ};
use crate::{d2_eval, d2_model, d2_ops, d2_steps, keypoints, views};

#[test]
fn golden_d2_data() {
    views::d2_data();
    d2_ops::sizes();
}

#[test]
fn golden_d2_fpn_features() {
    d2_model::features(&FPN);
}

#[test]
fn golden_d2_fpn_rpn() {
    d2_model::rpn(&FPN);
}

#[test]
fn golden_d2_fpn_roi() {
    d2_model::roi(&FPN);
}

#[test]
fn golden_d2_fpn_grads() {
    d2_model::grads(&FPN);
}

#[test]
fn golden_d2_fpn_inputs_losses() {
    d2_steps::inputs_losses(&FPN);
}

#[test]
fn golden_d2_fpn_eval() {
    d2_eval::run(&FPN);
}

#[test]
fn golden_d2_cascade_features() {
    d2_model::features(&CASCADE);
}

#[test]
fn golden_d2_cascade_rpn() {
    d2_model::rpn(&CASCADE);
}

#[test]
fn golden_d2_cascade_roi() {
    d2_model::roi(&CASCADE);
}

#[test]
fn golden_d2_cascade_grads() {
    d2_model::grads(&CASCADE);
}

#[test]
fn golden_d2_cascade_inputs_losses() {
    d2_steps::inputs_losses(&CASCADE);
}

#[test]
fn golden_d2_cascade_eval() {
    d2_eval::run(&CASCADE);
}

#[test]
fn golden_d2_keypoint_features() {
    d2_model::features(&KEYPOINT);
}

#[test]
fn golden_d2_keypoint_rpn() {
    d2_model::rpn(&KEYPOINT);
}

#[test]
fn golden_d2_keypoint_roi() {
    d2_model::roi(&KEYPOINT);
}

#[test]
fn golden_d2_keypoint_grads() {
    d2_model::grads(&KEYPOINT);
}

#[test]
fn golden_d2_keypoint_inputs_losses() {
    d2_steps::inputs_losses(&KEYPOINT);
}

#[test]
fn golden_d2_keypoint_eval() {
    d2_eval::run(&KEYPOINT);
}

#[test]
fn golden_d2_c4_features() {
    d2_model::features(&C4);
}

#[test]
fn golden_d2_c4_rpn() {
    d2_model::rpn(&C4);
}

#[test]
fn golden_d2_c4_roi() {
    d2_model::roi(&C4);
}

#[test]
fn golden_d2_c4_grads() {
    d2_model::grads(&C4);
}

#[test]
fn golden_d2_c4_inputs_losses() {
    d2_steps::inputs_losses(&C4);
}

#[test]
fn golden_d2_c4_eval() {
    d2_eval::run(&C4);
}

#[test]
fn golden_d2_dc5_features() {
    d2_model::features(&DC5);
}

#[test]
fn golden_d2_dc5_rpn() {
    d2_model::rpn(&DC5);
}

#[test]
fn golden_d2_dc5_roi() {
    d2_model::roi(&DC5);
}

#[test]
fn golden_d2_dc5_grads() {
    d2_model::grads(&DC5);
}

#[test]
fn golden_d2_dc5_inputs_losses() {
    d2_steps::inputs_losses(&DC5);
}

#[test]
fn golden_d2_dc5_eval() {
    d2_eval::run(&DC5);
}

#[test]
fn golden_d2_kpops() {
    keypoints::detectron2();
}

#[test]
fn golden_d2_lsj_eval() {
    d2_eval::run(&LSJ);
}

#[test]
fn golden_d2_gn_features() {
    d2_model::features(&GN);
}

#[test]
fn golden_d2_gn_rpn() {
    d2_model::rpn(&GN);
}

#[test]
fn golden_d2_gn_roi() {
    d2_model::roi(&GN);
}

#[test]
fn golden_d2_gn_grads() {
    d2_model::grads(&GN);
}

#[test]
fn golden_d2_gn_inputs_losses() {
    d2_steps::inputs_losses(&GN);
}

#[test]
fn golden_d2_gn_eval() {
    d2_eval::run(&GN);
}
