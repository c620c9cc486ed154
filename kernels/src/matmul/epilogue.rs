//! Elementwise operations on a tile of accumulators before the store.

/// Accumulators stored at a time in a row that is narrower than the tile.
const PIECE: usize = 8;

/// `y = relu(acc * scale + bias + residual)`, each part optional.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One scale per column.
    pub scale: Option<&'a [f32]>,
    /// One bias per column.
    pub bias: Option<&'a [f32]>,
    /// One value per output element.
    pub residual: Option<&'a [f32]>,
    /// Negative results become 0.
    pub relu: bool,
}

/// Position of a block of the reduction among the blocks of its output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// True for the first block, which overwrites the output; later blocks add to it.
    pub first: bool,
    /// True for the last block, which applies the epilogue.
    pub last: bool,
}

/// An [`Epilogue`] for one panel of columns, with scale and bias loaded.
#[derive(Debug)]
pub(super) struct PanelEpilogue<'a, const NR: usize> {
    scale: Option<[f32; NR]>,
    bias: Option<[f32; NR]>,
    residual: Option<&'a [f32]>,
    relu: bool,
    turn: Turn,
}

impl<'a> Epilogue<'a> {
    /// The epilogue for columns `column .. column + width`, `width` at most `NR`.
    pub(super) fn panel<const NR: usize>(
        &self,
        column: usize,
        width: usize,
        turn: Turn,
    ) -> PanelEpilogue<'a, NR> {
        let pick = |values: &[f32]| {
            let mut panel = [0.0; NR];
            panel[..width].copy_from_slice(&values[column..column + width]);
            panel
        };
        // Before the last block, only partial sums are stored.
        let last = if turn.last { *self } else { Epilogue::default() };
        PanelEpilogue {
            scale: last.scale.map(pick),
            bias: last.bias.map(pick),
            residual: last.residual,
            relu: last.relu,
            turn,
        }
    }
}

impl<const NR: usize> PanelEpilogue<'_, NR> {
    /// Writes one row of accumulators to `y`, which begins at element `element` of the output.
    #[inline(always)]
    pub(super) fn store(&self, sums: &[f32; NR], y: &mut [f32], element: usize) {
        let residual = self.residual.map(|r| &r[element..element + y.len()]);
        // Each piece has a length known to the compiler; a full row is one piece.
        if y.len() == NR {
            self.store_pieces::<NR>(0, sums, y, residual);
        } else {
            let whole = y.len() / PIECE * PIECE;
            let (y, rest) = y.split_at_mut(whole);
            self.store_pieces::<PIECE>(0, sums, y, residual);
            self.store_pieces::<1>(whole, sums, rest, residual.map(|r| &r[whole..]));
        }
    }

    /// Writes pieces of `W` accumulators, starting with accumulator `first`.
    #[inline(always)]
    fn store_pieces<const W: usize>(
        &self,
        first: usize,
        sums: &[f32; NR],
        y: &mut [f32],
        residual: Option<&[f32]>,
    ) {
        for (i, y) in y.as_chunks_mut::<W>().0.iter_mut().enumerate() {
            let at = first / W + i;
            let residual = residual.map(|r| r.as_chunks::<W>().0[i]);
            *y = self.finished(at, piece(sums, at), *y, residual);
        }
    }

    /// The values of piece `at` of an output row after this block of the reduction; `before` holds
    /// the previous values.
    #[inline(always)]
    fn finished<const W: usize>(
        &self,
        at: usize,
        sums: [f32; W],
        before: [f32; W],
        residual: Option<[f32; W]>,
    ) -> [f32; W] {
        let mut v = sums;
        if !self.turn.first {
            v = std::array::from_fn(|i| v[i] + before[i]);
        }
        if let Some(scale) = &self.scale {
            let scale = piece::<W>(scale, at);
            v = std::array::from_fn(|i| v[i] * scale[i]);
        }
        if let Some(bias) = &self.bias {
            let bias = piece::<W>(bias, at);
            v = std::array::from_fn(|i| v[i] + bias[i]);
        }
        if let Some(residual) = residual {
            v = std::array::from_fn(|i| v[i] + residual[i]);
        }
        if self.relu {
            // Not `max`, which would replace NaN by 0 and so hide it.
            v = std::array::from_fn(|i| if v[i] < 0.0 { 0.0 } else { v[i] });
        }
        v
    }
}

/// The `at`-th piece of `W` values.
#[inline(always)]
fn piece<const W: usize>(values: &[f32], at: usize) -> [f32; W] {
    values.as_chunks::<W>().0[at]
}
