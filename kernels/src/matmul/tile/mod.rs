//! The register tile: 6 x 16 sums of products, the innermost loop of every matrix product.
//!
//! The left matrix comes as pointers to runs of a row ([`RowTable`], for gathers) or packed
//! ([`outer`]), the right one always packed by 16 columns. Written for AVX2 with FMA; every other
//! processor takes the same loops in plain Rust, which the compiler vectorises.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
mod avx2;
mod portable;
mod table;

use super::{MR, NR};

pub(super) use table::{MAX_RUN, RowTable, TapRange};

/// Sums of one tile, row-major; the tile's rows come first.
#[repr(C, align(64))]
#[derive(Debug, Clone, Copy)]
pub(super) struct Acc(pub [f32; MR * NR]);

/// The left operand of a gathered product, unchecked: `rows * taps` pointers in tap-major order,
/// each readable for `run` elements; then the right operand, `taps * run` rows of `NR`.
#[derive(Debug, Clone, Copy)]
struct Gathered {
    pointers: *const *const f32,
    taps: usize,
    run: usize,
    packed: *const f32,
}

/// Both operands of an outer product, unchecked: `steps` rows of the tile's rows and of `NR`.
#[derive(Debug, Clone, Copy)]
struct Packed {
    left: *const f32,
    right: *const f32,
    steps: usize,
}

/// Calls the variant of a kernel for its number of rows and of groups of 8 columns, the AVX2 one
/// where there is AVX2.
macro_rules! call {
    ($kernel:ident, $size:expr, $width:expr, $args:expr, $acc:expr) => {{
        #[cfg(target_arch = "x86_64")]
        if has_avx2() {
            call!(@width avx2, $kernel, $size, $width, $args, $acc);
            return;
        }
        call!(@width portable, $kernel, $size, $width, $args, $acc);
    }};
    (@width $module:ident, $kernel:ident, $size:expr, $width:expr, $args:expr, $acc:expr) => {
        if $width > NR / 2 {
            call!(@rows $module, $kernel, 2, $size, $args, $acc)
        } else {
            call!(@rows $module, $kernel, 1, $size, $args, $acc)
        }
    };
    (@rows $module:ident, $kernel:ident, $groups:literal, $size:expr, $args:expr, $acc:expr) => {
        match $size {
            1 => $module::$kernel::<1, $groups>($args, $acc),
            2 => $module::$kernel::<2, $groups>($args, $acc),
            3 => $module::$kernel::<3, $groups>($args, $acc),
            4 => $module::$kernel::<4, $groups>($args, $acc),
            5 => $module::$kernel::<5, $groups>($args, $acc),
            6 => $module::$kernel::<6, $groups>($args, $acc),
            other => unreachable!("a tile of {other} rows"),
        }
    };
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma")
}

/// `acc[i][j] = sum over taps t and run elements c of row_i[t][c] * packed[t][c][j]` for the
/// `size` rows of `table` from `start` and the first `width` columns j; the others hold anything.
pub(super) fn gather(
    table: &RowTable<'_>,
    (start, size): (usize, usize),
    width: usize,
    packed: &[f32],
    acc: &mut Acc,
) {
    let (pointers, taps, run) = table.tile(start, size);
    assert_eq!(pointers.len(), size * taps);
    assert!(packed.len() >= taps * run * NR);
    let args = Gathered { pointers: pointers.as_ptr(), taps, run, packed: packed.as_ptr() };
    // SAFETY: `pointers` holds `size * taps` entries, each readable for `run` elements by the
    // invariant of `RowTable`, which outlives this call; `packed` holds `taps * run` rows of `NR`.
    // `call!` picks the AVX2 kernel only on a processor that has AVX2 and FMA.
    unsafe { call!(gather, size, width, args, acc) }
}

/// `acc[i][j] = sum over p of left[p][i] * right[p][j]`, `left` packed by `size`, `right` by `NR`,
/// for the first `width` columns j; the others hold anything.
pub(super) fn outer(
    (size, width): (usize, usize),
    steps: usize,
    left: &[f32],
    right: &[f32],
    acc: &mut Acc,
) {
    assert!(left.len() >= steps * size && right.len() >= steps * NR);
    let args = Packed { left: left.as_ptr(), right: right.as_ptr(), steps };
    // SAFETY: both slices hold `steps` rows, asserted above. `call!` picks the AVX2 kernel only on
    // a processor that has AVX2 and FMA.
    unsafe { call!(outer, size, width, args, acc) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(len: usize, seed: u32) -> Vec<f32> {
        (0..len as u32).map(|i| (i.wrapping_mul(2_654_435_761) ^ seed) as f32 / 4e9 - 0.5).collect()
    }

    /// The plain loops agree with the vectorised ones for every number of rows and columns.
    #[test]
    fn portable_tiles_equal_the_dispatched_ones() {
        for (size, width) in (1..=MR).flat_map(|size| [(size, 8), (size, 9)]) {
            for steps in [0, 1, 7, 64] {
                let (a, b) = (values(steps * size, 1), values(steps * NR, 2));
                let (mut fast, mut plain) = (Acc([9.0; MR * NR]), Acc([9.0; MR * NR]));
                outer((size, width), steps, &a, &b, &mut fast);
                let args = Packed { left: a.as_ptr(), right: b.as_ptr(), steps };
                // SAFETY: both vectors were made with `steps` rows.
                unsafe { call!(@width portable, outer, size, width, args, &mut plain) };
                for (f, p) in fast.0[..size * NR].iter().zip(&plain.0) {
                    assert!((f - p).abs() <= 1e-5, "{size} rows, {steps} steps: {f} {p}");
                }
            }
        }
    }

    #[test]
    fn portable_gather_equals_the_dispatched_one_and_the_definition() {
        let x = values(400, 3);
        let offsets = [0, 40, 80];
        let taps = TapRange::new(&offsets, 0, 11);
        for (size, width) in (1..=MR).flat_map(|size| [(size, 3), (size, NR)]) {
            let packed = values(3 * 11 * NR, 4);
            let mut table = RowTable::new();
            table.reset(size, taps);
            (0..size).for_each(|i| table.set(&x, (0, size, i), (i as isize * 13, 0b101), taps));
            let (mut fast, mut plain) = (Acc([0.0; MR * NR]), Acc([0.0; MR * NR]));
            gather(&table, (0, size), width, &packed, &mut fast);
            let (pointers, taps, run) = table.tile(0, size);
            let args = Gathered { pointers: pointers.as_ptr(), taps, run, packed: packed.as_ptr() };
            // SAFETY: the table's invariant, as in `gather`.
            unsafe { call!(@width portable, gather, size, width, args, &mut plain) };
            for (i, j) in (0..size).flat_map(|i| (0..width).map(move |j| (i, j))) {
                let term = |t: usize, c: usize| {
                    let a = x[i * 13 + t * 40 + c];
                    f64::from(a) * f64::from(packed[(t * 11 + c) * NR + j])
                };
                let exact: f64 = (0..11).map(|c| term(0, c) + term(2, c)).sum();
                for sum in [fast.0[i * NR + j], plain.0[i * NR + j]] {
                    assert!((f64::from(sum) - exact).abs() <= 1e-5, "{size}: {sum} {exact}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "outside its input")]
    fn a_row_past_the_end_is_refused() {
        let x = [0.0; 20];
        let taps = TapRange::new(&[0], 0, 8);
        let mut table = RowTable::new();
        table.reset(1, taps);
        table.set(&x, (0, 1, 0), (13, 1), taps);
    }
}
