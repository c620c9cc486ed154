//! Products of small matrices, as tensor cores make them.

use super::warp::Warp;
use super::{Sums, float};
use crate::ptx::program::{Program, Reg};

/// m16n8k16 of halves: d, a, b, c.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn mma16(warp: &mut Warp, p: &Program, of: &[Reg; 14], sums: Sums) {
    let (mut a_halves, mut b_halves) = ([[0u16; 16]; 16], [[0u16; 16]; 8]);
    let mut d = [[0f32; 8]; 16];
    for r in 0..4 {
        let words = warp.word(p, of[4 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            let (row, column) = (lane / 4 + 8 * (r & 1), 2 * (lane % 4) + 8 * (r >> 1));
            a_halves[row][column] = word as u16;
            a_halves[row][column + 1] = (word >> 16) as u16;
        }
    }
    for r in 0..2 {
        let words = warp.word(p, of[8 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            let (row, column) = (2 * (lane % 4) + 8 * r, lane / 4);
            b_halves[column][row] = word as u16;
            b_halves[column][row + 1] = (word >> 16) as u16;
        }
    }
    gather(warp, p, of, &mut d);
    let mut a = [[0f32; 16]; 16];
    for (row, halves) in a.iter_mut().zip(&a_halves) {
        for at in [0, 8] {
            let wide = float::widen(&halves[at..]);
            row[at..at + 8].copy_from_slice(&wide);
        }
    }
    let mut b = [[0f32; 8]; 16];
    for (column, halves) in b_halves.iter().enumerate() {
        for at in [0, 8] {
            let wide = float::widen(&halves[at..]);
            for (i, wide) in wide.into_iter().enumerate() {
                b[at + i][column] = wide;
            }
        }
    }
    multiply(&a, &b, &mut d, sums);
    scatter(warp, of, &d);
}

/// m16n8k8 of tf32: d, a, b, c.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn mma8(warp: &mut Warp, p: &Program, of: &[Reg; 14], sums: Sums) {
    let (mut a, mut b, mut d) = ([[0f32; 8]; 16], [[0f32; 8]; 8], [[0f32; 8]; 16]);
    // The low bits of an operand do not count.
    let tf32 = |word: u32| f32::from_bits(word & !0x1fff);
    for r in 0..4 {
        let words = warp.word(p, of[4 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            a[lane / 4 + 8 * (r & 1)][lane % 4 + 4 * (r >> 1)] = tf32(word);
        }
    }
    for r in 0..2 {
        let words = warp.word(p, of[8 + r]);
        for (lane, word) in words.iter().copied().enumerate() {
            b[lane % 4 + 4 * r][lane / 4] = tf32(word);
        }
    }
    gather(warp, p, of, &mut d);
    multiply(&a, &b, &mut d, sums);
    scatter(warp, of, &d);
}

#[inline(always)]
fn gather(warp: &Warp, p: &Program, of: &[Reg; 14], d: &mut [[f32; 8]; 16]) {
    for e in 0..4 {
        let words = warp.word(p, of[10 + e]);
        for (lane, word) in words.iter().copied().enumerate() {
            d[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2] = f32::from_bits(word);
        }
    }
}

#[inline(always)]
fn scatter(warp: &mut Warp, of: &[Reg; 14], d: &[[f32; 8]; 16]) {
    for e in 0..4 {
        let mut value = [0; 32];
        for lane in 0..32 {
            value[lane] = float::bits(d[lane / 4 + 8 * (e / 2)][2 * (lane % 4) + e % 2]);
        }
        warp.put_word(of[e], &value, u32::MAX);
    }
}

/// `d += a b`. A product of two operands is exact in fp32, so a fused step rounds as two do.
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

/// `c` and products, aligned to the largest of them, with some bits more than fp32 has, cut off
/// there, added exactly, and cut off again to fp32. NaN and infinity pass through.
fn cut(products: &[f64], c: f32, bits: i32) -> f32 {
    let terms = || products.iter().copied().chain([f64::from(c)]);
    let plain: f64 = terms().sum();
    let largest = terms().fold(0f64, |largest, term| largest.max(term.abs()));
    if !plain.is_finite() || largest == 0.0 {
        return plain as f32;
    }
    // The exponent for which the largest is in [0.5, 1).
    let exponent = ((largest.to_bits() >> 52) as i32 - 1022).max(-1000);
    let unit = 2f64.powi(exponent - 24 - bits);
    let sum = terms().map(|term| (term / unit).trunc()).sum::<f64>() * unit;
    let near = sum as f32;
    if f64::from(near).abs() > sum.abs() {
        return if near > 0.0 { near.next_down() } else { near.next_up() };
    }
    near
}
