//! Reverse-mode differentiation: right by finite differences, and no more nodes than needed.

use std::sync::Arc;

use graph::autodiff::differentiate;
use graph::program::Pass;
use graph::{CpuExecutor, GraphError, Program, StateSet, TensorId};

use crate::common::random::Rng;
use crate::common::toy::Toy;
use crate::common::{tensor, vector};

/// Length of the vectors.
const LEN: usize = 3;

/// A random program of toy ops whose losses all parameters reach, and the parameters.
fn random_program(seed: u32) -> (Program, Vec<TensorId>, Vec<TensorId>) {
    let mut rng = Rng::new(seed);
    let mut program = Program::new();
    let params: Vec<_> = (0..3).map(|i| program.state(&format!("w{i}"), vector(LEN))).collect();
    let mut tensors = params.clone();
    tensors.push(program.input("x", vector(LEN)));
    let mut unread = tensors.clone();
    for _ in 0..4 + rng.below(12) {
        let op =
            [Toy::Add, Toy::Mul, Toy::Scale(-1.5), Toy::Square, Toy::Cross][rng.below(5)].clone();
        let count = if matches!(op, Toy::Scale(_) | Toy::Square) { 1 } else { 2 };
        let inputs: Vec<_> = (0..count).map(|_| tensors[rng.below(tensors.len())]).collect();
        unread.retain(|t| !inputs.contains(t));
        let outputs = program.add(Arc::new(op), &inputs, &[]).expect("one shape");
        for t in outputs {
            // Halved, so that powers of powers stay near 1.
            let half = program.apply1(Toy::Scale(0.5), [t]).expect("one shape");
            // One of the two outputs of `Cross` is sometimes left unread.
            if !rng.one_in(4) || tensors.len() < 5 {
                tensors.push(half);
                unread.push(half);
            }
        }
    }
    // A parameter whose readers all came to nothing would have no gradient.
    for p in &params {
        if !unread.contains(p) {
            unread.push(*p);
        }
    }
    let losses = unread.iter().map(|t| program.apply1(Toy::Total, [*t]).expect("f32")).collect();
    (program, losses, params)
}

fn random_state(seed: u32) -> StateSet {
    let mut rng = Rng::new(seed ^ 0xABCD);
    let mut state = StateSet::new();
    for i in 0..3 {
        let values: Vec<_> = (0..LEN).map(|_| 2.0 * rng.value() - 1.0).collect();
        state.insert(&format!("w{i}"), tensor(&values));
    }
    state
}

/// Sum of the losses, in f64, at the given parameters.
fn total_loss(executor: &mut CpuExecutor, state: &StateSet, losses: usize) -> f64 {
    executor.input_mut("x").expect("declared").as_f32_mut().copy_from_slice(&[0.5, -0.25, 0.75]);
    executor.run(&mut state.clone());
    let loss = |i| f64::from(executor.f32(&format!("loss{i}")).expect("kept")[0]);
    (0..losses).map(loss).sum()
}

#[test]
fn gradients_equal_finite_differences() {
    let mut worst = 0.0f64;
    for seed in 0..150 {
        worst = worst.max(worst_error(random_program(seed), seed));
    }
    println!("worst relative error {worst:.2e}");
    // The difference's own error is eps^2 f'''/6 + 1e-7 |f| / eps, each 1e-5 to 1e-4 here, where f
    // and its derivatives are near 1; measured worst 3.7e-5.
    assert!(worst < 2e-4, "{worst:e}");
}

/// The test of the test.
#[test]
fn a_wrong_rule_is_noticed() {
    let mut program = Program::new();
    let params: Vec<_> = (0..3).map(|i| program.state(&format!("w{i}"), vector(LEN))).collect();
    program.input("x", vector(LEN));
    let mut losses = Vec::new();
    for p in &params {
        let y = program.apply1(Toy::WrongSquare, [*p]).expect("f32");
        losses.push(program.apply1(Toy::Total, [y]).expect("f32"));
    }
    assert!(worst_error((program, losses, params), 1) > 0.1);
}

/// Largest difference of a directional derivative from the finite one, relative to 1 or the larger.
fn worst_error(
    (mut program, losses, params): (Program, Vec<TensorId>, Vec<TensorId>),
    seed: u32,
) -> f64 {
    const EPS: f32 = 1.0 / 128.0;
    for (i, loss) in losses.iter().enumerate() {
        program.keep(&format!("loss{i}"), *loss);
    }
    let one = program.input("seed", vector(1));
    let grads = differentiate(&mut program, &losses, one, &params).expect("all are reached");
    for (i, grad) in grads.iter().enumerate() {
        program.keep(&format!("grad{i}"), *grad);
    }
    let state = random_state(seed);
    let mut executor = CpuExecutor::new(Arc::new(program), &state).expect("bound");
    executor.input_mut("seed").expect("declared").as_f32_mut()[0] = 1.0;
    total_loss(&mut executor, &state, losses.len());
    let grads: Vec<Vec<f32>> =
        (0..3).map(|i| executor.f32(&format!("grad{i}")).expect("kept").to_vec()).collect();
    let mut worst = 0.0f64;
    for (i, grad) in grads.iter().enumerate() {
        for (j, g) in grad.iter().enumerate() {
            let mut moved = |by: f32| {
                let mut state = state.clone();
                state.get_mut(&format!("w{i}")).expect("there").as_f32_mut()[j] += by;
                total_loss(&mut executor, &state, losses.len())
            };
            let finite = (moved(EPS) - moved(-EPS)) / f64::from(2.0 * EPS);
            let g = f64::from(*g);
            worst = worst.max((finite - g).abs() / finite.abs().max(g.abs()).max(1.0));
        }
    }
    worst
}

/// Runs a program over state `w` and returns the tensors kept under `names`.
fn run(program: Program, w: &[f32], names: &[&str]) -> Vec<Vec<f32>> {
    let mut state = StateSet::new();
    state.insert("w", tensor(w));
    let mut executor = CpuExecutor::new(Arc::new(program), &state).expect("bound");
    executor.input_mut("seed").expect("declared").as_f32_mut()[0] = 1.0;
    executor.run(&mut state);
    names.iter().map(|n| executor.f32(n).expect("kept").to_vec()).collect()
}

fn start(len: usize) -> (Program, TensorId, TensorId) {
    let mut program = Program::new();
    let seed = program.input("seed", vector(1));
    let w = program.state("w", vector(len));
    (program, seed, w)
}

fn count(program: &Program, name: &str, pass: Pass) -> usize {
    program.nodes().iter().filter(|n| n.op.name() == name && n.pass == pass).count()
}

#[test]
fn gradients_of_several_readers_add_up() {
    let (mut program, seed, w) = start(2);
    let mut losses = Vec::new();
    for c in [1.0, 2.0, 4.0] {
        let y = program.apply1(Toy::Scale(c), [w]).expect("f32");
        losses.push(program.apply1(Toy::Total, [y]).expect("f32"));
    }
    let grad = differentiate(&mut program, &losses, seed, &[w]).expect("reached")[0];
    program.keep("grad", grad);
    assert_eq!(count(&program, "sum", Pass::Backward), 1, "one sum, not one a pair");
    assert_eq!(run(program, &[0.5, 3.0], &["grad"]), [[7.0, 7.0]]);
}

#[test]
fn a_tensor_read_twice_by_one_node_gets_both_gradients() {
    for (op, expected) in [(Toy::Mul, [6.0, -2.0]), (Toy::Add, [2.0, 2.0])] {
        let (mut program, seed, w) = start(2);
        let y = program.apply1(op, [w, w]).expect("f32");
        let loss = program.apply1(Toy::Total, [y]).expect("f32");
        let grad = differentiate(&mut program, &[loss], seed, &[w]).expect("reached")[0];
        program.keep("grad", grad);
        assert_eq!(run(program, &[3.0, -1.0], &["grad"]), [expected]);
    }
}

#[test]
fn an_output_that_nothing_reads_counts_as_zero() {
    for (read, expected) in [(0, [1.0, 1.0]), (1, [6.0, 2.0])] {
        let (mut program, seed, w) = start(2);
        let b = program.apply1(Toy::Scale(1.0), [w]).expect("f32");
        let y: [TensorId; 2] = program.apply(Toy::Cross, [w, b]).expect("f32");
        let loss = program.apply1(Toy::Total, [y[read]]).expect("f32");
        let forward = program.nodes().len();
        let grads = differentiate(&mut program, &[loss], seed, &[w, b]).expect("reached");
        program.keep("grad_b", grads[1]);
        assert_eq!(count(&program, "fill", Pass::Backward), 1, "made once, read by two steps");
        // spread, fill, two mul_add, scale for b, sum for w.
        assert_eq!(program.nodes().len() - forward, 6);
        // d(a + b)/db = 1, d(ab)/db = a.
        let a = [6.0, 2.0];
        assert_eq!(run(program, &a, &["grad_b"]), [expected]);
    }
}

#[test]
fn zeros_for_an_unread_output_are_not_its_gradient() {
    let (mut program, seed, w) = start(2);
    let [sum, product] = program.apply(Toy::Cross, [w, w]).expect("f32");
    program.keep("product", product);
    let loss = program.apply1(Toy::Total, [sum]).expect("f32");
    let error = differentiate(&mut program, &[loss], seed, &[w, product]).expect_err("unread");
    assert_eq!(error.to_string(), "no loss depends on `product`: no gradient reaches it");
}

#[test]
fn a_frozen_part_gets_no_backward() {
    let (mut program, seed, w) = start(2);
    let frozen = program.state("frozen", vector(2));
    program.set_part("stem");
    let mut x = frozen;
    for _ in 0..5 {
        x = program.apply1(Toy::Square, [x]).expect("f32");
    }
    program.set_part("head");
    let y = program.apply1(Toy::Mul, [x, w]).expect("f32");
    let loss = program.apply1(Toy::Total, [y]).expect("f32");
    differentiate(&mut program, &[loss], seed, &[w]).expect("reached");
    let backward: Vec<_> = program
        .nodes()
        .iter()
        .filter(|n| n.pass == Pass::Backward)
        .map(|n| (n.part.as_str(), n.op.name()))
        .collect();
    // The product has only the gradient of `w`, and the stem has none.
    assert_eq!(backward, [("head", "spread"), ("head", "mul")]);
}

#[test]
fn a_temp_that_leads_nowhere_is_not_computed() {
    let (mut program, seed, w) = start(2);
    let x = program.input("x", vector(2));
    let squared = program.apply1(Toy::Square, [x]).expect("f32");
    let y = program.apply1(Toy::Add, [squared, w]).expect("f32");
    let loss = program.apply1(Toy::Total, [y]).expect("f32");
    differentiate(&mut program, &[loss], seed, &[w]).expect("reached");
    assert_eq!(count(&program, "mul", Pass::Backward), 0);
    assert_eq!(count(&program, "spread", Pass::Backward), 1);
}

#[test]
fn a_tensor_without_gradient_is_named_and_the_program_stays_usable() {
    let (mut program, seed, w) = start(2);
    let unused = program.state("layer.unused", vector(2));
    program.set_part("head");
    let stopped = program.apply1(Toy::Stop, [unused]).expect("f32");
    let y = program.apply1(Toy::Mul, [w, stopped]).expect("f32");
    let loss = program.apply1(Toy::Total, [y]).expect("f32");
    let error = differentiate(&mut program, &[loss], seed, &[w, unused]).expect_err("stopped");
    assert!(matches!(&error, GraphError::NoGradient(name) if name == "layer.unused"), "{error}");
    program.apply1(Toy::Stop, [y]).expect("f32");
    let last = program.nodes().last().expect("has nodes");
    assert_eq!((last.part.as_str(), last.pass), ("head", Pass::Forward), "restored");
}

/// A rule that meets a seed of the wrong shape fails in the middle: part and pass come back too.
#[test]
fn an_op_that_refuses_its_gradient_says_where() {
    let (mut program, _, w) = start(2);
    let seed = program.input("wide seed", vector(5));
    program.set_part("head");
    let loss = program.apply1(Toy::Mul, [w, w]).expect("f32");
    program.set_part("after");
    let error = differentiate(&mut program, &[loss], seed, &[w]).expect_err("refused");
    assert_eq!(error.to_string(), "in `head`: mul: x should have shape [5], got [2]");
    program.apply1(Toy::Stop, [loss]).expect("f32");
    let last = program.nodes().last().expect("has nodes");
    assert_eq!((last.part.as_str(), last.pass), ("after", Pass::Forward));
}

#[test]
fn aliases_through_several_nodes_copy_nothing() {
    let (mut program, seed, w) = start(1);
    let x = program.input("x", vector(1));
    let mut y = w;
    for _ in 0..4 {
        y = program.apply1(Toy::Add, [y, x]).expect("f32");
    }
    let forward = program.nodes().len();
    let grads = differentiate(&mut program, &[y], seed, &[w, x]).expect("reached");
    assert_eq!(grads[0], seed, "the gradient of a sum's term is the sum's");
    // `x` is a term four times: its gradient is the seed four times, added up once.
    assert_eq!(program.nodes().len() - forward, 1);
    program.keep("grad_x", grads[1]);
    assert_eq!(run(program, &[1.0], &["grad_x"]), [[4.0]]);
}

#[test]
fn two_parameters_may_share_one_gradient_under_two_names() {
    let (mut program, seed, w) = start(2);
    let v = program.state("v", vector(2));
    let y = program.apply1(Toy::Add, [w, v]).expect("f32");
    let loss = program.apply1(Toy::Total, [y]).expect("f32");
    let grads = differentiate(&mut program, &[loss], seed, &[w, v]).expect("reached");
    assert_eq!(grads[0], grads[1]);
    program.keep("grad/w", grads[0]);
    program.keep("grad/v", grads[1]);
    assert_eq!(program.find("grad/w"), Some(grads[0]));
    assert_eq!(program.find("grad/v"), Some(grads[0]));
    assert_eq!(program.kept().len(), 1);
}

#[test]
fn state_declared_twice_is_one_parameter() {
    let (mut program, seed, w) = start(2);
    let again = program.state("w", vector(2));
    assert_eq!(w, again);
    let y = program.apply1(Toy::Mul, [w, again]).expect("f32");
    let loss = program.apply1(Toy::Total, [y]).expect("f32");
    let grads = differentiate(&mut program, &[loss], seed, &[w, again]).expect("reached");
    assert_eq!(grads[0], grads[1]);
    program.keep("grad", grads[0]);
    assert_eq!(run(program, &[0.5, 2.0], &["grad"]), [[1.0, 4.0]]);
}

#[test]
fn a_loss_counts_as_often_as_it_is_listed() {
    let (mut program, seed, w) = start(2);
    let loss = program.apply1(Toy::Total, [w]).expect("f32");
    let grad = differentiate(&mut program, &[loss, loss], seed, &[w]).expect("reached")[0];
    program.keep("grad", grad);
    assert!(program.nodes()[1..].iter().all(|n| n.pass == Pass::Backward));
    assert_eq!(run(program, &[0.5, 2.0], &["grad"]), [[2.0, 2.0]]);
}

/// The sum of a shared parameter's gradients belongs to the part that reads it first.
#[test]
fn a_shared_parameters_sum_is_counted_with_its_part() {
    let (mut program, seed, w) = start(2);
    let x = program.input("x", vector(2));
    let mut losses = Vec::new();
    for part in ["other", "first", "second"] {
        program.set_part(part);
        let from = if part == "other" { x } else { w };
        let y = program.apply1(Toy::Scale(2.0), [from]).expect("f32");
        losses.push(program.apply1(Toy::Total, [y]).expect("f32"));
    }
    differentiate(&mut program, &losses, seed, &[x, w]).expect("reached");
    let sum = program.nodes().iter().find(|n| n.op.name() == "sum").expect("w is shared");
    assert_eq!((sum.part.as_str(), sum.pass), ("first", Pass::Backward));
}
