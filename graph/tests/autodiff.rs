//! Reverse-mode differentiation: gradients agree with finite differences, and no unneeded nodes are
//! added.

use std::sync::Arc;

use graph::autodiff::differentiate;
use graph::program::Pass;
use graph::{CpuExecutor, Program, StateSet, TensorId};

use crate::common::random::Rng;
use crate::common::toy::Toy;
use crate::common::{Build, bound, state, tensor, vector};

/// Length of the vectors.
const LEN: usize = 3;

/// A random program of toy ops whose losses depend on all parameters; returns program, losses and
/// parameters.
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
            // Halve the value, so that repeated squares stay near 1.
            let half = program.node(Toy::Scale(0.5), [t]);
            // Sometimes one of the two outputs of `Cross` remains unread.
            if !rng.one_in(4) || tensors.len() < 5 {
                tensors.push(half);
                unread.push(half);
            }
        }
    }
    // Read every parameter once more: a parameter on which no loss depends would have no gradient.
    for p in &params {
        if !unread.contains(p) {
            unread.push(*p);
        }
    }
    let losses = unread.iter().map(|t| program.node(Toy::Total, [*t])).collect();
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
    // The error of the finite difference is eps^2 f'''/6 + 1e-7 |f| / eps; both terms are 1e-5 to
    // 1e-4, since f and its derivatives are near 1. Largest measured error: 3.7e-5.
    assert!(worst < 2e-4, "{worst:e}");
}

/// Largest difference between a directional derivative and the finite difference, relative to the
/// larger of the two, or to 1 if both are smaller.
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
    let mut executor = bound(&program, &state);
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

/// A program with state `w` of length `len`, and the input `seed`, the gradient of each loss.
fn start(len: usize) -> (Program, TensorId, TensorId) {
    let mut program = Program::new();
    let seed = program.input("seed", vector(1));
    let w = program.state("w", vector(len));
    (program, seed, w)
}

/// Adds the backward pass; returns the gradients of the tensors `of`, on all of which the losses
/// depend.
fn gradients<const N: usize>(
    program: &mut Program,
    losses: &[TensorId],
    of: [TensorId; N],
) -> [TensorId; N] {
    let seed = program.find("seed").expect("an input");
    let gradients = differentiate(program, losses, seed, &of).expect("reached");
    gradients.try_into().expect("one of each")
}

/// The values of `tensor` for the given values of `w`.
fn values_at(mut program: Program, w: &[f32], tensor: TensorId) -> Vec<f32> {
    program.keep("wanted", tensor);
    let mut state = state("w", w);
    let mut executor = bound(&program, &state);
    executor.input_mut("seed").expect("declared").as_f32_mut()[0] = 1.0;
    executor.run(&mut state);
    executor.f32("wanted").expect("kept").to_vec()
}

/// Part, op and pass of all nodes from position `from` on.
fn nodes(program: &Program, from: usize) -> Vec<(&str, &str, Pass)> {
    program.nodes()[from..].iter().map(|n| (n.part.as_str(), n.op.name(), n.pass)).collect()
}

fn count(program: &Program, name: &str) -> usize {
    let backward = (name, Pass::Backward);
    nodes(program, 0).iter().filter(|(_, op, pass)| (*op, *pass) == backward).count()
}

/// Losses of `w`, and their gradient for given values of `w`; all terms are added by a single sum,
/// not pairwise.
#[test]
fn shared_parameter_gradients_accumulate() {
    type Losses = fn(&mut Program, TensorId) -> Vec<TensorId>;
    let cases: [(Losses, [f32; 2], [f32; 2]); 5] = [
        // Three readers.
        (
            |program, w| {
                let scaled = [1.0, 2.0, 4.0].map(|c| program.node(Toy::Scale(c), [w]));
                scaled.map(|y| program.node(Toy::Total, [y])).to_vec()
            },
            [0.5, 3.0],
            [7.0, 7.0],
        ),
        // One node reads `w` twice.
        (
            |program, w| {
                let y = program.node(Toy::Mul, [w, w]);
                vec![program.node(Toy::Total, [y])]
            },
            [3.0, -1.0],
            [6.0, -2.0],
        ),
        (
            |program, w| {
                let y = program.node(Toy::Add, [w, w]);
                vec![program.node(Toy::Total, [y])]
            },
            [3.0, -1.0],
            [2.0, 2.0],
        ),
        // State that is declared twice is one parameter.
        (
            |program, w| {
                let again = program.state("w", vector(2));
                assert_eq!(again, w);
                let y = program.node(Toy::Mul, [w, again]);
                vec![program.node(Toy::Total, [y])]
            },
            [0.5, 2.0],
            [1.0, 4.0],
        ),
        // A loss that is listed twice counts twice.
        (
            |program, w| {
                let loss = program.node(Toy::Total, [w]);
                vec![loss, loss]
            },
            [0.5, 2.0],
            [2.0, 2.0],
        ),
    ];
    for (i, (build, at, expected)) in cases.into_iter().enumerate() {
        let (mut program, _, w) = start(2);
        let losses = build(&mut program, w);
        let forward = program.nodes().len();
        let [grad] = gradients(&mut program, &losses, [w]);
        assert_eq!(count(&program, "sum"), 1, "case {i}");
        assert!(nodes(&program, forward).iter().all(|(.., pass)| *pass == Pass::Backward));
        assert_eq!(values_at(program, &at, grad), expected, "case {i}");
    }
}

#[test]
fn unread_output_has_zero_gradient() {
    for (read, expected) in [(0, [1.0, 1.0]), (1, [6.0, 2.0])] {
        let (mut program, _, w) = start(2);
        let b = program.node(Toy::Scale(1.0), [w]);
        let y: [TensorId; 2] = program.apply(Toy::Cross, [w, b]).expect("f32");
        let loss = program.node(Toy::Total, [y[read]]);
        let forward = program.nodes().len();
        let [_, grad] = gradients(&mut program, &[loss], [w, b]);
        assert_eq!(count(&program, "fill"), 1, "made once, read by two steps");
        // The six backward nodes: spread, fill, two mul_add, scale for b, sum for w.
        assert_eq!(program.nodes().len() - forward, 6);
        // d(a + b)/db = 1, d(ab)/db = a.
        assert_eq!(values_at(program, &[6.0, 2.0], grad), expected);
    }
}

#[test]
fn zeros_for_unread_output_are_not_reported_as_gradient() {
    let (mut program, seed, w) = start(2);
    let [sum, product] = program.apply(Toy::Cross, [w, w]).expect("f32");
    program.keep("product", product);
    let loss = program.node(Toy::Total, [sum]);
    let error = differentiate(&mut program, &[loss], seed, &[w, product]).expect_err("unread");
    assert_eq!(error.to_string(), "no loss depends on `product`: no gradient reaches it");
}

#[test]
fn frozen_part_has_no_backward_pass() {
    let (mut program, _, w) = start(2);
    let frozen = program.state("frozen", vector(2));
    program.set_part("stem");
    let mut x = frozen;
    for _ in 0..5 {
        x = program.node(Toy::Square, [x]);
    }
    program.set_part("head");
    let y = program.node(Toy::Mul, [x, w]);
    let loss = program.node(Toy::Total, [y]);
    let forward = program.nodes().len();
    gradients(&mut program, &[loss], [w]);
    // The multiplication computes only the gradient of `w`, and the stem computes none.
    let backward = [("head", "spread", Pass::Backward), ("head", "mul", Pass::Backward)];
    assert_eq!(nodes(&program, forward), backward);
}

#[test]
fn unused_temporary_is_not_computed() {
    let (mut program, _, w) = start(2);
    let x = program.input("x", vector(2));
    let squared = program.node(Toy::Square, [x]);
    let y = program.node(Toy::Add, [squared, w]);
    let loss = program.node(Toy::Total, [y]);
    gradients(&mut program, &[loss], [w]);
    assert_eq!((count(&program, "mul"), count(&program, "spread")), (0, 1));
}

/// Part and pass are unchanged after a backward pass that is rejected at its start or in its
/// middle.
#[test]
fn rejected_backward_pass_leaves_program_usable() {
    let (mut program, seed, w) = start(2);
    let unused = program.state("layer.unused", vector(2));
    let wide = program.input("wide seed", vector(5));
    program.set_part("head");
    let stopped = program.node(Toy::Stop, [unused]);
    let y = program.node(Toy::Mul, [w, stopped]);
    let loss = program.node(Toy::Total, [y]);
    for (losses, seed, says) in [
        ([loss], seed, "no loss depends on `layer.unused`: no gradient reaches it"),
        ([y], wide, "in `head`: mul: x should have shape [5], got [2]"),
    ] {
        program.set_part("after");
        let error = differentiate(&mut program, &losses, seed, &[w, unused]).expect_err("refused");
        assert_eq!(error.to_string(), says);
        program.node(Toy::Stop, [y]);
        let end = program.nodes().len() - 1;
        assert_eq!(nodes(&program, end), [("after", "stop", Pass::Forward)]);
    }
}

#[test]
fn alias_chain_copies_nothing() {
    let (mut program, seed, w) = start(1);
    let x = program.input("x", vector(1));
    let mut y = w;
    for _ in 0..4 {
        y = program.node(Toy::Add, [y, x]);
    }
    let forward = program.nodes().len();
    let [of_w, of_x] = gradients(&mut program, &[y], [w, x]);
    assert_eq!(of_w, seed, "the gradient of a sum's term is the sum's");
    // `x` is a term four times: one node adds the seed four times.
    assert_eq!(program.nodes().len() - forward, 1);
    assert_eq!(values_at(program, &[1.0], of_x), [4.0]);
}

#[test]
fn two_parameters_can_share_one_gradient() {
    let (mut program, _, w) = start(2);
    let v = program.state("v", vector(2));
    let y = program.node(Toy::Add, [w, v]);
    let loss = program.node(Toy::Total, [y]);
    let [of_w, of_v] = gradients(&mut program, &[loss], [w, v]);
    assert_eq!(of_w, of_v);
    program.keep("grad/w", of_w);
    program.keep("grad/v", of_v);
    assert_eq!(["grad/w", "grad/v"].map(|name| program.find(name)), [Some(of_w); 2]);
    assert_eq!(program.kept().len(), 1);
}

/// The sum of a shared parameter's gradients belongs to the part that reads it first.
#[test]
fn gradient_sum_is_attributed_to_first_reader_part() {
    let (mut program, _, w) = start(2);
    let x = program.input("x", vector(2));
    let losses = [("other", x), ("first", w), ("second", w)].map(|(part, from)| {
        program.set_part(part);
        let y = program.node(Toy::Scale(2.0), [from]);
        program.node(Toy::Total, [y])
    });
    gradients(&mut program, &losses, [x, w]);
    assert!(nodes(&program, 0).contains(&("first", "sum", Pass::Backward)));
    assert_eq!(count(&program, "sum"), 1);
}
