//! The tiles in AVX2: 12 of 16 registers hold sums, two a row of the right matrix, one a broadcast.

use std::arch::x86_64::{
    __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{Acc, Gathered, NR, Packed};

/// Lanes of a register.
const LANES: usize = 8;

#[target_feature(enable = "avx2,fma")]
fn store<const MR: usize, const GROUPS: usize>(sums: &[[__m256; GROUPS]; MR], acc: &mut Acc) {
    for (sums, out) in sums.iter().zip(acc.0.as_chunks_mut::<NR>().0) {
        for (sum, out) in sums.iter().zip(out.as_chunks_mut::<LANES>().0) {
            // SAFETY: `out` holds `LANES` elements.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), *sum) };
        }
    }
}

/// [`super::gather`] for `MR` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// AVX2 and FMA; `args` as its type says, for `MR` rows.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn gather<const MR: usize, const GROUPS: usize>(args: Gathered, acc: &mut Acc) {
    let mut sums = [[_mm256_setzero_ps(); GROUPS]; MR];
    let mut right = args.packed;
    // SAFETY: as the caller promises, `pointers` holds `taps * MR` pointers, each readable for
    // `run` elements, and `packed` holds `taps * run` rows of `NR`: one row is passed each step.
    unsafe {
        for t in 0..args.taps {
            let rows: [*const f32; MR] = std::array::from_fn(|i| *args.pointers.add(t * MR + i));
            for c in 0..args.run {
                let b: [__m256; GROUPS] =
                    std::array::from_fn(|j| _mm256_loadu_ps(right.add(j * LANES)));
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let a = _mm256_broadcast_ss(&*row.add(c));
                    for (sum, b) in sum.iter_mut().zip(b) {
                        *sum = _mm256_fmadd_ps(a, b, *sum);
                    }
                }
                right = right.add(NR);
            }
        }
    }
    store(&sums, acc);
}

/// [`super::outer`] for `MR` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// AVX2 and FMA; `args` as its type says, for `MR` rows.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn outer<const MR: usize, const GROUPS: usize>(args: Packed, acc: &mut Acc) {
    let mut sums = [[_mm256_setzero_ps(); GROUPS]; MR];
    // SAFETY: as the caller promises, `left` holds `steps` rows of `MR`, `right` as many of `NR`.
    unsafe {
        for p in 0..args.steps {
            let (left, right) = (args.left.add(p * MR), args.right.add(p * NR));
            let b: [__m256; GROUPS] =
                std::array::from_fn(|j| _mm256_loadu_ps(right.add(j * LANES)));
            for (i, sum) in sums.iter_mut().enumerate() {
                let a = _mm256_broadcast_ss(&*left.add(i));
                for (sum, b) in sum.iter_mut().zip(b) {
                    *sum = _mm256_fmadd_ps(a, b, *sum);
                }
            }
        }
    }
    store(&sums, acc);
}
