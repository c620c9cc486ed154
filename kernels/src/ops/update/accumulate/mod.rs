//! Accumulates the gradients of several micro-steps before one update.
//!
//! [`Accumulate`] ends a micro-step that is not the last of its step. Tensors: `grad_i` (f32) for
//! each of n parameters (in); state, updated: `sum_i` (Role::Master, the shape of its gradient),
//! then `held [1]` i32, the number of micro-steps in the sums. No outputs. If `held` is 0 the sums
//! are overwritten with the gradients; else the gradients are added. `held` is incremented.
//!
//! [`AddAccumulated`] runs in the last micro-step. Tensors: `grad_i`, then `sum_i` (in); state,
//! updated: `held` -> `total_i` (Role::WeightGradient, overwritten): the gradient, plus the sum if
//! `held` is not 0. `held` becomes 0.
//!
//! A non-finite sum stays non-finite, and the entire step is then skipped. Numerics: f32, in the
//! order of the micro-steps. Memory-bound: 12 bytes per element.

mod cases;

use device::{Arg, Buffer, Launch, LaunchArgs, StructArg};

use crate::cpu::CpuArgs;
use crate::many_tensors::{column, first_blocks};
use crate::{Cost, DType, Op, OpError, Role, TensorDesc, check};

pub use cases::cases;

/// Adds gradients to the sums of earlier micro-steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accumulate;

/// Gradients plus the sums of earlier micro-steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddAccumulated;

const NAME: &str = "accumulate";
const ADD: &str = "add_accumulated";

fn check_gradients(op: &'static str, grads: &[TensorDesc]) -> Result<(), OpError> {
    for grad in grads {
        check::dtype(op, "grad_i", grad, DType::F32)?;
        let wide = !grad.role.follows_precision();
        let got = format!("{:?}", grad.role);
        check::parameter(op, "role of grad_i", wide, "one that is f32 on CUDA", got)?;
    }
    Ok(())
}

impl Op for Accumulate {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "updates", updates, inputs.len() + 1)?;
        check_gradients(NAME, inputs)?;
        for (grad, sum) in inputs.iter().zip(updates) {
            check::floats(NAME, "sum_i", sum, &grad.shape)?;
        }
        check::integers(NAME, "held", &updates[inputs.len()], &[1])?;
        Ok(vec![])
    }

    fn cost(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> Cost {
        let elements: u64 = inputs.iter().map(|g| g.len() as u64).sum();
        Cost { flops: elements, bytes: 12 * elements }
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let n = args.inputs.len();
        let held = args.updates[n];
        let triples: Vec<_> =
            args.inputs.iter().zip(&args.updates).map(|(grad, sum)| (*grad, *sum, *sum)).collect();
        with_count(held, &triples, |sum| sum.update(), 1)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let Some((held, sums)) = args.updates.split_last_mut() else { panic!("{NAME}: held") };
        let held = &mut held.i32()[0];
        for (sum, grad) in sums.iter_mut().zip(&args.inputs) {
            for (sum, grad) in sum.f32().iter_mut().zip(grad.f32()) {
                *sum = if *held == 0 { *grad } else { *sum + grad };
            }
        }
        *held += 1;
    }
}

impl Op for AddAccumulated {
    fn name(&self) -> &'static str {
        ADD
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let n = inputs.len() / 2;
        check::arity(ADD, "inputs", inputs, 2 * n)?;
        check::arity(ADD, "updates", updates, 1)?;
        check_gradients(ADD, &inputs[..n])?;
        for (grad, sum) in inputs.iter().zip(&inputs[n..]) {
            check::floats(ADD, "sum_i", sum, &grad.shape)?;
        }
        check::integers(ADD, "held", &updates[0], &[1])?;
        let total = |grad: &TensorDesc| TensorDesc::new(Role::WeightGradient, &grad.shape);
        Ok(inputs[..n].iter().map(total).collect())
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (grads, sums) = args.inputs.split_at(args.inputs.len() / 2);
        let triples: Vec<_> = grads
            .iter()
            .zip(sums)
            .zip(&args.outputs)
            .map(|((grad, sum), total)| (*grad, *sum, *total))
            .collect();
        with_count(args.updates[0], &triples, |total| total.write(), 0)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let held = &mut args.updates[0].i32()[0];
        let (grads, sums) = args.inputs.split_at(args.inputs.len() / 2);
        for ((total, grad), sum) in args.outputs.iter_mut().zip(grads).zip(sums) {
            for ((total, grad), sum) in total.f32().iter_mut().zip(grad.f32()).zip(sum.f32()) {
                *total = if *held == 0 { *grad } else { sum + grad };
            }
        }
        *held = 0;
    }
}

/// Maximum parameters per launch: their argument struct must stay under 4 KiB.
const CAPACITY: usize = 64;

/// Elements per block.
const BLOCK_ELEMENTS: usize = 4096;

/// A gradient, the sum so far, and the output for their sum.
type Triple<'a> = (Buffer<'a>, Buffer<'a>, Buffer<'a>);

/// Launches the additions, which read `held`, then the kernel that updates `held`.
fn with_count(
    held: Buffer<'_>,
    triples: &[Triple<'_>],
    write: fn(&Buffer<'_>) -> Arg,
    adds: i32,
) -> Vec<Launch> {
    let launch = |some: &[Triple<'_>]| {
        let len = || some.iter().map(|t| t.0.len());
        let (first_block, blocks) =
            first_blocks::<CAPACITY>(len().map(|len| len.div_ceil(BLOCK_ELEMENTS)));
        let structure = StructArg::new()
            .pointers(some.iter().map(|t| t.0.read()), CAPACITY)
            .pointers(some.iter().map(|t| t.1.read()), CAPACITY)
            .pointers(some.iter().map(|t| write(&t.2)), CAPACITY)
            .field(column::<_, CAPACITY>(len().map(|len| len as u64)))
            .field(first_block);
        Launch::new("accumulate", [blocks, 1, 1]).arg(held.read()).arg(structure.arg())
    };
    let mut launches: Vec<Launch> = triples.chunks(CAPACITY).map(launch).collect();
    let count = Launch::new("accumulate_count", [1, 1, 1]).block(32);
    launches.push(count.arg(held.update()).arg(adds));
    launches
}
