//! What happens to a tile of sums on its way to the output.

/// `y = relu(sum * scale + bias + residual)`, each part optional.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One factor per column.
    pub scale: Option<&'a [f32]>,
    /// One summand per column.
    pub bias: Option<&'a [f32]>,
    /// One summand per output element.
    pub residual: Option<&'a [f32]>,
    /// Negative results become 0.
    pub relu: bool,
}

/// Where a block of the reduction stands among those of its output.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// The first block overwrites, later ones add.
    pub first: bool,
    /// The last block applies the epilogue.
    pub last: bool,
}

/// An [`Epilogue`] for one panel of columns, with its factors and summands loaded.
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
        // Before the last block there are only partial sums to store.
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
    /// Writes one row of sums to `y`, which begins at element `element` of the output.
    #[inline(always)]
    pub(super) fn store(&self, sums: &[f32; NR], y: &mut [f32], element: usize) {
        let residual = self.residual.map(|r| &r[element..element + y.len()]);
        // The usual width has a length known to the compiler.
        if let Ok(y) = <&mut [f32; NR]>::try_from(&mut *y) {
            let residual = residual.map(|r| r.as_chunks::<NR>().0[0]);
            *y = self.finished(sums, *y, residual);
            return;
        }
        let (mut before, mut beside) = ([0.0; NR], [0.0; NR]);
        copy_short(y, &mut before);
        let residual = residual.map(|r| {
            copy_short(r, &mut beside);
            beside
        });
        copy_short(&self.finished(sums, before, residual), y);
    }

    /// A row of the output after this block, which was `before`.
    #[inline(always)]
    fn finished(
        &self,
        sums: &[f32; NR],
        before: [f32; NR],
        residual: Option<[f32; NR]>,
    ) -> [f32; NR] {
        let mut v = *sums;
        if !self.turn.first {
            v = std::array::from_fn(|i| v[i] + before[i]);
        }
        if let Some(scale) = &self.scale {
            v = std::array::from_fn(|i| v[i] * scale[i]);
        }
        if let Some(bias) = &self.bias {
            v = std::array::from_fn(|i| v[i] + bias[i]);
        }
        if let Some(residual) = residual {
            v = std::array::from_fn(|i| v[i] + residual[i]);
        }
        if self.relu {
            // Not `max`, so that a NaN stays NaN and can be found.
            v = std::array::from_fn(|i| if v[i] < 0.0 { 0.0 } else { v[i] });
        }
        v
    }
}

/// Copies the elements that both have.
#[inline(always)]
fn copy_short(from: &[f32], to: &mut [f32]) {
    to.iter_mut().zip(from).for_each(|(t, f)| *t = *f);
}
