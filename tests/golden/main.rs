//! Golden data: compares every family in the golden folder with onegraph's results.
//!
//! Families that share code are listed here, recorded models in `models`, and all other families in
//! the modules of their cases. The folder is `$ONEGRAPH_GOLDEN`, by default `shared/golden` next to
//! the checkout; missing data is reported as `SKIPPED`.

mod anchors;
mod backbones;
mod boxes;
mod coco_eval;
mod coco_masks;
mod colours;
mod convert;
mod convnext;
mod d2_maps;
mod d2_ops;
mod dense;
mod formulas;
mod groups;
mod images;
mod keypoints;
mod keypoints_eval;
mod losses;
mod lvis_eval;
mod maps;
mod mlperf_maps;
mod mlperf_ops;
mod model_configs;
mod model_eval;
mod model_roi;
mod model_steps;
mod model_train;
mod models;
mod nms;
mod onnx_files;
mod rois;
mod samples;
mod solver;
mod support;
mod views;
mod weights_names;

use model_configs::{CASCADE, FPN, GN, LSJ, MLPERF, PLAIN, V2};

#[test]
fn detectron2_data_matches_golden() {
    views::d2_data();
    d2_ops::sizes();
}

#[test]
fn torchvision_onnx_detections_match_onegraph() {
    [&PLAIN, &V2].into_iter().for_each(onnx_files::agrees);
}

#[test]
fn detectron2_onnx_detections_match_onegraph() {
    [&FPN, &LSJ, &CASCADE, &GN].into_iter().for_each(onnx_files::agrees);
}

/// The model uses inclusive boxes and BGR images that are resized as bytes.
#[test]
fn mlperf_onnx_detections_match_onegraph() {
    onnx_files::agrees(&MLPERF);
}

#[test]
fn weight_names_match_golden() {
    weights_names::run();
    weights_names::benchmark();
    weights_names::state_dicts();
}
