//! Sign bits of an activation, one per value: all that the gradient of a ReLU needs.
//!
//! `signs [R/4, C/64, 4, 2] i32` of an activation with `R` rows of `C` channels: bit `b` of word
//! `[g, c, r, h]` is 1 if the value in row `4 g + r` and channel `64 c + 32 h + b` is positive (not
//! 0, not NaN). So four rows of 64 channels are 32 bytes: a sector of GPU memory, and the unit that
//! a warp of a large tile writes at once. The signs take a sixteenth of the bytes of the activation
//! in fp16.

use rayon::prelude::*;

use crate::cpu::{HostTensor, TensorRef};
use crate::{OpError, Role, TensorDesc, check};

/// Rows whose sign bits are contiguous.
const ROWS: usize = 4;
/// Channels whose sign bits of a row are contiguous, in words of 32.
const CHANNELS: usize = 64;

/// Words per block of [`ROWS`] rows and [`CHANNELS`] channels.
const WORDS: usize = ROWS * CHANNELS / 32;

/// The sign bits of an activation, if its number of rows is a multiple of 4 and its number of
/// channels is a multiple of 64.
pub fn signs_of(activation: &TensorDesc) -> Option<TensorDesc> {
    let channels = *activation.shape.last()?;
    let rows = activation.shape.iter().rev().skip(1).product::<usize>();
    (rows.is_multiple_of(ROWS) && channels.is_multiple_of(CHANNELS)).then(|| {
        TensorDesc::new(Role::Index, &[rows / ROWS, channels / CHANNELS, ROWS, CHANNELS / 32])
    })
}

/// [`signs_of`] an op's output, with an error that names the op.
pub(crate) fn infer(
    op: &'static str,
    name: &'static str,
    activation: &TensorDesc,
) -> Result<TensorDesc, OpError> {
    signs_of(activation).ok_or_else(|| {
        let expected = format!("a multiple of {ROWS} rows of a multiple of {CHANNELS} channels");
        check::shape_error(op, name, activation, expected)
    })
}

/// The sign bits of an activation, in the layout of `desc`.
pub(crate) fn of(activation: &HostTensor, desc: &TensorDesc) -> HostTensor {
    let mut signs = HostTensor::i32(desc.clone(), vec![0; desc.len()]);
    write(signs.as_i32_mut(), activation.as_f32(), activation.desc.dim(-1));
    signs
}

/// Writes the signs of all rows.
pub(crate) fn write(signs: &mut [i32], activation: &[f32], channels: usize) {
    if signs.is_empty() {
        return;
    }
    let groups = signs.par_chunks_mut(channels / CHANNELS * WORDS);
    groups.zip(activation.par_chunks(ROWS * channels)).for_each(|(signs, rows)| {
        for (r, row) in rows.chunks(channels).enumerate() {
            for (i, values) in row.chunks(32).enumerate() {
                let bits = values.iter().rev().fold(0, |bits, v| bits << 1 | u32::from(*v > 0.0));
                signs[i / 2 * WORDS + r * 2 + i % 2] = bits.cast_signed();
            }
        }
    });
}

/// Sets `dx` to 0 where the activation's sign bit is 0; `dx` may have only the activation's first
/// rows.
pub(crate) fn mask(dx: &mut [f32], signs: &TensorRef<'_>) {
    if dx.is_empty() {
        return;
    }
    let (channels, signs) = (signs.desc.dim(1) * CHANNELS, signs.i32());
    dx.par_chunks_mut(channels).enumerate().for_each(|(row, dx)| {
        let signs = &signs[row / ROWS * (channels / CHANNELS) * WORDS..];
        for (i, values) in dx.chunks_mut(32).enumerate() {
            let bits = signs[i / 2 * WORDS + row % ROWS * 2 + i % 2];
            for (b, value) in values.iter_mut().enumerate() {
                *value = if bits >> b & 1 == 1 { *value } else { 0.0 };
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desc(rows: usize, channels: usize) -> TensorDesc {
        TensorDesc::new(Role::Activation, &[rows / 2, 2, channels])
    }

    #[test]
    fn signs_require_multiples_of_4_rows_and_64_channels() {
        let shape = |rows, channels| signs_of(&desc(rows, channels)).map(|signs| signs.shape);
        assert_eq!(shape(12, 128), Some(vec![3, 2, 4, 2]));
        assert_eq!(shape(0, 64), Some(vec![0, 1, 4, 2]));
        assert_eq!((shape(6, 128), shape(12, 96)), (None, None));
        assert_eq!(signs_of(&TensorDesc::new(Role::Activation, &[])), None);
    }

    /// Row 5 and channel 100 of 128: word [1, 1, 1, 1], bit 4.
    #[test]
    fn sign_bits_match_hand_computed_values() {
        let mut activation = vec![0.0; 8 * 128];
        activation[5 * 128 + 100] = 1e-30;
        activation[5 * 128 + 101] = -1.0;
        activation[5 * 128 + 102] = f32::NAN;
        let mut signs = vec![-1; 8 * 4];
        write(&mut signs, &activation, 128);
        let word = ((2 + 1) * 4 + 1) * 2 + 1;
        assert_eq!(signs[word], 1 << 4);
        assert!(signs.iter().enumerate().all(|(at, bits)| at == word || *bits == 0));
    }

    #[test]
    fn signs_mask_like_relu() {
        let activation: Vec<f32> =
            (0..12 * 64).map(|i| ((i * 37 + i / 64) % 5) as f32 - 2.0).collect();
        let desc = signs_of(&desc(12, 64)).expect("whole groups");
        let mut signs = HostTensor::i32(desc, vec![0; 3 * 8]);
        write(signs.as_i32_mut(), &activation, 64);
        // The last rows hold no data.
        let mut dx: Vec<f32> = (0..10 * 64).map(|i| i as f32 - 99.5).collect();
        let pairs = dx.iter().zip(&activation);
        let wanted: Vec<f32> = pairs.map(|(dx, y)| if *y > 0.0 { *dx } else { 0.0 }).collect();
        mask(&mut dx, &signs.view());
        assert_eq!(dx, wanted);
    }
}
