//! The tiles in AVX-512: of 32 registers, 28 are accumulators, two hold a row of the right matrix,
//! one a broadcast. An element is an f32, or a pair of bf16, as in `VDPBF16PS`.

use std::arch::x86_64::{
    __m512, __m512bh, _MM_HINT_T0, _mm_prefetch, _mm512_dpbf16_ps, _mm512_fmadd_ps,
    _mm512_loadu_ps, _mm512_set1_ps, _mm512_setzero_ps, _mm512_storeu_ps,
};

use super::{Acc, Gathered, Packed};

/// Rows of the tile.
pub(super) const MR: usize = 14;

/// Columns of the tile.
pub(super) const NR: usize = 32;

/// Prefetch distance in steps.
const AHEAD: usize = 8;

/// Lanes of a register.
pub(super) const LANES: usize = 16;

#[target_feature(enable = "avx512f")]
fn store<const ROWS: usize, const GROUPS: usize>(
    sums: &[[__m512; GROUPS]; ROWS],
    acc: &mut Acc<MR, NR>,
) {
    for (sums, out) in sums.iter().zip(&mut acc.0) {
        for (sum, out) in sums.iter().zip(out.as_chunks_mut::<LANES>().0) {
            // SAFETY: `out` holds `LANES` elements.
            unsafe { _mm512_storeu_ps(out.as_mut_ptr(), *sum) };
        }
    }
}

/// Prefetches a row of the right matrix. A panel takes two thirds of the L1, so that rows of the
/// left matrix evict parts of it.
#[inline(always)]
fn fetch_row(right: *const f32) {
    // SAFETY: a prefetch reads nothing, and its address need not be valid.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(right.cast());
        _mm_prefetch::<_MM_HINT_T0>(right.wrapping_add(LANES).cast());
    }
}

/// The kernels for an element type, by their CPU features and their multiply-add function.
macro_rules! kernels {
    ($features:literal, $product:path) => {
        use super::*;
        use $product as product;

        /// [`crate::matmul::tile::Tile::gather`] for `ROWS` rows and `GROUPS` groups of 16 columns.
        ///
        /// # Safety
        /// The features; `args` as required by its type, for `ROWS` rows and [`NR`] columns.
        #[target_feature(enable = $features)]
        pub(in crate::matmul::tile) unsafe fn gather<const ROWS: usize, const GROUPS: usize>(
            args: Gathered,
            acc: &mut Acc<MR, NR>,
        ) {
            let mut sums = [[_mm512_setzero_ps(); GROUPS]; ROWS];
            let mut right = args.packed;
            // SAFETY: as the caller promises, `pointers` holds `taps * ROWS` pointers, each
            // readable for `run` elements, and `packed` holds `taps * run` rows of `NR`: each step
            // advances by one row.
            unsafe {
                for t in 0..args.taps {
                    let rows: [*const f32; ROWS] =
                        std::array::from_fn(|i| *args.pointers.add(t * ROWS + i));
                    for c in 0..args.run {
                        fetch_row(right.wrapping_add(AHEAD * NR));
                        let b: [__m512; GROUPS] =
                            std::array::from_fn(|j| _mm512_loadu_ps(right.add(j * LANES)));
                        for (sum, row) in sums.iter_mut().zip(rows) {
                            let a = _mm512_set1_ps(*row.add(c));
                            for (sum, b) in sum.iter_mut().zip(b) {
                                *sum = product(a, b, *sum);
                            }
                        }
                        right = right.add(NR);
                    }
                }
            }
            store(&sums, acc);
        }

        /// [`crate::matmul::tile::Tile::outer`] for `ROWS` rows and `GROUPS` groups of 16 columns.
        ///
        /// # Safety
        /// The features; `args` as required by its type, for `ROWS` rows and [`NR`] columns.
        #[target_feature(enable = $features)]
        pub(in crate::matmul::tile) unsafe fn outer<const ROWS: usize, const GROUPS: usize>(
            args: Packed,
            acc: &mut Acc<MR, NR>,
        ) {
            let mut sums = [[_mm512_setzero_ps(); GROUPS]; ROWS];
            // SAFETY: as the caller promises, `left` holds `steps` rows of `ROWS`, `right` as many
            // of `NR`.
            unsafe {
                for p in 0..args.steps {
                    let (left, right) = (args.left.add(p * ROWS), args.right.add(p * NR));
                    fetch_row(right.wrapping_add(AHEAD * NR));
                    let b: [__m512; GROUPS] =
                        std::array::from_fn(|j| _mm512_loadu_ps(right.add(j * LANES)));
                    for (i, sum) in sums.iter_mut().enumerate() {
                        let a = _mm512_set1_ps(*left.add(i));
                        for (sum, b) in sum.iter_mut().zip(b) {
                            *sum = product(a, b, *sum);
                        }
                    }
                }
            }
            store(&sums, acc);
        }
    };
}

/// Multiply-add in f32.
#[inline]
#[target_feature(enable = "avx512f")]
fn of_floats(a: __m512, b: __m512, sum: __m512) -> __m512 {
    _mm512_fmadd_ps(a, b, sum)
}

/// Dot product of each pair of bf16, accumulated in f32.
#[inline]
#[target_feature(enable = "avx512f,avx512bf16")]
fn of_pairs(a: __m512, b: __m512, sum: __m512) -> __m512 {
    // SAFETY: both types have 64 bytes, and any bit pattern is valid.
    let [a, b] = [a, b].map(|v| unsafe { std::mem::transmute::<__m512, __m512bh>(v) });
    _mm512_dpbf16_ps(sum, a, b)
}

pub(super) mod floats {
    //! Elements are f32.
    kernels!("avx512f", super::of_floats);
}

pub(super) mod pairs {
    //! Elements are pairs of bf16.
    kernels!("avx512f,avx512bf16", super::of_pairs);
}
