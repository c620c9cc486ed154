//! The tiles in AVX2: 12 of 16 registers hold sums, two a row of the right matrix, one a broadcast.

use std::arch::x86_64::{
    _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps, _mm256_storeu_ps,
};

use super::{Acc, Gathered, NR, Packed};

/// Lanes of a register.
const LANES: usize = 8;

/// [`super::gather`] for `MR` rows.
///
/// # Safety
/// AVX2 and FMA; `args` as its type says, for `MR` rows.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn gather<const MR: usize>(args: Gathered, acc: &mut Acc) {
    let mut sums = [[_mm256_setzero_ps(); 2]; MR];
    let mut right = args.packed;
    // SAFETY: as the caller promises, `pointers` holds `taps * MR` pointers, each readable for
    // `run` elements, and `packed` holds `taps * run` rows of `NR`: one row is passed each step.
    unsafe {
        for t in 0..args.taps {
            let rows: [*const f32; MR] = std::array::from_fn(|i| *args.pointers.add(t * MR + i));
            for c in 0..args.run {
                let b = [_mm256_loadu_ps(right), _mm256_loadu_ps(right.add(LANES))];
                for (sum, row) in sums.iter_mut().zip(rows) {
                    let a = _mm256_broadcast_ss(&*row.add(c));
                    sum[0] = _mm256_fmadd_ps(a, b[0], sum[0]);
                    sum[1] = _mm256_fmadd_ps(a, b[1], sum[1]);
                }
                right = right.add(NR);
            }
        }
    }
    for (sum, out) in sums.iter().zip(acc.0.chunks_exact_mut(NR)) {
        // SAFETY: `out` holds `NR` = 2 * LANES elements.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(LANES), sum[1]);
        }
    }
}

/// [`super::outer`] for `MR` rows.
///
/// # Safety
/// AVX2 and FMA; `args` as its type says, for `MR` rows.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn outer<const MR: usize>(args: Packed, acc: &mut Acc) {
    let mut sums = [[_mm256_setzero_ps(); 2]; MR];
    // SAFETY: as the caller promises, `left` holds `steps` rows of `MR`, `right` as many of `NR`.
    unsafe {
        for p in 0..args.steps {
            let (left, right) = (args.left.add(p * MR), args.right.add(p * NR));
            let b = [_mm256_loadu_ps(right), _mm256_loadu_ps(right.add(LANES))];
            for (i, sum) in sums.iter_mut().enumerate() {
                let a = _mm256_broadcast_ss(&*left.add(i));
                sum[0] = _mm256_fmadd_ps(a, b[0], sum[0]);
                sum[1] = _mm256_fmadd_ps(a, b[1], sum[1]);
            }
        }
    }
    for (sum, out) in sums.iter().zip(acc.0.chunks_exact_mut(NR)) {
        // SAFETY: `out` holds `NR` = 2 * LANES elements.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), sum[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(LANES), sum[1]);
        }
    }
}
