//! Adds what the ranks brought, in rank order.
//!
//! Halves are added in floats and rounded once. NCCL itself rounds each hop of a ring.

use std::ffi::c_int;

/// Elements that are added at a time, in the processor's nearest cache.
const BLOCK: usize = 4096;

/// The element type of a sum: `ncclFloat16` or `ncclFloat32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Type {
    Half,
    Float,
}

impl Type {
    /// NCCL's number of it.
    pub(crate) fn number(self) -> c_int {
        match self {
            Self::Half => 6,
            Self::Float => 7,
        }
    }

    /// The type of NCCL's number.
    pub(crate) fn of(number: c_int) -> Option<Self> {
        [Self::Half, Self::Float].into_iter().find(|t| t.number() == number)
    }

    /// Bytes of an element.
    pub(crate) fn bytes(self) -> usize {
        match self {
            Self::Half => 2,
            Self::Float => 4,
        }
    }
}

/// The sum of slices of the same length, the first rank's first.
pub(crate) fn add(of: Type, parts: &[&[u8]], sum: &mut Vec<u8>) {
    let bytes = BLOCK * of.bytes();
    let mut floats = [0f32; BLOCK];
    let Some((first, others)) = parts.split_first() else { return };
    sum.resize(first.len(), 0);
    for (i, (first, sum)) in first.chunks(bytes).zip(sum.chunks_mut(bytes)).enumerate() {
        let start = i * bytes;
        let floats = &mut floats[..first.len() / of.bytes()];
        each(of, floats, first, |_, value| value);
        for other in others {
            each(of, floats, &other[start..start + first.len()], |sum, value| sum + value);
        }
        match of {
            Type::Float => {
                for (bytes, float) in sum.as_chunks_mut().0.iter_mut().zip(floats) {
                    *bytes = float.to_le_bytes();
                }
            }
            Type::Half => {
                for (bytes, float) in sum.as_chunks_mut().0.iter_mut().zip(floats) {
                    *bytes = half_of(*float).to_le_bytes();
                }
            }
        }
    }
}

fn each(of: Type, sums: &mut [f32], bytes: &[u8], then: impl Fn(f32, f32) -> f32) {
    match of {
        Type::Float => {
            for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *sum = then(*sum, f32::from_le_bytes(*bytes));
            }
        }
        Type::Half => {
            for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks().0) {
                *sum = then(*sum, float_of(u16::from_le_bytes(*bytes)));
            }
        }
    }
}

/// The float of a half. Each case is computed and one chosen, so that loops become vectors.
fn float_of(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff);
    // 2^-14, the least normal half.
    const LEAST: u32 = 113 << 23;
    let small = (f32::from_bits(LEAST | magnitude << 13) - f32::from_bits(LEAST)).to_bits();
    let normal = (magnitude << 13) + (112 << 23);
    let huge = magnitude << 13 | 0xff << 23;
    let chosen = if magnitude < 0x400 {
        small
    } else if magnitude < 0x7c00 {
        normal
    } else {
        huge
    };
    f32::from_bits(chosen | u32::from(half & 0x8000) << 16)
}

/// The nearest half, the even one of two.
fn half_of(float: f32) -> u16 {
    let (sign, magnitude) = (float.to_bits() >> 16 & 0x8000, float.to_bits() & 0x7fff_ffff);
    // Half the distance of small halves is the last digit at this size: the addition rounds.
    const ROUNDS: u32 = 126 << 23;
    let small = (f32::from_bits(magnitude) + f32::from_bits(ROUNDS)).to_bits().wrapping_sub(ROUNDS);
    let odd = magnitude >> 13 & 1;
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + odd) >> 13;
    let huge = if magnitude > 0xff << 23 { 0x7e00 } else { 0x7c00 };
    let chosen = if magnitude < 113 << 23 {
        small
    } else if magnitude < 143 << 23 {
        normal
    } else {
        huge
    };
    (sign | chosen) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition, in doubles.
    fn value(half: u16) -> f64 {
        let (exponent, digits) = (i32::from(half >> 10 & 31), f64::from(half & 0x3ff));
        let size = match exponent {
            0 => digits * 2f64.powi(-24),
            31 if digits == 0.0 => f64::INFINITY,
            31 => f64::NAN,
            _ => (1024.0 + digits) * 2f64.powi(exponent - 25),
        };
        if half >> 15 == 1 { -size } else { size }
    }

    #[test]
    fn every_half_is_its_float_and_comes_back() {
        for half in 0..=u16::MAX {
            let float = float_of(half);
            if value(half).is_nan() {
                assert!(float.is_nan() && half_of(float) & 0x7fff > 0x7c00, "{half:#x}");
            } else {
                assert_eq!(f64::from(float), value(half), "{half:#x}");
                assert_eq!(half_of(float), half);
            }
        }
    }

    #[test]
    fn floats_round_to_the_nearest_half_and_to_even() {
        for half in 0..0x7c00u16 {
            // Above the greatest half the next would be 65536, were there one more exponent.
            let next = if half == 0x7bff { 65536.0 } else { value(half + 1) };
            let middle = ((value(half) + next) / 2.0) as f32;
            let even = if half % 2 == 0 { half } else { half + 1 };
            let [below, above] = [middle.to_bits() - 1, middle.to_bits() + 1].map(f32::from_bits);
            assert_eq!([below, middle, above].map(half_of), [half, even, half + 1], "{half:#x}");
            assert_eq!(half_of(-above), (half + 1) | 0x8000);
        }
        assert_eq!(
            [1e9, f32::INFINITY, 1e-30, 0.0, -0.0].map(half_of),
            [0x7c00, 0x7c00, 0, 0, 0x8000]
        );
    }

    #[test]
    fn sums_are_in_rank_order_and_round_once() {
        let floats = |v: f32| v.to_le_bytes().repeat(BLOCK + 3);
        let (big, one, less) = (floats(1e8), floats(1.0), floats(-1e8));
        let mut sum = vec![];
        add(Type::Float, &[&big, &one, &less], &mut sum);
        assert_eq!(sum, floats(0.0));
        add(Type::Float, &[&big, &less, &one], &mut sum);
        assert_eq!(sum, one);
        // 2048 + 1 is no half: rounded each time, the sum would stay 2048.
        let halves = |v: f32| half_of(v).to_le_bytes().repeat(BLOCK + 3);
        let (big, one) = (halves(2048.0), halves(1.0));
        add(Type::Half, &[&big, &one, &one], &mut sum);
        assert_eq!(sum, halves(2050.0));
    }
}
