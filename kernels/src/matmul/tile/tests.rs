//! Each tile of this processor against the others and against the definition.

use super::*;
use crate::isa::{Isa, Portable};

fn values(len: usize, seed: u32) -> Vec<f32> {
    (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed) as f32 / 4e9 - 0.5).collect()
}

/// Sums over `steps` by [`Tile::outer`], tile by tile, with both operands packed for each tile.
fn outer_sums<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
    tile: T,
    [rows, columns]: [usize; 2],
    steps: usize,
) -> Vec<f32> {
    let (left, right) = (values(steps * rows, 1), values(steps * columns, 2));
    let mut sums = vec![f32::NAN; rows * columns];
    for (first, start) in tiles(rows, MR).flat_map(|i| tiles(columns, NR).map(move |j| (i, j))) {
        let (size, width) = (MR.min(rows - first), NR.min(columns - start));
        let a: Vec<f32> =
            (0..steps).flat_map(|p| left[p * rows + first..][..size].to_vec()).collect();
        let mut b = vec![0.0; steps * NR];
        for (p, b) in b.chunks_exact_mut(NR).enumerate() {
            b[..width].copy_from_slice(&right[p * columns + start..][..width]);
        }
        let mut acc = Acc::new();
        acc.0.as_flattened_mut().fill(9.0);
        tile.outer((size, width), steps, &a, &b, &mut acc);
        for (i, row) in acc.0[..size].iter().enumerate() {
            sums[(first + i) * columns + start..][..width].copy_from_slice(&row[..width]);
        }
    }
    sums
}

/// Sums over taps 0 and 2 of three, of runs of 11 elements.
fn gathered_sums<T: Tile<MR, NR>, const MR: usize, const NR: usize>(
    tile: T,
    [rows, columns]: [usize; 2],
) -> Vec<f32> {
    let (x, right) = (values(600, 3), values(3 * 11 * columns, 4));
    let offsets = [0, 40, 80];
    let taps = TapRange::new(&offsets, 0, 11);
    let mut table = RowTable::new();
    table.reset(rows, taps);
    for (i, row) in (0..rows).map(|row| (row % MR, row)) {
        let place = (row - i, MR.min(rows - (row - i)), i);
        table.set(&x, place, (row as isize * 13, 0b101), taps);
    }
    let mut sums = vec![f32::NAN; rows * columns];
    for (first, start) in tiles(rows, MR).flat_map(|i| tiles(columns, NR).map(move |j| (i, j))) {
        let (size, width) = (MR.min(rows - first), NR.min(columns - start));
        let mut b = vec![0.0; 3 * 11 * NR];
        for (p, b) in b.chunks_exact_mut(NR).enumerate() {
            b[..width].copy_from_slice(&right[p * columns + start..][..width]);
        }
        let mut acc = Acc::new();
        acc.0.as_flattened_mut().fill(9.0);
        tile.gather(&table, (first, size), width, &b, &mut acc);
        for (i, row) in acc.0[..size].iter().enumerate() {
            sums[(first + i) * columns + start..][..width].copy_from_slice(&row[..width]);
        }
    }
    sums
}

fn tiles(extent: usize, step: usize) -> impl Iterator<Item = usize> + Clone {
    (0..extent).step_by(step)
}

/// Every number of rows and some widths of every tile, over sums of zero, one and many terms.
fn shapes() -> impl Iterator<Item = [usize; 2]> {
    (1..=29).flat_map(|rows| [1, 8, 9, 16, 17, 31, 32, 49].map(|columns| [rows, columns]))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

/// Tiles with fused multiply-add are bit-identical; the portable tile may also round after the
/// multiplication.
#[test]
fn tiles_are_bit_identical_for_every_fma_instruction_set() {
    let fused: Vec<Isa> = Isa::all().into_iter().filter(|isa| isa.name() != "portable").collect();
    for isa in &fused {
        for shape in shapes() {
            for steps in [0, 1, 7, 64] {
                let a = with_tile!(*isa, |tile| outer_sums(tile, shape, steps));
                let b = with_tile!(fused[0], |tile| outer_sums(tile, shape, steps));
                assert_eq!(bits(&a), bits(&b), "outer {}: {shape:?}, {steps} steps", isa.name());
                let plain = outer_sums(Portable, shape, steps);
                let near = a.iter().zip(&plain).all(|(a, p)| (a - p).abs() <= 1e-5);
                assert!(near, "outer {}: {shape:?}, {steps} steps", isa.name());
            }
            let a = with_tile!(*isa, |tile| gathered_sums(tile, shape));
            let b = with_tile!(fused[0], |tile| gathered_sums(tile, shape));
            assert_eq!(bits(&a), bits(&b), "gather {}: {shape:?}", isa.name());
        }
    }
}

#[test]
fn gather_matches_definition() {
    let (x, shape @ [rows, columns]) = (values(600, 3), [29, 49]);
    let right = values(3 * 11 * columns, 4);
    for isa in Isa::all() {
        let sums = with_tile!(isa, |tile| gathered_sums(tile, shape));
        for (i, j) in (0..rows).flat_map(|i| (0..columns).map(move |j| (i, j))) {
            let term = |t: usize, c: usize| {
                let a = x[i * 13 + t * 40 + c];
                f64::from(a) * f64::from(right[(t * 11 + c) * columns + j])
            };
            let exact: f64 = (0..11).map(|c| term(0, c) + term(2, c)).sum();
            let sum = f64::from(sums[i * columns + j]);
            assert!((sum - exact).abs() <= 1e-5, "{}: [{i}, {j}]: {sum} {exact}", isa.name());
        }
    }
}

#[test]
#[should_panic(expected = "outside its input")]
fn gathered_row_outside_input_is_rejected() {
    let x = [0.0; 20];
    let taps = TapRange::new(&[0], 0, 8);
    let mut table = RowTable::new();
    table.reset(1, taps);
    table.set(&x, (0, 1, 0), (13, 1), taps);
}
