//! Evaluation of a small model with random weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use super::{DetectionModel, Evaluation, EvaluationSet, Evaluator};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::Backend;

/// A `micro` model with initial weights and its evaluator, on a data set generated in the folder.
fn micro(set: &[&str]) -> (TempDir, DetectionModel, Evaluator) {
    micro_on(Split::Val, set)
}

fn micro_on(split: Split, set: &[&str]) -> (TempDir, DetectionModel, Evaluator) {
    let (folder, config, data) = crate::dataset::tests::micro(split, set);
    let classes = data.num_classes();
    let mut model = DetectionModel::new(&config, classes, None, &Backend::Cpu).unwrap();
    let evaluator = Evaluator::new(&config, data, classes, &Backend::Cpu, &mut model.state);
    (folder, model, evaluator.unwrap())
}

/// If the keypoint order of the data differs from the model's, keypoints are reordered when read,
/// and results are written in the data's order.
#[test]
fn keypoints_are_written_in_data_set_order() {
    let set = ["model.kind=keypoint_rcnn", "model.keypoint_head.keypoints=5"];
    let (_folder, _, evaluator) = micro(&set);
    let (config, quiet) = (evaluator.detector.config(), Progress::quiet());
    let data = || DataSet::open(config, Split::Val, &quiet).unwrap();
    let error = data().take_keypoints(&["a".into()], "the model", &quiet).unwrap_err();
    assert!(error.to_string().contains("the keypoints of the model are a: use data"), "{error}");
    let (mut reversed, mut names) = (data(), data().keypoints_of_model(config));
    names.reverse();
    reversed.take_keypoints(&names, "the model", &quiet).unwrap();
    let [own, reversed] = [data(), reversed].map(|data| {
        let set = EvaluationSet::new(config, data);
        let truth = set.compare(0, &Evaluation::none()).unwrap().0;
        set.score(&[truth]).unwrap()
    });
    let points = |detections: &[score::Detection]| detections[0].keypoints.clone().unwrap();
    assert_ne!(points(&own.detections), points(&reversed.detections));
    assert_eq!(points(&own.detections), points(&reversed.as_in_file()));
    assert_eq!(own.scores, reversed.scores);
}

/// No warning is returned for a model whose values are finite.
#[test]
fn non_finite_outputs_give_no_detections() {
    let (_folder, mut model, mut evaluator) = micro(&[]);
    let quiet = Progress::quiet();
    assert_eq!(evaluator.why_nothing(&mut model.state).unwrap(), None);
    let overflow = model.state.change(|state| {
        let logits = state.get_mut("roi_heads.box_predictor.cls_score.weight").unwrap();
        logits.as_f32_mut().fill(f32::MAX);
        Ok(())
    });
    overflow.unwrap();
    let found = evaluator.run(&mut model.state, &quiet).unwrap();
    assert!(found.detections.is_empty(), "{:?}", found.detections);
    let why = evaluator.why_nothing(&mut model.state).unwrap().unwrap();
    assert!(why.contains("not finite: `") && !why.contains('\n'), "{why}");
}

#[test]
fn evaluation_stops_on_request_and_restarts() {
    let (_folder, mut model, mut evaluator) = micro(&["model.detections.score_threshold=0.0"]);
    let quiet = Progress::quiet();
    let whole = evaluator.run(&mut model.state, &quiet).unwrap();
    assert!(!whole.detections.is_empty(), "nothing to compare");
    let signal = Arc::new(AtomicBool::new(true));
    evaluator.interrupt_by(signal.clone());
    let is_interrupted = |e: EngineError| matches!(e, EngineError::Interrupted);
    assert!(evaluator.run(&mut model.state, &quiet).is_err_and(is_interrupted));
    assert!(evaluator.detect(&mut model.state, &[0], &quiet).is_err_and(is_interrupted));
    signal.store(false, Ordering::Relaxed);
    let again = evaluator.run(&mut model.state, &quiet).unwrap();
    assert_eq!(again.detections, whole.detections);
}

/// An evaluation of the training set does not depend on the image sizes that training samples.
#[test]
fn random_training_sizes_do_not_change_evaluation() {
    let found = |set: &[&str]| {
        let set = [&["model.detections.score_threshold=0.0"], set].concat();
        let (_folder, mut model, mut evaluator) = micro_on(Split::Train, &set);
        evaluator.run(&mut model.state, &Progress::quiet()).unwrap().detections
    };
    let plain = found(&[]);
    assert!(!plain.is_empty(), "nothing to compare");
    for drawn in ["input.augment.min_sizes=[32]", "input.augment.jitter_size=32"] {
        assert_eq!(found(&[drawn]), plain, "{drawn}");
    }
}
