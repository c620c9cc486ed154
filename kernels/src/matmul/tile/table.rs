//! The memory addresses of the rows of a gathered matrix.

use std::marker::PhantomData;

use crate::matmul::rows::low_bits;

/// Maximum run of a row: one packed panel of the right matrix then takes half of a 32 KiB L1.
pub(in crate::matmul) const MAX_RUN: usize = 256;

/// The values that a tap outside the map reads.
static ZEROS: [f32; MAX_RUN] = [0.0; MAX_RUN];

/// The taps that a block of the reduction covers.
#[derive(Debug, Clone, Copy)]
pub(in crate::matmul) struct TapRange<'t> {
    offsets: &'t [isize],
    first: usize,
    run: usize,
    lowest: isize,
    highest: isize,
}

impl<'t> TapRange<'t> {
    /// Taps at `offsets` from a row's base; the first is bit `first` of the row's mask. Each
    /// contributes `run` elements.
    pub(in crate::matmul) fn new(offsets: &'t [isize], first: usize, run: usize) -> Self {
        assert!(run <= MAX_RUN);
        let lowest = offsets.iter().copied().min().unwrap_or(0);
        let highest = offsets.iter().copied().max().unwrap_or(0);
        Self { offsets, first, run, lowest, highest }
    }
}

/// For each row and each tap, the start of the run that the GEMM reads.
///
/// **Invariant:** every pointer of `pointers` is readable for `run` elements during `'a`.
#[derive(Debug)]
pub(in crate::matmul) struct RowTable<'a> {
    pointers: Vec<*const f32>,
    run: usize,
    taps: usize,
    data: PhantomData<&'a [f32]>,
}

impl<'a> RowTable<'a> {
    /// A table without rows.
    pub(in crate::matmul) fn new() -> Self {
        Self { pointers: Vec::new(), run: 0, taps: 0, data: PhantomData }
    }

    /// Makes room for `rows` rows over `taps`; they read zeros until they are set.
    pub(in crate::matmul) fn reset(&mut self, rows: usize, taps: TapRange<'_>) {
        self.run = taps.run;
        self.taps = taps.offsets.len();
        self.pointers.clear();
        self.pointers.resize(rows * self.taps, ZEROS.as_ptr());
    }

    /// Points row `i` of the tile of `size` rows from `start` at `x[base + offset ..]` for every
    /// tap in `mask`. `taps` are from the last [`RowTable::reset`].
    pub(in crate::matmul) fn set(
        &mut self,
        x: &'a [f32],
        (start, size, i): (usize, usize, usize),
        (base, mask): (isize, u64),
        taps: TapRange<'_>,
    ) {
        assert!(i < size && self.run == taps.run && self.taps == taps.offsets.len());
        let slots = &mut self.pointers[start * self.taps..(start + size) * self.taps];
        let room = x.len() as isize - self.run as isize;
        let check = |low: isize, high: isize| {
            assert!(base + low >= 0 && base + high <= room, "a row reads outside its input");
        };
        let (mask, full) = (mask >> taps.first, low_bits(self.taps));
        let slots = slots[i.min(self.taps * size)..].iter_mut().step_by(size);
        if mask & full == full {
            check(taps.lowest, taps.highest);
            let origin = x.as_ptr().wrapping_offset(base);
            for (slot, offset) in slots.zip(taps.offsets) {
                *slot = origin.wrapping_offset(*offset);
            }
            return;
        }
        for (t, (slot, &offset)) in slots.zip(taps.offsets).enumerate() {
            if mask >> t & 1 == 1 {
                check(offset, offset);
                *slot = x.as_ptr().wrapping_offset(base + offset);
            }
        }
    }

    /// Pointers of the `size` rows from `start` (tap-major, the rows contiguous), the number of
    /// taps, and the number of elements readable through each pointer.
    pub(super) fn tile(&self, start: usize, size: usize) -> (&[*const f32], usize, usize) {
        (&self.pointers[start * self.taps..(start + size) * self.taps], self.taps, self.run)
    }
}
