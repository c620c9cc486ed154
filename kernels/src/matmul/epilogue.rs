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
    #[inline]
    pub(super) fn store(&self, sums: &[f32; NR], y: &mut [f32], element: usize) {
        let mut v = *sums;
        // The usual width has a length known to the compiler.
        if let ([y], []) = y.as_chunks_mut::<NR>() {
            if !self.turn.first {
                add(&mut v, y);
            }
            self.finish(&mut v, element);
            *y = v;
        } else {
            if !self.turn.first {
                add(&mut v, y);
            }
            self.finish_part(&mut v, y.len(), element);
            y.iter_mut().zip(&v).for_each(|(y, v)| *y = *v);
        }
    }

    #[inline]
    fn finish(&self, v: &mut [f32; NR], element: usize) {
        if let Some(scale) = &self.scale {
            v.iter_mut().zip(scale).for_each(|(v, s)| *v *= s);
        }
        if let Some(bias) = &self.bias {
            add(v, bias);
        }
        if let Some(residual) = self.residual {
            add(v, &residual[element..element + NR]);
        }
        if self.relu {
            // Not `max`, so that a NaN stays NaN and can be found.
            v.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v });
        }
    }

    /// [`Self::finish`] where only the first `width` columns exist.
    fn finish_part(&self, v: &mut [f32; NR], width: usize, element: usize) {
        let whole = PanelEpilogue { residual: None, relu: false, ..*self };
        whole.finish(v, element);
        if let Some(residual) = self.residual {
            add(v, &residual[element..element + width]);
        }
        if self.relu {
            v.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v });
        }
    }
}

/// Adds as many as there are of both.
#[inline]
fn add<const NR: usize>(v: &mut [f32; NR], other: &[f32]) {
    v.iter_mut().zip(other).for_each(|(v, o)| *v += o);
}
