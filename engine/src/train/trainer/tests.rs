//! Tests of steps in flight: a failing step, the step to stop at, and the shared arena.

use super::super::feed::Batch;
use super::super::steps::Measured;
use super::*;
use crate::dataset::Split;
use crate::dataset::tests::micro;
use dali::order::PaddedShape;

/// Steps that complete in order, with their number as the loss; the fourth cannot begin.
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
            counts: Vec::new(),
            parameters: vec![],
        })
    }

    fn kept(&self, _: &str, _: &str) -> Result<Vec<(String, Vec<f32>)>, EngineError> {
        Ok(vec![])
    }

    fn bytes(&self) -> usize {
        0
    }
}

fn fragile() -> Trainer {
    let (_folder, config, data) = micro(Split::Train, &[]);
    let mut trainer = Trainer::new(&config, &data, &Backend::Cpu).expect("micro is sound");
    trainer.steps = Box::new(Fragile::default());
    trainer
}

/// Each step before the failed one is returned once, then the error.
#[test]
fn failed_step_start_keeps_earlier_results() {
    let mut trainer = fragile();
    for step in 1..=3 {
        let record = trainer.step(10).unwrap_or_else(|e| panic!("step {step}: {e}"));
        assert_eq!((record.step, record.loss), (step, step as f32));
    }
    let error = trainer.step(10).expect_err("the fourth").to_string();
    assert!(error.contains("fourth image"), "{error}");
    assert_eq!((trainer.steps_done(), trainer.in_flight()), (3, 0));
}

/// No step begins after step `until`.
#[test]
fn no_step_begins_after_requested_last_step() {
    let mut trainer = fragile();
    let mut flights = vec![];
    for until in [2, 2, 0] {
        trainer.step(until).expect("a step");
        flights.push(trainer.in_flight());
    }
    assert_eq!(flights, [1, 0, 0], "a stop that has passed means one step more");
}

/// Programs of different padded shapes and passes alternate in one arena, which is as large as the
/// largest plan, and never read values that they did not write.
#[test]
fn training_and_evaluation_share_one_arena() {
    let (_folder, config, mut data) = micro(Split::Train, &["train.batch_size=4"]);
    data.shapes = [64, 96].map(|width| PaddedShape { height: 64, width }).to_vec();
    data.sizes.iter_mut().step_by(2).for_each(|size| *size = (64, 90));
    let states = [false, true].map(|poisons| {
        let mut trainer = Trainer::new(&config, &data, &Backend::Cpu).expect("micro is sound");
        let arena = trainer.state().cpu_arena().clone();
        for _ in 0..8 {
            if poisons {
                arena.poison(0xFF);
            }
            assert!(trainer.step(8).expect("a step").loss.is_finite());
        }
        let executors = trainer.cpu_executors();
        assert_eq!(executors.len(), 4, "early and last passes of two shapes");
        assert!(executors.iter().all(|executor| executor.runs() > 0), "all took part");
        let plans = executors.iter().map(|executor| executor.plan().arena_bytes());
        assert_eq!(plans.max(), Some(arena.bytes()));
        trainer.state().fetch().expect("on the host").clone()
    });
    assert!(states[0].iter().eq(states[1].iter()), "what the arena held changes no bit");
}
