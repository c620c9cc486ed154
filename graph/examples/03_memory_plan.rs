//! Schedule and memory plan: which tensors of a forward and backward pass share bytes.
//!
//! `cargo run --release -p graph --example 03_memory_plan`

use std::error::Error;
use std::io::Write;

use device::{Gpu, Target};
use graph::autodiff::differentiate;
use graph::plan::{Block, Owner};
use graph::{GraphError, Plan, Program, Schedule};
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::ops::softmax_cross_entropy::{SoftmaxCrossEntropy, SoftmaxCrossEntropyInputs};
use kernels::{Role, TensorDesc};

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    let program = perceptron()?;

    // The plan depends on the target: element types, scratch memory, streams. On a GPU the weight
    // gradients run on a second stream, concurrently with the main stream.
    let target = Target::Gpu(Gpu::a100());
    let schedule = Schedule::new(&program, &target)?;
    for (position, launch) in schedule.launches().iter().enumerate() {
        let name = program.node_name(launch.node);
        let waits = format!("{:?}", launch.waits);
        writeln!(out, "{position:>2} stream {} waits {waits:<8} {name}", launch.stream)?;
    }

    // Two blocks of the arena may overlap only if, in every order that the schedule allows, the
    // last user of one runs before the writer of the other.
    let plan = Plan::new(&program, &schedule, &target);
    writeln!(out, "\n  offset    bytes  what")?;
    for block in plan.blocks() {
        let others = plan.blocks().iter().filter(|other| shares(block, other));
        let others: Vec<String> = others.map(|other| what(&program, other)).collect();
        let others = if others.is_empty() { "nobody".into() } else { others.join(", ") };
        let what = what(&program, block);
        writeln!(out, "{:>8} {:>8}  {what} shares with {others}", block.offset, block.bytes)?;
    }
    for (i, a) in plan.blocks().iter().enumerate() {
        let clash = |b: &&Block| shares(a, b) && a.conflicts(b, &schedule);
        assert!(plan.blocks()[..i].iter().find(clash).is_none(), "alive together");
    }
    let (arena, alone) = (plan.arena_bytes(), plan.unshared_bytes());
    let least = plan.peak_live_bytes(&schedule);
    writeln!(out, "\narena {arena} bytes; {alone} without sharing; {least} alive at once")?;
    Ok(())
}

fn shares(a: &Block, b: &Block) -> bool {
    let overlap = a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
    a.owner != b.owner && overlap
}

fn what(program: &Program, block: &Block) -> String {
    match block.owner {
        Owner::Tensor(t) => format!("%{} {}", t.index(), program.tensors()[t.index()].name),
        Owner::Workspace(launch) => format!("scratch of launch {launch}"),
    }
}

/// Three layers of 64 features on 128 rows, a loss, and the gradients of all weights.
fn perceptron() -> Result<Program, GraphError> {
    let mut program = Program::new();
    let mut x = program.input("x", TensorDesc::new(Role::Activation, &[128, 64]));
    let labels = program.input("labels", TensorDesc::new(Role::Index, &[128]));
    let image_idx = program.input("image_idx", TensorDesc::new(Role::Index, &[128]));
    let num_images = program.input("num_images", TensorDesc::new(Role::Index, &[1]));
    let seed = program.input("seed", TensorDesc::new(Role::Scalar, &[1]));
    let mut weights = vec![];
    for layer in 0..3 {
        program.set_part(&format!("layer{layer}"));
        let w = program.state(&format!("w{layer}"), TensorDesc::new(Role::Weight, &[64, 64]));
        let b = program.state(&format!("b{layer}"), TensorDesc::new(Role::Master, &[64]));
        let linear = Linear { relu: layer < 2, counted: false };
        x = program.apply1(linear, LinearInputs { x, w, b, count: None })?;
        weights.push(w);
    }
    program.set_part("loss");
    let read = SoftmaxCrossEntropyInputs { logits: x, labels, image_idx, num_images };
    let loss = program.apply1(SoftmaxCrossEntropy { ipg: 1, rows_per_image: None }, read)?;
    program.keep("loss", loss);
    for (layer, gradient) in
        differentiate(&mut program, &[loss], seed, &weights)?.into_iter().enumerate()
    {
        program.keep(&format!("grad/w{layer}"), gradient);
    }
    Ok(program)
}
