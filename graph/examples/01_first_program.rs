//! First program: two ops over three tensors, described once and run on the CPU.
//!
//! `cargo run --release -p graph --example 01_first_program`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use graph::report::to_text;
use graph::{CpuExecutor, Program, StateSet};
use kernels::cpu::HostTensor;
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::ops::sum::Sum;
use kernels::{Role, TensorDesc};

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // A program contains descriptions of tensors (shapes and roles), not values. The role is the
    // purpose of a tensor. A device maps roles to element types; the CPU computes in f32.
    let mut program = Program::new();
    let x_desc = TensorDesc::new(Role::Activation, &[2, 3]);
    let w_desc = TensorDesc::new(Role::Weight, &[3, 3]);
    let b_desc = TensorDesc::new(Role::Master, &[3]);

    // The caller writes inputs before each run. State persists across runs.
    let x = program.input("x", x_desc);
    let w = program.state("w", w_desc.clone());
    let b = program.state("b", b_desc.clone());

    // `apply1` adds a node. Shapes are checked here, so an error names the op and the part.
    program.set_part("block");
    let linear = Linear { relu: true, counted: false };
    let y = program.apply1(linear, LinearInputs { x, w, b, count: None })?;
    let z = program.apply1(Sum, [x, y])?;

    // Only kept tensors can be read after a run. All other tensors may share memory.
    program.keep("z", z);
    write!(out, "{}", to_text(&program))?;

    let mut wrong = program.clone();
    let refused = wrong.apply1(Sum, [x, w]).expect_err("two shapes");
    writeln!(out, "\nx + w is rejected: {refused}")?;

    // Values are set here: first state by name, then inputs. The executor plans memory once.
    let mut state = StateSet::new();
    let rotation = vec![0.0, 1.0, 0.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0];
    state.insert("w", HostTensor::f32(w_desc, rotation));
    state.insert("b", HostTensor::f32(b_desc, vec![0.0, 0.0, -10.0]));
    let mut executor = CpuExecutor::new(Arc::new(program), &state)?;
    let x = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
    executor.input_mut("x")?.as_f32_mut().copy_from_slice(&x);
    executor.run(&mut state);
    writeln!(out, "\nz = x + relu(x w^T + b) = {:?}", executor.f32("z")?)?;
    Ok(())
}
