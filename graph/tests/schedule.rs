//! The schedule: state is updated once, after all its readers, and streams wait for what they read.

use std::sync::Arc;

use graph::{GraphError, Program, Schedule, TensorId};

use crate::common::mix::Mix;
use crate::common::vector;

fn mix(outputs: &[usize]) -> Mix {
    Mix { outputs: outputs.to_vec(), scratch: 0, salt: 0.0 }
}

fn update(program: &mut Program, inputs: &[TensorId], updates: &[TensorId]) {
    program.add(Arc::new(mix(&[])), inputs, updates).expect("mix takes any f32");
}

fn refusal(program: &Program) -> String {
    let error = Schedule::single_stream(program).expect_err("should be refused");
    assert!(matches!(error, GraphError::UnorderedUpdate { .. }));
    error.to_string()
}

fn start() -> (Program, TensorId) {
    let mut program = Program::new();
    let weight = program.state("weight", vector(4));
    (program, weight)
}

#[test]
fn state_read_after_its_update_is_refused_by_name() {
    let (mut program, weight) = start();
    program.set_part("optimizer");
    update(&mut program, &[], &[weight]);
    program.set_part("head.late");
    program.apply1(mix(&[1]), [weight]).expect("mix");
    assert_eq!(
        refusal(&program),
        "state `weight` is used by head.late.mix#1 without being ordered before its update by \
         optimizer.mix#0"
    );
}

#[test]
fn state_updated_twice_is_refused_by_name() {
    let (mut program, weight) = start();
    program.set_part("first");
    update(&mut program, &[], &[weight]);
    program.set_part("second");
    update(&mut program, &[], &[weight]);
    assert_eq!(
        refusal(&program),
        "state `weight` is used by second.mix#1 without being ordered before its update by \
         first.mix#0"
    );
}

#[test]
fn a_node_that_reads_what_it_updates_is_refused() {
    let (mut program, weight) = start();
    update(&mut program, &[weight], &[weight]);
    assert!(refusal(&program).starts_with("state `weight` is used by .mix#0"));
}

#[test]
fn a_node_that_updates_one_state_twice_is_refused() {
    let (mut program, weight) = start();
    update(&mut program, &[], &[weight, weight]);
    assert!(refusal(&program).starts_with("state `weight` is used by .mix#0"));
}

#[test]
fn an_update_after_all_readers_is_accepted_and_waits_for_them() {
    let (mut program, weight) = start();
    for _ in 0..3 {
        program.apply1(mix(&[1]), [weight]).expect("mix");
    }
    update(&mut program, &[], &[weight]);
    assert!(Schedule::single_stream(&program).is_ok());
    let schedule = Schedule::with_streams(&program, &[0, 1, 2, 3]).expect("ordered");
    assert_eq!(schedule.launches()[3].waits, [0, 1, 2]);
    assert!((0..3).all(|reader| schedule.happens_before(reader, 3)));
}

#[test]
fn a_wait_stands_only_between_streams() {
    let mut program = Program::new();
    let a = program.apply1(mix(&[1]), []).expect("mix");
    let b = program.apply1(mix(&[1]), [a]).expect("mix");
    program.apply1(mix(&[1]), [a, b, a]).expect("mix");
    program.apply1(mix(&[1]), []).expect("mix");
    let schedule = Schedule::with_streams(&program, &[0, 0, 1, 1]).expect("ordered");
    let waits: Vec<_> = schedule.launches().iter().map(|l| l.waits.clone()).collect();
    assert_eq!(waits, [vec![], vec![], vec![1], vec![]], "what 1 comes after needs no wait");
    assert!(schedule.happens_before(0, 3), "through the stream");
    assert!(!schedule.happens_before(3, 0) && !schedule.happens_before(3, 3));
}

#[test]
fn streams_that_share_nothing_are_not_ordered() {
    let mut program = Program::new();
    for _ in 0..2 {
        program.apply1(mix(&[1]), []).expect("mix");
    }
    let schedule = Schedule::with_streams(&program, &[0, 1]).expect("ordered");
    assert!(!schedule.happens_before(0, 1) && !schedule.happens_before(1, 0));
}
