//! Evaluation of a small model with random weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use configs::Config;
use tempfile::TempDir;

use super::{DetectionModel, Evaluation, EvaluationSet, Evaluator};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::Backend;

/// A fresh `micro` with its evaluator, on a set drawn into the folder.
fn micro(set: &[&str]) -> (TempDir, DetectionModel, Evaluator) {
    micro_on(Split::Val, set)
}

fn micro_on(split: Split, set: &[&str]) -> (TempDir, DetectionModel, Evaluator) {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("data.synthetic.dir={}", folder.path().display());
    let set: Vec<String> = set.iter().map(ToString::to_string).chain([dir]).collect();
    let config = Config::load("micro", &set).unwrap();
    let data = DataSet::open(&config, split, &Progress::quiet()).unwrap();
    let classes = data.num_classes();
    let mut model = DetectionModel::new(&config, classes, None, &Backend::Cpu).unwrap();
    let evaluator = Evaluator::new(&config, data, classes, &Backend::Cpu, &mut model.state);
    (folder, model, evaluator.unwrap())
}

/// A set whose keypoints are in another order than the model's: scores follow the names, and files
/// have the order of the data.
#[test]
fn keypoints_are_scored_by_name_and_written_in_the_order_of_the_data() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("data.synthetic.dir={}", folder.path().display());
    let set = ["model.kind=keypoint_rcnn".into(), "model.keypoint_head.keypoints=5".into(), dir];
    let config = Config::load("micro", &set).unwrap();
    let quiet = Progress::quiet();
    let mut data = DataSet::open(&config, Split::Val, &quiet).unwrap();
    let own = data.keypoints_of_model(&config);
    let error = data.take_keypoints(&["a".into(), "b".into()], "the model", &quiet).unwrap_err();
    assert!(error.to_string().contains("those of the model a, b: give data"), "{error}");
    let names: Vec<String> = own.iter().rev().cloned().collect();
    data.take_keypoints(&names, "the model", &quiet).unwrap();
    assert_eq!(data.keypoints_of_model(&config), names);
    let truth = EvaluationSet::new(&config, data);
    let all: Vec<_> =
        (0..truth.images().len()).map(|i| truth.compare(i, &Evaluation::none())).collect();
    let all: Vec<_> = all.into_iter().map(|of| of.unwrap().0).collect();
    let evaluation = truth.score(&all).unwrap();
    assert_eq!(evaluation.scores[&score::IouType::Keypoints].ap(), 1.0);
    let (found, written) = (&evaluation.detections[0], &evaluation.as_in_file()[0]);
    let points = found.keypoints.clone().unwrap();
    assert_eq!(written.keypoints, Some(points.into_iter().rev().collect()));
}

/// Finding nothing is no news of a model whose values are finite.
#[test]
fn nothing_is_found_where_values_are_not_finite() {
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
fn an_evaluation_stops_when_it_is_asked_to_and_starts_again() {
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

/// The training set as an evaluation sees it, whatever sizes training draws of it.
#[test]
fn drawn_sizes_change_no_evaluation() {
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
