//! `mma` instructions.

use super::Sums;
use super::warp::Warp;
use crate::lanes::float;
use crate::ptx::program::Reg;

/// m16n8k16 of halves: d, a, b, c.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn mma16(warp: &mut Warp, of: &[Reg; 14], sums: Sums) {
    // Rows of `a` and columns of `b`, as pairs of fp16 values; four lanes hold the eight pairs of a
    // row.
    let (mut a_pairs, mut b_pairs) = ([[0u32; 8]; 16], [[0u32; 8]; 8]);
    for r in 0..4 {
        let words = warp.word(of[4 + r]);
        for row in 0..8 {
            let place = &mut a_pairs[row + 8 * (r & 1)][4 * (r >> 1)..][..4];
            place.copy_from_slice(&words[4 * row..][..4]);
        }
    }
    for r in 0..2 {
        let words = warp.word(of[8 + r]);
        for column in 0..8 {
            b_pairs[column][4 * r..][..4].copy_from_slice(&words[4 * column..][..4]);
        }
    }
    let mut d = gather(warp, of);
    let (mut a, mut b) = ([[0f32; 16]; 16], [[0f32; 8]; 16]);
    for row in 0..16 {
        a[row] = float::widen_pairs(&a_pairs[row]);
    }
    for column in 0..8 {
        let wide = float::widen_pairs(&b_pairs[column]);
        for row in 0..16 {
            b[row][column] = wide[row];
        }
    }
    multiply(&a, &b, &mut d, sums);
    scatter(warp, of, &d);
}

/// m16n8k8 of tf32: d, a, b, c.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn mma8(warp: &mut Warp, of: &[Reg; 14], sums: Sums) {
    let (mut a, mut b) = ([[0f32; 8]; 16], [[0f32; 8]; 8]);
    // Hardware ignores the low bits of a tf32 operand.
    let tf32 = |word: u32| f32::from_bits(word & !0x1fff);
    for r in 0..4 {
        let words = warp.word(of[4 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            a[lane / 4 + 8 * (r & 1)][lane % 4 + 4 * (r >> 1)] = tf32(word);
        }
    }
    for r in 0..2 {
        let words = warp.word(of[8 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            b[lane % 4 + 4 * r][lane / 4] = tf32(word);
        }
    }
    let mut d = gather(warp, of);
    multiply(&a, &b, &mut d, sums);
    scatter(warp, of, &d);
}

#[inline(always)]
pub(super) fn gather(warp: &Warp, of: &[Reg; 14]) -> [[f32; 8]; 16] {
    let mut d = [[0f32; 8]; 16];
    for half in 0..2 {
        let even = warp.word(of[10 + 2 * half]);
        let odd = warp.word(of[11 + 2 * half]);
        for row in 0..8 {
            for pair in 0..4 {
                d[8 * half + row][2 * pair] = f32::from_bits(even[4 * row + pair]);
                d[8 * half + row][2 * pair + 1] = f32::from_bits(odd[4 * row + pair]);
            }
        }
    }
    d
}

#[inline(always)]
pub(super) fn scatter(warp: &mut Warp, of: &[Reg; 14], d: &[[f32; 8]; 16]) {
    for half in 0..2 {
        let (mut even, mut odd) = ([0; 32], [0; 32]);
        for row in 0..8 {
            for pair in 0..4 {
                even[4 * row + pair] = float::bits(d[8 * half + row][2 * pair]);
                odd[4 * row + pair] = float::bits(d[8 * half + row][2 * pair + 1]);
            }
        }
        warp.put_word(of[2 * half], &even, u32::MAX);
        warp.put_word(of[2 * half + 1], &odd, u32::MAX);
    }
}

/// Like [`gather`], from two registers with two fp16 values each.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn gather_halves(warp: &Warp, of: &[Reg; 14]) -> [[f32; 8]; 16] {
    let mut d = [[0f32; 8]; 16];
    for half in 0..2 {
        for (row, words) in warp.word(of[10 + half]).chunks_exact(4).enumerate() {
            let halves: [u16; 8] = std::array::from_fn(|i| (words[i / 2] >> (16 * (i % 2))) as u16);
            d[8 * half + row] = float::widen(&halves);
        }
    }
    d
}

/// Like [`scatter`], to two registers with two fp16 values each.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn scatter_halves(warp: &mut Warp, of: &[Reg; 14], d: &[[f32; 8]; 16]) {
    for half in 0..2 {
        let mut words = [0; 32];
        for row in 0..8 {
            let halves = float::narrow(&d[8 * half + row]);
            for pair in 0..4 {
                let [low, high] = [halves[2 * pair], halves[2 * pair + 1]].map(u32::from);
                words[4 * row + pair] = low | high << 16;
            }
        }
        warp.put_word(of[half], &words, u32::MAX);
    }
}

/// `d += a b`. The multiplication of two fp16, bf16 or tf32 values is exact in fp32, so an FMA
/// rounds like a multiplication followed by an addition.
#[inline(always)]
pub(super) fn multiply<const K: usize>(
    a: &[[f32; K]; 16],
    b: &[[f32; 8]; K],
    d: &mut [[f32; 8]; 16],
    sums: Sums,
) {
    for (row, sum) in a.iter().zip(d.iter_mut()) {
        match sums {
            Sums::Rounded => {
                for (factor, line) in row.iter().zip(b) {
                    for column in 0..8 {
                        sum[column] = factor.mul_add(line[column], sum[column]);
                    }
                }
            }
            Sums::Cut { group, bits } => {
                for column in 0..8 {
                    let products: [f64; K] =
                        std::array::from_fn(|k| f64::from(row[k]) * f64::from(b[k][column]));
                    for part in products.chunks(group) {
                        sum[column] = cut(part, sum[column], bits);
                    }
                }
            }
        }
    }
}

/// The sum of `c` and the terms: all are aligned to the largest one, truncated to `bits` more bits
/// than fp32 has, and summed exactly; the sum is truncated to fp32. NaN and infinity are
/// propagated.
fn cut(products: &[f64], c: f32, bits: i32) -> f32 {
    let terms = || products.iter().copied().chain([f64::from(c)]);
    let plain: f64 = terms().sum();
    let largest = terms().fold(0f64, |largest, term| largest.max(term.abs()));
    if !plain.is_finite() || largest == 0.0 {
        return plain as f32;
    }
    // The largest term is in [0.5, 1) * 2^exponent.
    let exponent = ((largest.to_bits() >> 52) as i32 - 1022).max(-1000);
    let unit = 2f64.powi(exponent - 24 - bits);
    let sum = terms().map(|term| (term / unit).trunc()).sum::<f64>() * unit;
    let near = sum as f32;
    if f64::from(near).abs() > sum.abs() {
        return if near > 0.0 { near.next_down() } else { near.next_up() };
    }
    near
}
