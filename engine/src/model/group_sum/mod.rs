//! Sums over a step's groups of images on the CPU, in the order of one fixed tree.
//!
//! A step runs one pass per group. [`SumGroups`] ends a rank's last pass, [`AddGroup`] each earlier
//! pass; both keep partial sums in state tensors, the stacks. Inputs: `x_i` f32, gradients or
//! scalars. Updated state: `stack_i [depth, ..]` f32, with one row for each tree node whose sibling
//! is not complete yet, and `held [1]` i32, the number of passes so far. Outputs of `SumGroups`:
//! `total_i`, with the shape of `x_i`, the sum over all passes of all ranks. Rank 0 receives the
//! stacks of all ranks, adds them, and sends back the sums.
//!
//! These ops have no GPU kernels: devices use `accumulate` and all-reduce.

mod tree;

use kernels::cpu::{CpuArgs, TensorMut, TensorRef};
use kernels::{Op, OpError, TensorDesc, check};
use ranks::Group;
use rayon::prelude::*;
use std::ops::Range;

use super::Division;
use tree::{Piece, depth, fold, pieces, push};

/// Adds the inputs of a pass to the sums of earlier passes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct AddGroup {
    /// The range of the rank's passes among the passes of all ranks.
    own: Range<usize>,
}

/// Adds the inputs of the rank's last pass, and all-reduces the sums.
#[derive(Debug, Clone)]
pub(super) struct SumGroups {
    own: Range<usize>,
    /// Number of ranks.
    ranks: usize,
    group: Group,
}

/// Number of values of a row that are all-reduced at a time, to limit memory.
const BUCKET: usize = 1 << 20;

const ADD: &str = "add_group";
const SUM: &str = "sum_groups";

impl AddGroup {
    pub(super) fn new(division: &Division) -> Self {
        Self { own: division.own() }
    }
}

impl SumGroups {
    pub(super) fn new(division: &Division) -> Self {
        Self { own: division.own(), ranks: division.ranks.count, group: division.group.clone() }
    }

    /// The nodes of the tree whose sums rank `rank` computes.
    fn pieces_of(&self, rank: usize) -> Vec<Piece> {
        pieces(rank * self.own.len()..(rank + 1) * self.own.len())
    }
}

/// Shape of the stack for a tensor of shape `shape`.
pub(super) fn stack_shape(division: &Division, shape: &[usize]) -> Vec<usize> {
    [&[depth(division.own())], shape].concat()
}

fn check_stacks(
    op: &'static str,
    own: &Range<usize>,
    inputs: &[TensorDesc],
    updates: &[TensorDesc],
) -> Result<(), OpError> {
    check::arity(op, "updates", updates, inputs.len() + 1)?;
    for (x, stack) in inputs.iter().zip(updates) {
        check::floats(op, "x_i", x, &x.shape)?;
        check::floats(op, "stack_i", stack, &[&[depth(own.clone())], &x.shape[..]].concat())?;
    }
    check::integers(op, "held", &updates[inputs.len()], &[1])
}

/// Adds the inputs to the stacks. Returns the number of rows in use.
fn add_pass(own: &Range<usize>, inputs: &[TensorRef<'_>], updates: &mut [TensorMut<'_>]) -> usize {
    let Some((held, stacks)) = updates.split_last_mut() else { panic!("{ADD}: held") };
    let held = &mut held.i32()[0];
    let leaf = own.start + *held as usize;
    let mut nodes = pieces(own.start..leaf);
    let row = nodes.len();
    let joined = push(&mut nodes, leaf);
    stacks.par_iter_mut().zip(inputs).for_each(|(stack, x)| {
        let (x, stack) = (x.f32(), stack.f32());
        if x.is_empty() {
            return;
        }
        stack[row * x.len()..][..x.len()].copy_from_slice(x);
        for right in (1..=row).rev().take(joined) {
            add_row(stack, x.len(), right - 1, right);
        }
    });
    *held += 1;
    nodes.len()
}

/// Adds row `right` to the earlier row `left`.
fn add_row(stack: &mut [f32], len: usize, left: usize, right: usize) {
    let (before, from) = stack.split_at_mut(right * len);
    add(&mut before[left * len..][..len], &from[..len]);
}

fn add(left: &mut [f32], right: &[f32]) {
    left.iter_mut().zip(right).for_each(|(left, right)| *left += right);
}

impl Op for AddGroup {
    fn name(&self) -> &'static str {
        ADD
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check_stacks(ADD, &self.own, inputs, updates)?;
        Ok(vec![])
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        add_pass(&self.own, &args.inputs, &mut args.updates);
    }
}

impl Op for SumGroups {
    fn name(&self) -> &'static str {
        SUM
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check_stacks(SUM, &self.own, inputs, updates)?;
        Ok(inputs.to_vec())
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let rows = add_pass(&self.own, &args.inputs, &mut args.updates);
        let Some((held, stacks)) = args.updates.split_last_mut() else { panic!("{SUM}: held") };
        held.i32()[0] = 0;
        if self.ranks > 1 {
            self.all_reduce_groups(rows, stacks, &mut args.outputs);
            return;
        }
        let additions = fold(&self.pieces_of(0));
        stacks.par_iter_mut().zip(&mut args.outputs).for_each(|(stack, total)| {
            let (stack, total) = (stack.f32(), total.f32());
            for &(left, right) in &additions {
                add_row(stack, total.len(), left, right);
            }
            total.copy_from_slice(&stack[..total.len()]);
        });
    }
}

impl SumGroups {
    fn all_reduce_groups(
        &self,
        rows: usize,
        stacks: &mut [TensorMut<'_>],
        totals: &mut [TensorMut<'_>],
    ) {
        let mine: Vec<Vec<f32>> = (0..rows).map(|row| row_of_all(stacks, totals, row)).collect();
        let pieces: Vec<Piece> = (0..self.ranks).flat_map(|rank| self.pieces_of(rank)).collect();
        let additions = fold(&pieces);
        let len: usize = totals.iter().map(|total| total.desc.len()).sum();
        let mut sums: Vec<f32> = Vec::with_capacity(len);
        for begin in (0..len).step_by(BUCKET) {
            let bucket = begin..len.min(begin + BUCKET);
            let own: Vec<f32> =
                mine.iter().flat_map(|row| row[bucket.clone()].iter().copied()).collect();
            sums.extend(self.group.sum(&own, bucket.len(), |all| {
                for &(left, right) in &additions {
                    add_row(all, bucket.len(), left, right);
                }
            }));
        }
        let mut rest = &sums[..];
        for total in totals {
            let (sum, after) = rest.split_at(total.desc.len());
            total.f32().copy_from_slice(sum);
            rest = after;
        }
    }
}

/// Concatenates row `row` of all stacks.
fn row_of_all(stacks: &mut [TensorMut<'_>], totals: &[TensorMut<'_>], row: usize) -> Vec<f32> {
    let rows = stacks.iter_mut().zip(totals).map(|(stack, total)| {
        let len = total.desc.len();
        &stack.f32()[row * len..][..len]
    });
    rows.collect::<Vec<_>>().concat()
}
