//! Transposition of rows into the columns of a panel, in squares that fit the registers.
#![allow(unsafe_code)]

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{
    __m256, __m512, _mm256_loadu_ps, _mm256_permute2f128_ps, _mm256_shuffle_ps, _mm256_storeu_ps,
    _mm256_unpackhi_ps, _mm256_unpacklo_ps, _mm512_loadu_ps, _mm512_shuffle_f32x4,
    _mm512_shuffle_ps, _mm512_storeu_ps, _mm512_unpackhi_ps, _mm512_unpacklo_ps,
};

use crate::isa::Isa;

/// `to[c * pitch + j] = from[j * stride + c]` for `rows` rows j and `len` elements c of each.
pub(super) fn transpose(
    isa: Isa,
    (from, stride): (&[f32], usize),
    (rows, len): (usize, usize),
    (to, pitch): (&mut [f32], usize),
) {
    if rows == 0 || len == 0 {
        return;
    }
    let side = match isa {
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512(_) => 16,
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2(_) => 8,
        Isa::Portable(_) => usize::MAX,
    };
    let (square_rows, square_len) = (rows / side * side, len / side * side);
    assert!(from.len() >= (rows - 1) * stride + len && to.len() >= (len - 1) * pitch + rows);
    for j in (0..square_rows).step_by(side) {
        for c in (0..square_len).step_by(side) {
            let (from, to) = (&from[j * stride + c..], &mut to[c * pitch + j..]);
            match isa {
                // SAFETY: the value proves that the processor has AVX-512 F. The square is within
                // the rows and elements that the assertion above checked: its last row ends at `j +
                // 15 < rows` and `c + 15 < len`, on both sides.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx512(_) => unsafe { avx512(from.as_ptr(), stride, to.as_mut_ptr(), pitch) },
                // SAFETY: as above, with AVX2, `j + 7` and `c + 7`.
                #[cfg(target_arch = "x86_64")]
                Isa::Avx2(_) => unsafe { avx2(from.as_ptr(), stride, to.as_mut_ptr(), pitch) },
                Isa::Portable(_) => unreachable!("it has no squares"),
            }
        }
    }
    for j in 0..rows {
        let first = if j < square_rows { square_len } else { 0 };
        let row = &from[j * stride..][..len];
        for (c, v) in row.iter().enumerate().skip(first) {
            to[c * pitch + j] = *v;
        }
    }
}

/// Transposes a square of 16 x 16.
///
/// # Safety
/// 16 rows of 16 elements, `stride` apart, can be read, and as many, `pitch` apart, written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn avx512(from: *const f32, stride: usize, to: *mut f32, pitch: usize) {
    // SAFETY: as the caller promises.
    let r: [__m512; 16] = std::array::from_fn(|i| unsafe { _mm512_loadu_ps(from.add(i * stride)) });
    // Pairs of rows, then fours: `u[4 k + m]` holds, in each of its quarters q, the elements `4 q +
    // m` of the rows `4 k` to `4 k + 3`.
    let mut u = r;
    for k in 0..4 {
        let [a, b, c, d] = [r[4 * k], r[4 * k + 1], r[4 * k + 2], r[4 * k + 3]];
        let (ab, cd) = (_mm512_unpacklo_ps(a, b), _mm512_unpacklo_ps(c, d));
        u[4 * k] = _mm512_shuffle_ps::<0x44>(ab, cd);
        u[4 * k + 1] = _mm512_shuffle_ps::<0xEE>(ab, cd);
        let (ab, cd) = (_mm512_unpackhi_ps(a, b), _mm512_unpackhi_ps(c, d));
        u[4 * k + 2] = _mm512_shuffle_ps::<0x44>(ab, cd);
        u[4 * k + 3] = _mm512_shuffle_ps::<0xEE>(ab, cd);
    }
    for m in 0..4 {
        let (even, odd) = ([u[m], u[4 + m]], [u[8 + m], u[12 + m]]);
        let a = _mm512_shuffle_f32x4::<0x88>(even[0], even[1]);
        let b = _mm512_shuffle_f32x4::<0x88>(odd[0], odd[1]);
        let c = _mm512_shuffle_f32x4::<0xDD>(even[0], even[1]);
        let d = _mm512_shuffle_f32x4::<0xDD>(odd[0], odd[1]);
        let columns = [
            (m, _mm512_shuffle_f32x4::<0x88>(a, b)),
            (4 + m, _mm512_shuffle_f32x4::<0x88>(c, d)),
            (8 + m, _mm512_shuffle_f32x4::<0xDD>(a, b)),
            (12 + m, _mm512_shuffle_f32x4::<0xDD>(c, d)),
        ];
        for (i, column) in columns {
            // SAFETY: as the caller promises.
            unsafe { _mm512_storeu_ps(to.add(i * pitch), column) };
        }
    }
}

/// Transposes a square of 8 x 8.
///
/// # Safety
/// 8 rows of 8 elements, `stride` apart, can be read, and as many, `pitch` apart, written.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma")]
unsafe fn avx2(from: *const f32, stride: usize, to: *mut f32, pitch: usize) {
    // SAFETY: as the caller promises.
    let r: [__m256; 8] = std::array::from_fn(|i| unsafe { _mm256_loadu_ps(from.add(i * stride)) });
    let mut u = r;
    for k in 0..2 {
        let [a, b, c, d] = [r[4 * k], r[4 * k + 1], r[4 * k + 2], r[4 * k + 3]];
        let (ab, cd) = (_mm256_unpacklo_ps(a, b), _mm256_unpacklo_ps(c, d));
        u[4 * k] = _mm256_shuffle_ps::<0x44>(ab, cd);
        u[4 * k + 1] = _mm256_shuffle_ps::<0xEE>(ab, cd);
        let (ab, cd) = (_mm256_unpackhi_ps(a, b), _mm256_unpackhi_ps(c, d));
        u[4 * k + 2] = _mm256_shuffle_ps::<0x44>(ab, cd);
        u[4 * k + 3] = _mm256_shuffle_ps::<0xEE>(ab, cd);
    }
    for m in 0..4 {
        let low = _mm256_permute2f128_ps::<0x20>(u[m], u[4 + m]);
        let high = _mm256_permute2f128_ps::<0x31>(u[m], u[4 + m]);
        // SAFETY: as the caller promises.
        unsafe {
            _mm256_storeu_ps(to.add(m * pitch), low);
            _mm256_storeu_ps(to.add((4 + m) * pitch), high);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Squares only, edges only and both; rows and columns past the edge are unchanged.
    #[test]
    fn transpose_is_correct_for_every_instruction_set() {
        for isa in Isa::all() {
            for (rows, len) in [(0, 5), (5, 0), (1, 1), (7, 9), (16, 16), (19, 37), (32, 48)] {
                let (stride, pitch) = (len + 3, rows + 2);
                let from: Vec<f32> = (0..rows * stride).map(|i| i as f32).collect();
                let mut to = vec![-1.0; len * pitch];
                transpose(isa, (&from, stride), (rows, len), (&mut to, pitch));
                for (i, v) in to.iter().enumerate() {
                    let (c, j) = (i / pitch, i % pitch);
                    let expected = if j < rows { from[j * stride + c] } else { -1.0 };
                    assert_eq!(*v, expected, "{isa:?}: {rows} x {len}, row {j}, element {c}");
                }
            }
        }
    }
}
