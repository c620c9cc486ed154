//! Building programs: names, errors, dead nodes, cost and text.

use std::sync::Arc;

use device::{Gpu, Target};
use graph::autodiff::differentiate;
use graph::program::Pass;
use graph::prune::prune;
use graph::report::{part_costs, to_text};
use graph::{GraphError, Program, TensorId};

use crate::common::random::sample;
use crate::common::toy::Toy;
use crate::common::{Build, panic_message, vector};

#[test]
fn op_error_names_part_op_and_tensor() {
    let mut program = Program::new();
    let (a, b) = (program.input("a", vector(2)), program.input("b", vector(3)));
    program.set_part("head.fc");
    let error = program.apply1(Toy::Add, [a, b]).expect_err("shapes differ").to_string();
    assert_eq!(error, "in `head.fc`: add: x should have shape [2], got [3]");
    let error = program.apply1(Toy::Add, [a]).expect_err("one input").to_string();
    assert_eq!(error, "in `head.fc`: add: expected 2 inputs, got 1");
    let error = program.add(Arc::new(Toy::Descend), &[a], &[a]).expect_err("not state");
    assert!(matches!(error, GraphError::NotState { .. }));
    assert_eq!(error.to_string(), "in `head.fc`: descend updates `a`, which is not state");
    assert!(program.nodes().is_empty(), "a refused node is not added");
}

#[test]
fn duplicate_name_or_wrong_output_count_is_rejected() {
    type Mistake = fn(&mut Program, TensorId);
    let mistakes: [(Mistake, &str); 5] = [
        (
            |program, _| {
                program.state("w", vector(2));
                program.state("w", vector(3));
            },
            "state `w` declared twice, differently",
        ),
        (
            |program, _| {
                program.state("x", vector(2));
            },
            "`x` declared twice",
        ),
        (
            |program, x| {
                let y = program.node(Toy::Stop, [x]);
                program.keep("x", y);
            },
            "`x` declared twice",
        ),
        (
            |program, x| {
                for _ in 0..2 {
                    let y = program.node(Toy::Stop, [x]);
                    program.keep("y", y);
                }
            },
            "`y` declared twice",
        ),
        (
            |program, x| {
                program.set_part("head.fc");
                let [_, _, _] = program.apply(Toy::Cross, [x, x]).expect("f32");
            },
            "head.fc.cross has 2 outputs, not 3",
        ),
    ];
    for (mistake, says) in mistakes {
        let message = panic_message(|| {
            let mut program = Program::new();
            let x = program.input("x", vector(2));
            mistake(&mut program, x);
        });
        assert!(message.contains(says), "{message}");
    }
}

#[test]
fn only_inputs_state_and_kept_tensors_are_found_by_name() {
    let mut program = Program::new();
    let x = program.input("x", vector(2));
    let w = program.state("w", vector(2));
    program.set_part("part");
    let y = program.node(Toy::Add, [x, w]);
    assert_eq!(program.find("part.add"), None);
    program.keep("y", y);
    program.keep("y", y);
    program.keep("x", x);
    assert_eq!([program.find("x"), program.find("w"), program.find("y")], [x, w, y].map(Some));
    assert_eq!(program.kept(), [y, x]);
    assert_eq!(program.kept_names(), [("x", x), ("y", y)]);
}

#[test]
fn pruning_removes_dead_nodes_and_keeps_updates() {
    let mut program = Program::new();
    let x = program.input("x", vector(2));
    let w = program.state("w", vector(2));
    let kept = program.node(Toy::Scale(1.0), [x]);
    let step = program.node(Toy::Square, [x]);
    let dead = program.node(Toy::Add, [kept, step]);
    program.node(Toy::Mul, [dead, dead]);
    let half_dead: [TensorId; 2] = program.apply(Toy::Cross, [x, w]).expect("f32");
    program.keep("kept", kept);
    program.keep("product", half_dead[1]);
    program.add(Arc::new(Toy::Descend), &[step], &[w]).expect("state");
    prune(&mut program);
    let names: Vec<_> = program.nodes().iter().map(|n| n.op.name()).collect();
    assert_eq!(names, ["scale", "square", "cross", "descend"]);
    assert_eq!(program.find("kept"), Some(kept));
    assert_eq!(program.nodes()[2].outputs, half_dead, "tensors keep their numbers");
}

/// The nodes that remain are exactly the ancestors of kept tensors and updates.
#[test]
fn pruning_random_program_leaves_only_ancestors() {
    let mut dropped = 0;
    for seed in 0..100 {
        let mut program = sample(seed, 30).program;
        let before = program.nodes().to_vec();
        let writer = |t: &TensorId| before.iter().position(|n| n.outputs.contains(t));
        let mut open: Vec<usize> = program.kept().iter().filter_map(writer).collect();
        open.extend((0..before.len()).filter(|i| !before[*i].updates.is_empty()));
        let mut expected = vec![false; before.len()];
        while let Some(i) = open.pop() {
            if !std::mem::replace(&mut expected[i], true) {
                open.extend(before[i].inputs.iter().filter_map(writer));
            }
        }
        prune(&mut program);
        let left: Vec<_> = program.nodes().iter().map(|n| n.outputs.clone()).collect();
        let expected: Vec<_> = before
            .iter()
            .zip(expected)
            .filter(|(_, e)| *e)
            .map(|(n, _)| n.outputs.clone())
            .collect();
        assert_eq!(left, expected, "seed {seed}");
        dropped += before.len() - left.len();
    }
    assert!(dropped > 100, "only {dropped} nodes were dead: nothing was tested");
}

/// `loss = sum(w x)`, its gradient, and a step of gradient descent.
fn small_step() -> Program {
    let mut program = Program::new();
    let seed = program.input("seed", vector(1));
    let x = program.input("x", vector(2));
    let w = program.state("layer.weight", vector(2));
    program.set_part("layer.fc");
    let y = program.node(Toy::Mul, [x, w]);
    program.set_part("loss");
    let loss = program.node(Toy::Total, [y]);
    program.keep("loss", loss);
    let grad = differentiate(&mut program, &[loss], seed, &[w]).expect("reached")[0];
    program.set_pass(Pass::Update);
    program.set_part("optimizer");
    program.add(Arc::new(Toy::Descend), &[grad], &[w]).expect("state");
    program
}

#[test]
fn small_step_dump_matches_snapshot() {
    let expected = include_str!("small_step.txt");
    assert_eq!(to_text(&small_step()), expected);
    assert_eq!(to_text(&small_step()), to_text(&small_step()));
}

#[test]
fn cost_is_summed_by_part_and_pass() {
    let on_gpu = part_costs(&small_step(), &Target::Gpu(Gpu::a100()));
    // On a GPU all tensors except the loss are fp16.
    let bytes: Vec<_> = on_gpu.iter().map(|c| c.cost.bytes).collect();
    assert_eq!(bytes, [12, 8, 6, 12, 4]);
    let costs = part_costs(&small_step(), &Target::Cpu);
    let rows: Vec<_> = costs
        .iter()
        .map(|c| (c.part.as_str(), c.pass, c.nodes, c.cost.flops, c.cost.bytes))
        .collect();
    assert_eq!(
        rows,
        [
            ("layer", Pass::Forward, 1, 1_000_000, 24),
            ("loss", Pass::Forward, 1, 0, 12),
            ("loss", Pass::Backward, 1, 0, 12),
            ("layer", Pass::Backward, 1, 1_000_000, 24),
            ("optimizer", Pass::Update, 1, 0, 8),
        ]
    );
}
