//! Roundings and conversions that PTX defines exactly.
#![allow(unsafe_code)]

use std::arch::x86_64::{
    __m128i, __m256, _MM_FROUND_TO_NEAREST_INT, _mm256_cvtph_ps, _mm256_cvtps_ph,
};
use std::mem::transmute;

/// The canonical NaN.
const NAN: u32 = 0x7fff_ffff;

/// The bits of a result; any NaN becomes the canonical NaN, as on NVIDIA GPUs.
#[inline(always)]
pub(crate) fn bits(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Minimum or maximum: -0 is less than +0, and a number is preferred to NaN.
macro_rules! choices {
    ($name:ident, $float:ident, $choose:ident, $both:tt) => {
        #[inline(always)]
        pub(super) fn $name(a: $float, b: $float) -> $float {
            match (a, b) {
                _ if a.is_nan() => b,
                _ if b.is_nan() => a,
                _ if a == b => $float::from_bits(a.to_bits() $both b.to_bits()),
                _ => a.$choose(b),
            }
        }
    };
}
choices!(min, f32, min, |);
choices!(max, f32, max, &);
choices!(min64, f64, min, |);
choices!(max64, f64, max, &);

/// `a * b + c` rounded toward minus infinity.
pub(super) fn fma_down(a: f32, b: f32, c: f32) -> f32 {
    let near = a.mul_add(b, c);
    if !near.is_finite() {
        // A sum that overflows is rounded down to the largest finite number.
        let is_overflow = near == f32::INFINITY && [a, b, c].iter().all(|x| x.is_finite());
        return if is_overflow { f32::MAX } else { near };
    }
    let [high, low] = two_sum(f64::from(a) * f64::from(b), f64::from(c));
    let near64 = f64::from(near);
    if near64 > high || (near64 == high && low < 0.0) { near.next_down() } else { near }
}

/// `a + b` rounded toward zero.
pub(super) fn add_to_zero(a: f32, b: f32) -> f32 {
    let near = a + b;
    if !near.is_finite() {
        let is_overflow = near.is_infinite() && a.is_finite() && b.is_finite();
        return if is_overflow { f32::MAX.copysign(near) } else { near };
    }
    let [high, low] = two_sum(f64::from(a), f64::from(b));
    let near64 = f64::from(near);
    if near > 0.0 && (near64 > high || (near64 == high && low < 0.0)) {
        near.next_down()
    } else if near < 0.0 && (near64 < high || (near64 == high && low > 0.0)) {
        near.next_up()
    } else {
        near
    }
}

/// The sum, and its rounding error.
fn two_sum(a: f64, b: f64) -> [f64; 2] {
    let sum = a + b;
    let of_b = sum - a;
    [sum, (a - (sum - of_b)) + (b - of_b)]
}

/// `2^x` with subnormal numbers flushed to zero, correctly rounded. The hardware's error is up to
/// two units in the last place.
pub(super) fn exp2(x: f32) -> f32 {
    let x = if x.is_subnormal() { 0.0 } else { x };
    let value = f64::from(x).exp2() as f32;
    if value.is_subnormal() { 0.0 } else { value }
}

/// Rounds to 10 fraction bits, ties away from zero.
pub(super) fn tf32(x: f32) -> u32 {
    if x.is_nan() { NAN } else { (x.to_bits() + 0x1000) & !0x1fff }
}

/// The first eight fp16 values of a slice as floats.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen(halves: &[u16]) -> [f32; 8] {
    let mut eight = [0; 8];
    eight.copy_from_slice(&halves[..8]);
    // SAFETY: the types have the same size, and any bits are valid in each.
    unsafe { transmute::<__m256, [f32; 8]>(_mm256_cvtph_ps(transmute::<[u16; 8], __m128i>(eight))) }
}

/// Unpacks pairs of fp16 values to floats, the low 16 bits first.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn widen_pairs(pairs: &[u32; 8]) -> [f32; 16] {
    let mut halves = [0; 16];
    for i in 0..8 {
        (halves[2 * i], halves[2 * i + 1]) = (pairs[i] as u16, (pairs[i] >> 16) as u16);
    }
    let mut wide = [0.0; 16];
    wide[..8].copy_from_slice(&widen(&halves[..8]));
    wide[8..].copy_from_slice(&widen(&halves[8..]));
    wide
}

/// The first eight floats of a slice, rounded to the nearest fp16 values.
#[target_feature(enable = "avx2,fma,f16c")]
pub(crate) fn narrow(floats: &[f32]) -> [u16; 8] {
    let mut eight = [0.0; 8];
    eight.copy_from_slice(&floats[..8]);
    // SAFETY: as above.
    let mut halves = unsafe {
        let wide = transmute::<[f32; 8], __m256>(eight);
        transmute::<__m128i, [u16; 8]>(_mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(wide))
    };
    for i in 0..8 {
        if eight[i].is_nan() {
            halves[i] = 0x7fff;
        }
    }
    halves
}
