//! Capture: a program becomes one graph; a step is one launch without host synchronization.
//!
//! `cargo run --release -p graph --example 04_capture`

use std::error::Error;
use std::io::Write;
use std::sync::Arc;

use device::{Device, Target};
use graph::exec::device::{DeviceExecutor, DeviceState, Prepared, SharedArena};
use graph::{CpuExecutor, GraphError, Program, StateSet};
use kernels::case::normal;
use kernels::on_device::device_bytes;
use kernels::ops::linear::{Linear, LinearInputs};
use kernels::ops::sum::Sum;
use kernels::{Precision, Role, TensorDesc};

const STEPS: u32 = 5;

fn main() -> Result<(), Box<dyn Error>> {
    lesson(&mut std::io::stdout())
}

pub(crate) fn lesson(out: &mut dyn Write) -> Result<(), Box<dyn Error>> {
    // The training device, on an emulated driver that executes the compiled kernels on the CPU, in
    // any order that streams and events allow.
    let device = Arc::new(test_gpu::open("A100 SEED=1"));
    let shared: Arc<dyn Device> = device.clone();
    let (program, mut state) = block()?;
    let program = Arc::new(program);

    // Schedule and plan for this GPU; state and arena in its memory; then the capture.
    let prepared = Prepared::new(program.clone(), Target::Gpu(device.gpu().clone()))?;
    let on_device = DeviceState::new(shared.clone(), &[&program], &[], &state)?;
    let arena = Arc::new(SharedArena::new(shared.clone(), &[&prepared])?);
    let executor = DeviceExecutor::new(shared, vec![prepared], arena, &on_device)?;
    let mut executor = executor.with_staging()?;
    // The graph contains two kernels that belong to no node: one loads the inputs, one counts
    // completed steps.
    writeln!(out, "captured {} kernels", executor.graphs()[0].kernels)?;

    // Write the inputs of each step and submit it. `submit` returns before the device is done.
    let before = device.counts();
    let x_of = |seed| normal(Role::Activation, &[16, 32], seed, 1.0);
    let mut x = x_of(0);
    for step in 1..=STEPS {
        x = x_of(step);
        executor.write_input(0, "x", &device_bytes(Precision::Fp16, &x))?;
        executor.submit(0)?;
    }
    executor.until_done(STEPS)?;
    let after = device.counts();

    // Reading a kept tensor waits for the device, so the counts were read first. The device result
    // is fp16, the CPU result f32.
    let got = executor.read(0, "z")?;
    let mut cpu = CpuExecutor::new(program, &state)?;
    cpu.input_mut("x")?.as_f32_mut().copy_from_slice(x.as_f32());
    cpu.run(&mut state);
    let differences = got.as_f32().iter().zip(cpu.f32("z")?).map(|(a, b)| (a - b).abs());
    let worst = differences.fold(0.0, f32::max);
    assert!(worst < 0.02, "off by {worst}");
    writeln!(out, "the last step is within 0.02 of the CPU in f32")?;

    let launches = after.graph_launches - before.graph_launches;
    let copies = after.uploads - before.uploads;
    let waits = after.host_waits - before.host_waits;
    let single = after.kernel_launches - before.kernel_launches;
    let allocations = after.allocations - before.allocations;
    writeln!(
        out,
        "{STEPS} steps: {launches} graph launches, {copies} copies, {single} single launches, \
         {waits} waits, {allocations} allocations"
    )?;
    Ok(())
}

/// `z = x + relu(x w^T + b)`.
fn block() -> Result<(Program, StateSet), GraphError> {
    let mut program = Program::new();
    program.set_part("block");
    let x = program.input("x", TensorDesc::new(Role::Activation, &[16, 32]));
    let w_desc = TensorDesc::new(Role::Weight, &[32, 32]);
    let b_desc = TensorDesc::new(Role::Master, &[32]);
    let (w, b) = (program.state("w", w_desc.clone()), program.state("b", b_desc.clone()));
    let linear = Linear { relu: true, counted: false };
    let y = program.apply1(linear, LinearInputs { x, w, b, count: None })?;
    let z = program.apply1(Sum, [x, y])?;
    program.keep("z", z);
    let mut state = StateSet::new();
    state.insert("w", normal(w_desc.role, &w_desc.shape, 2, 0.2));
    state.insert("b", normal(b_desc.role, &b_desc.shape, 3, 0.2));
    Ok((program, state))
}
