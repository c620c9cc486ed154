//! The tiles in AVX2: of 16 registers, 12 are accumulators, two hold a row of the right matrix, one
//! a broadcast.

use std::arch::x86_64::{
    __m256, _mm256_broadcast_ss, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_setzero_ps,
    _mm256_storeu_ps,
};

use super::{Acc, Gathered, LANES, MR, NR, Packed};

#[target_feature(enable = "avx2,fma")]
fn store<const ROWS: usize, const GROUPS: usize>(
    sums: &[[__m256; GROUPS]; ROWS],
    acc: &mut Acc<MR, NR>,
) {
    for (sums, out) in sums.iter().zip(&mut acc.0) {
        for (sum, out) in sums.iter().zip(out.as_chunks_mut::<LANES>().0) {
            // SAFETY: `out` holds `LANES` elements.
            unsafe { _mm256_storeu_ps(out.as_mut_ptr(), *sum) };
        }
    }
}

/// [`super::Tile::gather`] for `ROWS` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// AVX2 and FMA; `args` as required by its type, for `ROWS` rows and [`NR`] columns.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn gather<const ROWS: usize, const GROUPS: usize>(
    args: Gathered,
    acc: &mut Acc<MR, NR>,
) {
    let mut sums = [[_mm256_setzero_ps(); GROUPS]; ROWS];
    let mut right = args.packed;
    // SAFETY: as the caller promises, `pointers` holds `taps * ROWS` pointers, each readable for
    // `run` elements, and `packed` holds `taps * run` rows of `NR`: each step advances by one row.
    unsafe {
        for t in 0..args.taps {
            let rows: [*const f32; ROWS] =
                std::array::from_fn(|i| *args.pointers.add(t * ROWS + i));
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

/// [`super::Tile::outer`] for `ROWS` rows and `GROUPS` groups of 8 columns.
///
/// # Safety
/// AVX2 and FMA; `args` as required by its type, for `ROWS` rows and [`NR`] columns.
#[target_feature(enable = "avx2,fma")]
pub(super) unsafe fn outer<const ROWS: usize, const GROUPS: usize>(
    args: Packed,
    acc: &mut Acc<MR, NR>,
) {
    let mut sums = [[_mm256_setzero_ps(); GROUPS]; ROWS];
    // SAFETY: as the caller promises, `left` holds `steps` rows of `ROWS`, `right` as many of `NR`.
    unsafe {
        for p in 0..args.steps {
            let (left, right) = (args.left.add(p * ROWS), args.right.add(p * NR));
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
