//! Evaluation of a small model with random weights.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use configs::Config;

use super::{DetectionModel, Evaluator};
use crate::dataset::{DataSet, Split};
use crate::error::EngineError;
use crate::progress::Progress;
use crate::runtime::Backend;

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
