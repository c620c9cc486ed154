//! Steps in flight when something fails.

use super::super::feed::Batch;
use super::super::steps::Measured;
use super::*;
use crate::dataset::Split;
use crate::progress::Progress;

/// Steps that complete in order, with their number as the loss; the third cannot begin.
#[derive(Debug, Default)]
struct Fragile {
    begun: u64,
    measured: u64,
}

impl Steps for Fragile {
    fn depth(&self) -> usize {
        2
    }

    fn begin(&mut self, batch: Batch, _: &mut ModelState) -> Result<Option<Batch>, EngineError> {
        if self.begun == 3 {
            return Err(EngineError::Usage("the fourth image is no image".into()));
        }
        self.begun += 1;
        Ok(Some(batch))
    }

    fn measure(&mut self) -> Result<Measured, EngineError> {
        assert!(self.measured < self.begun, "measured before it was begun");
        self.measured += 1;
        let losses = vec![("loss_mask", self.measured as f32)];
        Ok(Measured {
            losses,
            lr: 0.1,
            loss_scale: 1.0,
            grad_norm: 1.0,
            applied: true,
            stop: false,
            parameters: vec![],
        })
    }

    fn bytes(&self) -> usize {
        0
    }
}

/// Steps that began before the bad one are reported first, each once, then the reason for the end.
#[test]
fn a_step_that_cannot_begin_hides_none_before_it() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = format!("data.synthetic.dir={}", folder.path().join("drawn").display());
    let config = Config::load("micro", &[dir]).expect("the preset loads");
    let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
    let mut trainer = Trainer::new(&config, &data, &Backend::Cpu).expect("micro is sound");
    trainer.steps = Box::new(Fragile::default());
    for step in 1..=3 {
        let record = trainer.step(10).unwrap_or_else(|e| panic!("step {step}: {e}"));
        assert_eq!((record.step, record.loss), (step, step as f32));
    }
    let error = trainer.step(10).expect_err("the fourth").to_string();
    assert!(error.contains("fourth image"), "{error}");
    assert_eq!((trainer.steps_done(), trainer.in_flight()), (3, 0));
}

/// No step begins beyond the one that something else follows.
#[test]
fn nothing_is_in_flight_at_a_stop() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dir = format!("data.synthetic.dir={}", folder.path().join("drawn").display());
    let config = Config::load("micro", &[dir]).expect("the preset loads");
    let data = DataSet::open(&config, Split::Train, &Progress::quiet()).expect("drawn images");
    let mut trainer = Trainer::new(&config, &data, &Backend::Cpu).expect("micro is sound");
    trainer.steps = Box::new(Fragile::default());
    let mut flights = vec![];
    for until in [2, 2, 0] {
        trainer.step(until).expect("a step");
        flights.push(trainer.in_flight());
    }
    assert_eq!(flights, [1, 0, 0], "a stop that has passed means one step more");
}
