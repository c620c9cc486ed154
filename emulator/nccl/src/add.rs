//! Adds the ranks' contributions to an all-reduce, in rank order.
//!
//! fp16 values are summed in fp32 and rounded once. NCCL itself rounds at each hop of a ring.

use std::ffi::c_int;

use bytemuck::{cast_slice, cast_slice_mut};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Elements summed at a time, to stay in the L1 cache.
const BLOCK: usize = 4096;

/// The element type of an all-reduce: `ncclFloat16` or `ncclFloat32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Half,
    Float,
}

impl Type {
    /// Its `ncclDataType_t` value.
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::Half => 6,
            Self::Float => 7,
        }
    }

    /// The type with this `ncclDataType_t` value.
    pub(crate) fn of(number: c_int) -> Option<Self> {
        [Self::Half, Self::Float].into_iter().find(|t| t.number() == number)
    }

    /// Bytes per element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Half => 2,
            Self::Float => 4,
        }
    }
}

/// The sum of slices of the same length, in rank order.
pub(crate) fn add(of: Type, parts: &[&[u8]], sum: &mut Vec<u8>) {
    let bytes = BLOCK * of.bytes();
    let (mut sums, mut addends) = ([0f32; BLOCK], [0f32; BLOCK]);
    let Some((first, others)) = parts.split_first() else { return };
    sum.resize(first.len(), 0);
    for (i, (first, sum)) in first.chunks(bytes).zip(sum.chunks_mut(bytes)).enumerate() {
        let (start, count) = (i * bytes, first.len() / of.bytes());
        let (sums, addends) = (&mut sums[..count], &mut addends[..count]);
        read(of, first, sums);
        for other in others {
            read(of, &other[start..start + first.len()], addends);
            sums.iter_mut().zip(&*addends).for_each(|(sum, addend)| *sum += addend);
        }
        write(of, sums, sum);
    }
}

fn read(of: Type, bytes: &[u8], floats: &mut [f32]) {
    match of {
        Type::Float => cast_slice_mut(floats).copy_from_slice(bytes),
        Type::Half => {
            let halves = &mut [f16::ZERO; BLOCK][..floats.len()];
            cast_slice_mut(halves).copy_from_slice(bytes);
            halves.convert_to_f32_slice(floats);
        }
    }
}

fn write(of: Type, floats: &[f32], bytes: &mut [u8]) {
    match of {
        Type::Float => bytes.copy_from_slice(cast_slice(floats)),
        Type::Half => {
            let halves = &mut [f16::ZERO; BLOCK][..floats.len()];
            halves.convert_from_f32_slice(floats);
            bytes.copy_from_slice(cast_slice(halves));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reduction_adds_in_rank_order_and_rounds_once() {
        let floats = |v: f32| v.to_le_bytes().repeat(BLOCK + 3);
        let (big, one, less) = (floats(1e8), floats(1.0), floats(-1e8));
        let mut sum = vec![];
        add(Type::Float, &[&big, &one, &less], &mut sum);
        assert_eq!(sum, floats(0.0));
        add(Type::Float, &[&big, &less, &one], &mut sum);
        assert_eq!(sum, one);
        // 2048 + 1 is not an fp16 value: if each addition rounded, the sum would stay 2048.
        let halves = |v: f32| f16::from_f32(v).to_le_bytes().repeat(BLOCK + 3);
        let (big, one) = (halves(2048.0), halves(1.0));
        add(Type::Half, &[&big, &one, &one], &mut sum);
        assert_eq!(sum, halves(2050.0));
    }
}
