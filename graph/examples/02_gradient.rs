//! Gradient: the backward pass of a linear classifier, checked by finite differences.
//!
//! `cargo run --release -p graph --example 02_gradient`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use graph::autodiff::differentiate;
use graph::{CpuExecutor, GraphError, Program, StateSet};
use kernels::case::normal;
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::ops::softmax_cross_entropy::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use kernels::{Role, TensorDesc};

/// Rows, features and classes.
const SIZES: [usize; 3] = [4, 5, 3];
/// Step of the finite difference.
const EPS: f32 = 1e-2;

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let (program, mut state) = classifier()?;
    for node in program.nodes() {
        writeln!(out, "{:<8} {}", node.pass, node.op.name())?;
    }

    // The analytic gradient: one run gives the loss and the gradient.
    let mut executor = CpuExecutor::new(Arc::new(program), &state)?;
    let x = executor.input_mut("x")?.desc.clone();
    let x = normal(x.role, &x.shape, 1, 1.0);
    executor.input_mut("x")?.as_f32_mut().copy_from_slice(x.as_f32());
    executor.input_mut("labels")?.as_i32_mut().copy_from_slice(&[0, 1, 2, 1]);
    executor.input_mut("image_idx")?.as_i32_mut().fill(0);
    executor.input_mut("num_images")?.as_i32_mut().fill(1);
    executor.input_mut("seed")?.as_f32_mut().fill(1.0);
    executor.run(&mut state);
    let gradient = executor.f32("grad/w")?.to_vec();

    // The finite difference: change one weight at a time and compute the change in the loss.
    let mut worst = 0.0f32;
    writeln!(out, "\nweight  gradient  difference")?;
    for (i, gradient) in gradient.iter().enumerate() {
        let mut loss_at = |step: f32| -> Result<f32, GraphError> {
            let mut moved = state.clone();
            moved.get_mut("w").expect("a state").as_f32_mut()[i] += step;
            executor.run(&mut moved);
            Ok(executor.f32("loss")?[0])
        };
        let difference = (loss_at(EPS)? - loss_at(-EPS)?) / (2.0 * EPS);
        worst = worst.max((difference - gradient).abs());
        writeln!(out, "{i:>6}  {gradient:>8.4}  {difference:>10.4}")?;
    }
    assert!(worst < 1e-4, "off by {worst}");
    let largest = gradient.iter().fold(0.0f32, |largest, g| largest.max(g.abs()));
    let count = gradient.len();
    writeln!(out, "\n{count} gradients up to {largest:.2} agree to 1e-4")?;
    Ok(())
}

/// The mean cross-entropy of `x w^T + b`, and its gradient with respect to `w`.
fn classifier() -> Result<(Program, StateSet), GraphError> {
    let [rows, features, classes] = SIZES;
    let mut program = Program::new();
    program.set_part("classifier");
    let x = program.input("x", TensorDesc::new(Role::Activation, &[rows, features]));
    let labels = program.input("labels", TensorDesc::new(Role::Index, &[rows]));
    let image_idx = program.input("image_idx", TensorDesc::new(Role::Index, &[rows]));
    let num_images = program.input("num_images", TensorDesc::new(Role::Index, &[1]));
    let [w_desc, b_desc] = [
        TensorDesc::new(Role::Weight, &[classes, features]),
        TensorDesc::new(Role::Master, &[classes]),
    ];
    let (w, b) = (program.state("w", w_desc.clone()), program.state("b", b_desc.clone()));
    let linear = Linear { relu: false, counted: false };
    let logits = program.apply1(linear, LinearInputs { x, w, b, count: None })?;
    let read = SoftmaxCrossEntropyInputs { logits, labels, image_idx, num_images };
    let loss = program.apply1(SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }, read)?;
    program.keep("loss", loss);

    // Each op states its backward ops; `differentiate` chains them from the loss to `w`. The
    // gradients of `x` and `b` are not requested, so no node computes them. `seed` is the gradient
    // of the loss itself: 1, or a loss scale.
    let seed = program.input("seed", TensorDesc::new(Role::Scalar, &[1]));
    let gradients = differentiate(&mut program, &[loss], seed, &[w])?;
    program.keep("grad/w", gradients[0]);

    let mut state = StateSet::new();
    state.insert("w", normal(w_desc.role, &w_desc.shape, 2, 0.5));
    state.insert("b", normal(b_desc.role, &b_desc.shape, 3, 0.5));
    Ok((program, state))
}
