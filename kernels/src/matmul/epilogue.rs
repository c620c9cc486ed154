//! What happens to a tile of sums on its way to the output.

use super::NR;

/// `y = relu(sum * scale + bias + residual)`, each part if it is there.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Epilogue<'a> {
    /// One factor a column.
    pub scale: Option<&'a [f32]>,
    /// One summand a column.
    pub bias: Option<&'a [f32]>,
    /// One summand an output element.
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

impl Epilogue<'_> {
    /// Writes one row of sums to `y`, which is `columns` wide at most [`NR`] and begins at column
    /// `column` of output row `row`; `width` is the width of the whole output.
    pub(super) fn store(
        &self,
        sums: &[f32; NR],
        y: &mut [f32],
        (row, column, width): (usize, usize, usize),
        turn: Turn,
    ) {
        let part = |values: &'_ [f32], start: usize, len: usize| -> [f32; 8] {
            let mut out = [0.0; 8];
            out[..len].copy_from_slice(&values[start..start + len]);
            out
        };
        for (group, y) in y.chunks_mut(8).enumerate() {
            let (at, len) = (column + 8 * group, y.len());
            let mut v = [0.0; 8];
            v.copy_from_slice(&sums[8 * group..8 * group + 8]);
            if !turn.first {
                add(&mut v, &if len == 8 { eight(y, 0) } else { part(y, 0, len) });
            }
            if turn.last {
                let pick = |values: &[f32], start: usize| {
                    if len == 8 { eight(values, start) } else { part(values, start, len) }
                };
                if let Some(scale) = self.scale {
                    let scale = pick(scale, at);
                    v.iter_mut().zip(&scale).for_each(|(v, s)| *v *= s);
                }
                if let Some(bias) = self.bias {
                    add(&mut v, &pick(bias, at));
                }
                if let Some(residual) = self.residual {
                    add(&mut v, &pick(residual, row * width + at));
                }
                if self.relu {
                    // Not `max`, so that a NaN stays one and can be found.
                    v.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v });
                }
            }
            if len == 8 {
                y.copy_from_slice(&v);
            } else {
                y.copy_from_slice(&v[..len]);
            }
        }
    }
}

fn eight(values: &[f32], start: usize) -> [f32; 8] {
    let mut out = [0.0; 8];
    out.copy_from_slice(&values[start..start + 8]);
    out
}

fn add(v: &mut [f32; 8], other: &[f32; 8]) {
    v.iter_mut().zip(other).for_each(|(v, o)| *v += o);
}
