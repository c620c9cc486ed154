//! The tiles in plain Rust, for processors without AVX2.

use super::{Acc, Gathered, LANES, MR, NR, Packed};

/// `sum + a * b`, fused only if that is one instruction (otherwise it is a call into libm).
fn multiply_add(a: f32, b: f32, sum: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, sum)
    } else {
        a * b + sum
    }
}

type Sums<const ROWS: usize, const GROUPS: usize> = [[[f32; LANES]; GROUPS]; ROWS];

fn store<const ROWS: usize, const GROUPS: usize>(sums: &Sums<ROWS, GROUPS>, acc: &mut Acc<MR, NR>) {
    for (sums, out) in sums.iter().zip(&mut acc.0) {
        for (sum, out) in sums.iter().zip(out.as_chunks_mut::<LANES>().0) {
            *out = *sum;
        }
    }
}

fn add_row<const GROUPS: usize>(a: f32, b: &[f32; NR], sums: &mut [[f32; LANES]; GROUPS]) {
    for (sums, b) in sums.iter_mut().zip(b.as_chunks::<LANES>().0) {
        for (sum, &b) in sums.iter_mut().zip(b) {
            *sum = multiply_add(a, b, *sum);
        }
    }
}

/// [`super::Tile::gather`] for `ROWS` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// `args` as required by its type, for `ROWS` rows and [`NR`] columns.
pub(super) unsafe fn gather<const ROWS: usize, const GROUPS: usize>(
    args: Gathered,
    acc: &mut Acc<MR, NR>,
) {
    let mut sums: Sums<ROWS, GROUPS> = [[[0.0; LANES]; GROUPS]; ROWS];
    for t in 0..args.taps {
        for c in 0..args.run {
            // SAFETY: row `t * run + c` of `taps * run` rows of `NR`.
            let b = unsafe { &*args.packed.add((t * args.run + c) * NR).cast::<[f32; NR]>() };
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: pointer `t * ROWS + i` of `taps * ROWS`, readable for `run > c` elements.
                let a = unsafe { *(*args.pointers.add(t * ROWS + i)).add(c) };
                add_row(a, b, sum);
            }
        }
    }
    store(&sums, acc);
}

/// [`super::Tile::outer`] for `ROWS` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// `args` as required by its type, for `ROWS` rows and [`NR`] columns.
pub(super) unsafe fn outer<const ROWS: usize, const GROUPS: usize>(
    args: Packed,
    acc: &mut Acc<MR, NR>,
) {
    let mut sums: Sums<ROWS, GROUPS> = [[[0.0; LANES]; GROUPS]; ROWS];
    for p in 0..args.steps {
        // SAFETY: row `p` of `steps` rows of `ROWS` and of `NR`.
        let (a, b) = unsafe {
            let a = &*args.left.add(p * ROWS).cast::<[f32; ROWS]>();
            (a, &*args.right.add(p * NR).cast::<[f32; NR]>())
        };
        for (sum, &a) in sums.iter_mut().zip(a) {
            add_row(a, b, sum);
        }
    }
    store(&sums, acc);
}
