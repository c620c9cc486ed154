//! The register tile: a block of accumulators, the innermost loop of every GEMM.
//!
//! The left matrix is given as pointers to runs of a row ([`RowTable`], for gathers) or packed
//! ([`Tile::outer`]), the right one always packed in panels as wide as the tile. Each instruction
//! set has its tile: 14 x 32 accumulators in AVX-512, 6 x 16 in AVX2; other processors run the AVX2
//! loops in plain Rust, which the compiler vectorises. [`crate::isa`] chooses the set. Every tile
//! adds the terms of a sum in the same order, so with fused multiply-adds results are
//! bit-identical.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod portable;
mod table;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

#[cfg(target_arch = "x86_64")]
use avx512::{floats, pairs};

use crate::isa::Isa;

pub(super) use table::{MAX_RUN, RowTable, TapRange};

/// Rows of the tile, except in AVX-512.
const MR: usize = 6;

/// Columns of the tile, except in AVX-512.
const NR: usize = 16;

/// Columns per group (one vector register), except in AVX-512.
const LANES: usize = 8;

/// Possible numbers of columns of a tile, and so of a panel.
pub(super) const PANELS: [usize; 2] = [16, 32];

/// Accumulators of one tile, row by row.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Acc<const MR: usize, const NR: usize>(pub [[f32; NR]; MR]);

impl<const MR: usize, const NR: usize> Acc<MR, NR> {
    /// All zeros.
    pub(super) fn new() -> Self {
        Self([[0.0; NR]; MR])
    }
}

/// The operands of a gathered GEMM as raw pointers. Left: `rows * taps` pointers in tap-major
/// order, each readable for `run` elements. Right: `taps * run` rows of the tile's width.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    pointers: *const *const f32,
    taps: usize,
    run: usize,
    packed: *const f32,
}

/// Both operands of an outer product as raw pointers: `steps` rows of the tile's height (left) and
/// width (right).
#[derive(Debug, Clone, Copy)]
struct Packed {
    left: *const f32,
    right: *const f32,
    steps: usize,
}

/// A tile of `MR x NR` accumulators. A value of this type proves that the processor supports its
/// instructions.
pub(super) trait Tile<const MR: usize, const NR: usize>: Copy + Send + Sync {
    /// True if an element is a pair of bf16.
    const OF_PAIRS: bool;

    /// Its instruction set.
    fn isa(self) -> Isa;

    /// `acc[i][j] = sum over taps t and run elements c of row_i[t][c] * packed[t][c][j]` for the
    /// `size` rows of `table` from `start` and the first `width` columns j; all other accumulators
    /// are undefined.
    fn gather(
        self,
        table: &RowTable<'_>,
        rows: (usize, usize),
        width: usize,
        packed: &[f32],
        acc: &mut Acc<MR, NR>,
    );

    /// `acc[i][j] = sum over p of left[p][i] * right[p][j]`, `left` packed by `size`, `right` by
    /// `NR`, for the first `width` columns j; all other accumulators are undefined.
    fn outer(
        self,
        size: (usize, usize),
        steps: usize,
        left: &[f32],
        right: &[f32],
        acc: &mut Acc<MR, NR>,
    );
}

impl Gathered {
    /// Checks the operands of [`Tile::gather`] for a tile of `columns`.
    fn new(
        table: &RowTable<'_>,
        (start, size): (usize, usize),
        packed: &[f32],
        columns: usize,
    ) -> Self {
        let (pointers, taps, run) = table.tile(start, size);
        assert_eq!(pointers.len(), size * taps);
        assert!(packed.len() >= taps * run * columns);
        Self { pointers: pointers.as_ptr(), taps, run, packed: packed.as_ptr() }
    }
}

impl Packed {
    /// Checks the operands of [`Tile::outer`] for a tile of `columns`.
    fn new(left: &[f32], right: &[f32], size: usize, steps: usize, columns: usize) -> Self {
        assert!(left.len() >= steps * size && right.len() >= steps * columns);
        Self { left: left.as_ptr(), right: right.as_ptr(), steps }
    }
}

/// Prefetches a row that is read or written soon.
#[inline]
pub(super) fn prefetch(row: &[f32]) {
    #[cfg(target_arch = "x86_64")]
    for line in row.chunks(16) {
        // SAFETY: a prefetch reads nothing.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
}

/// Instantiates an expression that is generic over the tile with an instruction set's tile.
macro_rules! with_tile {
    ($isa:expr, |$tile:ident| $body:expr) => {
        match $isa {
            #[cfg(target_arch = "x86_64")]
            $crate::isa::Isa::Avx512($tile) => $body,
            #[cfg(target_arch = "x86_64")]
            $crate::isa::Isa::Avx2($tile) => $body,
            $crate::isa::Isa::Portable($tile) => $body,
        }
    };
}
pub(super) use with_tile;

/// Calls the kernel instance for the number of rows and of column groups.
macro_rules! call {
    ($kernel:path, $groups:expr, [$($group:literal)*], $size:expr, $rows:tt, $args:expr, $acc:expr)
    => {
        match $groups {
            $($group => call!(@rows $kernel, $group, $size, $rows, $args, $acc),)*
            other => unreachable!("a tile of {other} groups of columns"),
        }
    };
    (@rows $kernel:path, $group:literal, $size:expr, [$($row:literal)*], $args:expr, $acc:expr) => {
        match $size {
            $($row => {
                use $kernel as kernel;
                kernel::<$row, $group>($args, $acc)
            })*
            other => unreachable!("a tile of {other} rows"),
        }
    };
}

/// Implements [`Tile`] by the kernels of a module.
macro_rules! tile {
    (
        $name:ident, $isa:expr, $module:ident, $of_pairs:literal, $mr:expr, $nr:expr, $lanes:expr,
        $groups:tt, $rows:tt
    ) => {
        impl Tile<{ $mr }, { $nr }> for crate::isa::$name {
            const OF_PAIRS: bool = $of_pairs;

            #[inline]
            fn isa(self) -> Isa {
                $isa(self)
            }

            fn gather(
                self,
                table: &RowTable<'_>,
                rows: (usize, usize),
                width: usize,
                packed: &[f32],
                acc: &mut Acc<{ $mr }, { $nr }>,
            ) {
                let args = Gathered::new(table, rows, packed, $nr);
                let groups = width.div_ceil($lanes);
                // SAFETY: `Gathered::new` checked the extents; each pointer is readable for `run`
                // elements by the invariant of `RowTable`, which outlives this call. `self` proves
                // that the processor has the instructions.
                unsafe { call!($module::gather, groups, $groups, rows.1, $rows, args, acc) }
            }

            fn outer(
                self,
                (size, width): (usize, usize),
                steps: usize,
                left: &[f32],
                right: &[f32],
                acc: &mut Acc<{ $mr }, { $nr }>,
            ) {
                let args = Packed::new(left, right, size, steps, $nr);
                let groups = width.div_ceil($lanes);
                // SAFETY: `Packed::new` checked the extents. `self` proves that the processor has
                // the instructions.
                unsafe { call!($module::outer, groups, $groups, size, $rows, args, acc) }
            }
        }
    };
}

tile!(Portable, Isa::Portable, portable, false, MR, NR, LANES, [1 2], [1 2 3 4 5 6]);
#[cfg(target_arch = "x86_64")]
tile!(Avx2, Isa::Avx2, avx2, false, MR, NR, LANES, [1 2], [1 2 3 4 5 6]);
#[cfg(target_arch = "x86_64")]
tile!(
    Avx512,
    Isa::Avx512,
    floats,
    false,
    avx512::MR,
    avx512::NR,
    avx512::LANES,
    [1 2],
    [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
);
#[cfg(target_arch = "x86_64")]
tile!(
    Avx512Bf16,
    crate::isa::Avx512Bf16::isa,
    pairs,
    true,
    avx512::MR,
    avx512::NR,
    avx512::LANES,
    [1 2],
    [1 2 3 4 5 6 7 8 9 10 11 12 13 14]
);
