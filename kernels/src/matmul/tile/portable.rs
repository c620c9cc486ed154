//! The tiles in plain Rust, for processors without AVX2.

use super::{Acc, Gathered, NR, Packed};

/// `sum + a * b`, fused only where that is one instruction (elsewhere it is a call into libm).
fn multiply_add(a: f32, b: f32, sum: f32) -> f32 {
    if cfg!(any(target_arch = "aarch64", target_feature = "fma")) {
        a.mul_add(b, sum)
    } else {
        a * b + sum
    }
}

fn store<const MR: usize>(sums: &[[f32; NR]; MR], acc: &mut Acc) {
    for (sum, out) in sums.iter().zip(acc.0.chunks_exact_mut(NR)) {
        out.copy_from_slice(sum);
    }
}

/// [`super::gather`] for `MR` rows.
///
/// # Safety
/// `args` as its type says, for `MR` rows.
pub(super) unsafe fn gather<const MR: usize>(args: Gathered, acc: &mut Acc) {
    let mut sums = [[0.0; NR]; MR];
    for t in 0..args.taps {
        for c in 0..args.run {
            // SAFETY: row `t * run + c` of `taps * run` rows of `NR`.
            let b = unsafe { &*args.packed.add((t * args.run + c) * NR).cast::<[f32; NR]>() };
            for (i, sum) in sums.iter_mut().enumerate() {
                // SAFETY: pointer `t * MR + i` of `taps * MR`, readable for `run > c` elements.
                let a = unsafe { *(*args.pointers.add(t * MR + i)).add(c) };
                for (sum, &b) in sum.iter_mut().zip(b) {
                    *sum = multiply_add(a, b, *sum);
                }
            }
        }
    }
    store(&sums, acc);
}

/// [`super::outer`] for `MR` rows.
///
/// # Safety
/// `args` as its type says, for `MR` rows.
pub(super) unsafe fn outer<const MR: usize>(args: Packed, acc: &mut Acc) {
    let mut sums = [[0.0; NR]; MR];
    for p in 0..args.steps {
        // SAFETY: row `p` of `steps` rows of `MR` and of `NR`.
        let (a, b) = unsafe {
            let a = &*args.left.add(p * MR).cast::<[f32; MR]>();
            (a, &*args.right.add(p * NR).cast::<[f32; NR]>())
        };
        for (sum, &a) in sums.iter_mut().zip(a) {
            for (sum, &b) in sum.iter_mut().zip(b) {
                *sum = multiply_add(a, b, *sum);
            }
        }
    }
    store(&sums, acc);
}
