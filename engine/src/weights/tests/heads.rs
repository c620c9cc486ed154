//! Files with additional heads, keypoint heads, and a different epsilon.

use crate::config::Config;
use device::Target;
use graph::StateSet;

use super::model;
use crate::model::{ModelSpec, detection_program};
use crate::weights::fits::fitting;
use crate::weights::{Extent, fold_eps, map_keypoints, torchvision_shape};

#[test]
fn mismatch_error_lists_presets_that_fit() {
    for (name, given, extent) in [
        ("torchvision_r18", "torchvision_r50", Extent::Backbone),
        ("torchvision_r50_v2", "torchvision_r50", Extent::Model),
        ("torchvision_keypoint_r50", "torchvision_r50", Extent::Model),
        ("faster_r50", "torchvision_r50_v2", Extent::Model),
        ("detectron2_cascade_r50_3x", "detectron2_r50_3x", Extent::Model),
    ] {
        let [of_file, given] = [name, given].map(|name| Config::load(name, &[]).unwrap());
        let spec = ModelSpec::smallest(&of_file, of_file.model.classes_or(80), Target::Cpu);
        let params = detection_program(&spec).unwrap().params;
        let params = params.iter().filter(|param| extent.holds(param));
        // Values are left out: only names and shapes matter.
        let tensors = params.map(|param| (param.name.clone(), (torchvision_shape(param), vec![])));
        let found = fitting(&tensors.collect(), 80, extent, &given, |_| true);
        assert_eq!(found.first().map(String::as_str), Some(name), "{found:?}");
    }
}

/// The keypoint predictor has one channel per keypoint, the last dimension of weight and bias.
#[test]
fn keypoint_channels_are_matched_by_name() {
    let head = ["model.keypoint_head.channels=[4]", "model.keypoint_head.keypoints=3"];
    let (built, mut state) = model("torchvision_keypoint_r50", &head, 1, 1);
    let predictor = "roi_heads.keypoint_predictor.kps_score_lowres";
    let bias = state.get_mut(&format!("{predictor}.bias")).unwrap().as_f32_mut();
    bias.copy_from_slice(&[1.0, 2.0, 3.0]);
    let values = |state: &StateSet, what| {
        let tensor = state.get(&format!("{predictor}.{what}")).unwrap();
        tensor.as_f32()[..3].to_vec()
    };
    let last = values(&state, "weight")[2];
    let names = |names: [&str; 3]| names.map(String::from);
    let ours = names(["nose", "left", "right"]);
    let mut map = |theirs| map_keypoints(&names(theirs), &ours, 1, &built.params, &mut state);
    assert_eq!(map(["nose", "left", "right"]), None);
    assert!(map(["right", "left", "nose"]).unwrap().starts_with("note: "));
    assert!(map(["nose", "tail", "right"]).unwrap().starts_with("warning: the file's keypoints"));
    let biases = values(&state, "bias");
    assert_eq!((values(&state, "weight")[0], biases[0], biases[2]), (last, 3.0, 1.0));
}

/// Norms that add 0 to the variance are converted to norms that add 1e-5. Computed by hand.
#[test]
fn epsilon_difference_is_folded_into_variance() {
    let (built, mut state) = model("torchvision_r50", &[], 1, 1);
    let norm = |what: &str| format!("backbone.body.bn1.{what}");
    let values = |state: &StateSet, what| state.get(&norm(what)).unwrap().as_f32().to_vec();
    let variances = state.get_mut(&norm("running_var")).unwrap().as_f32_mut();
    variances.copy_from_slice(&[0.5, 2.5e-6]);
    fold_eps(&built.params, &mut state, 0.0);
    assert_eq!(values(&state, "running_var"), [0.49999, 0.0]);
    // 1 / sqrt(2.5e-6) is 2 / sqrt(1e-5).
    assert_eq!(values(&state, "weight"), [1.0, 2.0]);
}
