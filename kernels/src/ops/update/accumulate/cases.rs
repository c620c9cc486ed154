//! Test and benchmark cases of `accumulate` and `add_accumulated`.

use super::{Accumulate, AddAccumulated};
use crate::Role;
use crate::case::{OpCase, constant, normal};
use crate::cpu::HostTensor;

/// Sizes 0, 1, prime numbers and near the block size, with and without earlier micro-steps; more
/// parameters than a launch supports.
pub fn cases() -> Vec<OpCase> {
    let sizes: Vec<usize> = vec![0, 1, 7, 385, 4095, 4096, 4097, 9001];
    let many: Vec<usize> = sizes.iter().cycle().take(131).copied().collect();
    [(&sizes, 0), (&sizes, 2), (&many, 1), (&vec![], 0)]
        .into_iter()
        .flat_map(|(sizes, held)| [accumulate(sizes, held), add(sizes, held)])
        .collect()
}

fn tensors(role: Role, sizes: &[usize], seed: u32) -> Vec<HostTensor> {
    let tensor = |(i, len): (usize, &usize)| normal(role, &[*len], seed + i as u32, 1.0);
    sizes.iter().enumerate().map(tensor).collect()
}

fn count(held: i32) -> HostTensor {
    constant(&[1], held)
}

/// Without earlier micro-steps the sums are NaN, since the op must not read them.
fn sums(sizes: &[usize], held: i32) -> Vec<HostTensor> {
    let mut sums = tensors(Role::Master, sizes, 500);
    if held == 0 {
        sums.iter_mut().for_each(|t| t.as_f32_mut().fill(f32::NAN));
    }
    sums
}

fn accumulate(sizes: &[usize], held: i32) -> OpCase {
    let label = format!("{} parameters, {held} micro-steps held", sizes.len());
    let mut updates = sums(sizes, held);
    updates.push(count(held));
    let op = Accumulate;
    OpCase::new(label, op, tensors(Role::WeightGradient, sizes, 1)).updating(updates)
}

fn add(sizes: &[usize], held: i32) -> OpCase {
    let label = format!("{} parameters, {held} micro-steps held", sizes.len());
    let inputs = [tensors(Role::WeightGradient, sizes, 1), sums(sizes, held)].concat();
    let op = AddAccumulated;
    OpCase::new(label, op, inputs).updating(vec![count(held)])
}
