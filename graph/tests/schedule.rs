//! The schedule: state is updated once, after all its readers, and a stream waits for the tensors
//! that its nodes read.

use std::sync::Arc;

use graph::{GraphError, Program, Schedule, TensorId};

use crate::common::mix::Mix;
use crate::common::{Build, vector};

/// Adds a node in `part`; it updates the state in `updates`, if any.
fn add(program: &mut Program, part: &str, inputs: &[TensorId], updates: &[TensorId]) {
    program.set_part(part);
    program.add(Arc::new(Mix::of(&[1])), inputs, updates).expect("mix takes any f32");
}

fn start() -> (Program, TensorId) {
    let mut program = Program::new();
    let weight = program.state("weight", vector(4));
    (program, weight)
}

#[test]
fn state_read_unordered_with_its_update_is_rejected() {
    type Use = fn(&mut Program, TensorId);
    let cases: [(Use, &str); 4] = [
        (
            |program, weight| {
                add(program, "optimizer", &[], &[weight]);
                add(program, "head.late", &[weight], &[]);
            },
            "head.late.mix#1 without being ordered before its update by optimizer.mix#0",
        ),
        (
            |program, weight| {
                add(program, "first", &[], &[weight]);
                add(program, "second", &[], &[weight]);
            },
            "second.mix#1 without being ordered before its update by first.mix#0",
        ),
        (
            |program, weight| add(program, "", &[weight], &[weight]),
            ".mix#0 without being ordered before its update by .mix#0",
        ),
        (
            |program, weight| add(program, "", &[], &[weight, weight]),
            ".mix#0 without being ordered before its update by .mix#0",
        ),
    ];
    for (build, user) in cases {
        let (mut program, weight) = start();
        build(&mut program, weight);
        let error = Schedule::single_stream(&program).expect_err("should be refused");
        assert!(matches!(error, GraphError::UnorderedUpdate { .. }));
        assert_eq!(error.to_string(), format!("state `weight` is used by {user}"));
    }
}

#[test]
fn update_waits_for_all_readers() {
    let (mut program, weight) = start();
    for _ in 0..3 {
        program.node(Mix::of(&[1]), [weight]);
    }
    add(&mut program, "", &[], &[weight]);
    assert!(Schedule::single_stream(&program).is_ok());
    let schedule = Schedule::with_streams(&program, &[0, 1, 2, 3]).expect("ordered");
    assert_eq!(schedule.launches()[3].waits, [0, 1, 2]);
    assert!((0..3).all(|reader| schedule.happens_before(reader, 3)));
}

#[test]
fn waits_implied_by_stream_order_are_omitted() {
    let mut program = Program::new();
    let a = program.node(Mix::of(&[1]), []);
    let b = program.node(Mix::of(&[1]), [a]);
    program.node(Mix::of(&[1]), [a, b, a]);
    program.node(Mix::of(&[1]), []);
    program.node(Mix::of(&[1]), []);
    let schedule = Schedule::with_streams(&program, &[0, 0, 1, 1, 2]).expect("ordered");
    let waits: Vec<_> = schedule.launches().iter().map(|l| l.waits.clone()).collect();
    let expected = [vec![], vec![], vec![1], vec![], vec![]];
    assert_eq!(waits, expected, "what 1 comes after needs no wait");
    assert!(schedule.happens_before(0, 3), "through the stream");
    assert!(!schedule.happens_before(3, 0) && !schedule.happens_before(3, 3));
    let apart = (0..4).all(|i| !schedule.happens_before(i, 4) && !schedule.happens_before(4, i));
    assert!(apart, "streams that share nothing are not ordered");
}
