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

/// Elements that are finished at once.
const LANES: usize = 8;

impl Epilogue<'_> {
    /// Writes one row of sums to `y`, at most [`NR`] wide, which begins at column `column` of output
    /// row `row`; `width` is the width of the whole output.
    pub(super) fn store(
        &self,
        sums: &[f32; NR],
        y: &mut [f32],
        (row, column, width): (usize, usize, usize),
        turn: Turn,
    ) {
        // Lengths known to the compiler: this runs once for each row of each tile.
        let (groups, rest) = y.as_chunks_mut::<LANES>();
        let element = row * width + column;
        for (i, (y, sums)) in groups.iter_mut().zip(sums.as_chunks::<LANES>().0).enumerate() {
            let at = LANES * i;
            self.finish(sums, y, (column + at, element + at), turn);
        }
        let done = LANES * groups.len();
        for (i, (y, sum)) in rest.iter_mut().zip(&sums[done..]).enumerate() {
            let at = done + i;
            let y = std::array::from_mut(y);
            self.finish(&[*sum], y, (column + at, element + at), turn);
        }
    }

    fn finish<const N: usize>(
        &self,
        sums: &[f32; N],
        y: &mut [f32; N],
        (column, element): (usize, usize),
        turn: Turn,
    ) {
        let mut v = *sums;
        if !turn.first {
            add(&mut v, &y[..]);
        }
        if turn.last {
            if let Some(scale) = self.scale {
                let scale = &scale[column..column + N];
                v.iter_mut().zip(scale).for_each(|(v, s)| *v *= s);
            }
            if let Some(bias) = self.bias {
                add(&mut v, &bias[column..column + N]);
            }
            if let Some(residual) = self.residual {
                add(&mut v, &residual[element..element + N]);
            }
            if self.relu {
                // Not `max`, so that a NaN stays one and can be found.
                v.iter_mut().for_each(|v| *v = if *v < 0.0 { 0.0 } else { *v });
            }
        }
        *y = v;
    }
}

fn add<const N: usize>(v: &mut [f32; N], other: &[f32]) {
    v.iter_mut().zip(other).for_each(|(v, o)| *v += o);
}
