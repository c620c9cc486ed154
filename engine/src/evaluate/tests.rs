//! Evaluation of a small model with random weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use configs::Config;

use super::{DetectionModel, Evaluator};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::Backend;

/// Finding nothing is no news of a model whose values are finite.
#[test]
fn nothing_is_found_where_values_are_not_finite() {
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("data.synthetic.dir={}", folder.path().display());
    let config = Config::load("micro", &[dir]).unwrap();
    let quiet = Progress::quiet();
    let data = DataSet::open(&config, Split::Val, &quiet).unwrap();
    let classes = data.num_classes();
    let mut model = DetectionModel::new(&config, classes, None, &Backend::Cpu).unwrap();
    let made = Evaluator::new(&config, data, classes, &Backend::Cpu, &mut model.state);
    let mut evaluator = made.unwrap();
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
    let folder = tempfile::tempdir().unwrap();
    let dir = format!("data.synthetic.dir={}", folder.path().display());
    let set = [dir, "model.detections.score_threshold=0.0".to_string()];
    let config = Config::load("micro", &set).unwrap();
    let quiet = Progress::quiet();
    let data = DataSet::open(&config, Split::Val, &quiet).unwrap();
    let classes = data.num_classes();
    let mut model = DetectionModel::new(&config, classes, None, &Backend::Cpu).unwrap();
    let made = Evaluator::new(&config, data, classes, &Backend::Cpu, &mut model.state);
    let mut evaluator = made.unwrap();
    let whole = evaluator.run(&mut model.state, &quiet).unwrap();
    assert!(!whole.detections.is_empty(), "nothing to compare");
    let signal = Arc::new(AtomicBool::new(true));
    evaluator.interrupt_by(signal.clone());
    let is_interrupted = |e: EngineError| matches!(e, EngineError::Interrupted);
    assert!(evaluator.run(&mut model.state, &quiet).is_err_and(is_interrupted));
    assert!(evaluator.detect(&mut model.state, &[0], &quiet).is_err_and(is_interrupted));
    assert!(evaluator.score(&[]).is_err_and(is_interrupted));
    signal.store(false, Ordering::Relaxed);
    let again = evaluator.run(&mut model.state, &quiet).unwrap();
    assert_eq!(again.detections, whole.detections);
}
