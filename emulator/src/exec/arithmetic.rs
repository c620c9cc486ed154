//! Arithmetic of all lanes at once.

use super::float;
use super::warp::{Doubles, Warp, Words};
use crate::ptx::program::{
    Carry, Compare, Compared, Convert, Float, FloatUnary, Int, Op, Program, Reg, Round, Shift,
    Unary,
};

/// Applies a function to each lane. Loops, not `map`: what is inlined here is compiled for the
/// vectors of the caller.
#[inline(always)]
fn each<A: Copy, D: Copy + Default>(a: &[A; 32], f: impl Fn(A) -> D) -> [D; 32] {
    let mut value = [D::default(); 32];
    for lane in 0..32 {
        value[lane] = f(a[lane]);
    }
    value
}

#[inline(always)]
fn pairs<A: Copy, B: Copy, D: Copy + Default>(
    a: &[A; 32],
    b: &[B; 32],
    f: impl Fn(A, B) -> D,
) -> [D; 32] {
    let mut value = [D::default(); 32];
    for lane in 0..32 {
        value[lane] = f(a[lane], b[lane]);
    }
    value
}

#[inline(always)]
fn triples<A: Copy, D: Copy + Default>(
    a: &[A; 32],
    b: &[A; 32],
    c: &[A; 32],
    f: impl Fn(A, A, A) -> D,
) -> [D; 32] {
    let mut value = [D::default(); 32];
    for lane in 0..32 {
        value[lane] = f(a[lane], b[lane], c[lane]);
    }
    value
}

/// Takes lanes of one or the other.
#[inline(always)]
fn select<T: Copy>(a: &[T; 32], b: &[T; 32], mask: u32) -> [T; 32] {
    let mut value = *b;
    for lane in 0..32 {
        value[lane] = if mask >> lane & 1 != 0 { a[lane] } else { b[lane] };
    }
    value
}

/// A mask of the lanes for which a comparison holds.
#[inline(always)]
fn mask_of<A: Copy>(a: &[A; 32], b: &[A; 32], f: impl Fn(A, A) -> bool) -> u32 {
    let mut mask = 0;
    for lane in 0..32 {
        mask |= u32::from(f(a[lane], b[lane])) << lane;
    }
    mask
}

/// Runs an instruction that needs only registers. False if it needs more.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
pub(super) fn arithmetic(warp: &mut Warp, program: &Program, op: &Op, mask: u32) -> bool {
    let p = program;
    match *op {
        Op::Int32(op, d, a, b) => int32(warp, p, op, [d, a, b], mask),
        Op::Int64(op, d, a, b) => int64(warp, p, op, [d, a, b], mask),
        Op::Shift32(op, d, a, b) => {
            let (a, b) = (warp.word(p, a), warp.word(p, b));
            let value = match op {
                Shift::Left => pairs(a, b, |a, b| if b > 31 { 0 } else { a << b }),
                Shift::Right => pairs(a, b, |a, b| if b > 31 { 0 } else { a >> b }),
                Shift::RightSigned => pairs(a, b, |a, b| (a as i32 >> b.min(31)) as u32),
            };
            warp.put_word(d, &value, mask);
        }
        Op::Shift64(op, d, a, b) => {
            let (a, b) = (warp.double(p, a), warp.word(p, b));
            let value = match op {
                Shift::Left => pairs(a, b, |a, b| if b > 63 { 0 } else { a << b }),
                Shift::Right => pairs(a, b, |a, b| if b > 63 { 0 } else { a >> b }),
                Shift::RightSigned => pairs(a, b, |a, b| (a as i64 >> b.min(63)) as u64),
            };
            warp.put_double(d, &value, mask);
        }
        Op::Wide(signed, d, a, b) => {
            let (a, b) = (warp.word(p, a), warp.word(p, b));
            let value = if signed {
                pairs(a, b, |a, b| (i64::from(a as i32) * i64::from(b as i32)) as u64)
            } else {
                pairs(a, b, |a, b| u64::from(a) * u64::from(b))
            };
            warp.put_double(d, &value, mask);
        }
        Op::Mad32(d, a, b, c) => {
            let (a, b, c) = (warp.word(p, a), warp.word(p, b), warp.word(p, c));
            let value = triples(a, b, c, |a, b, c| a.wrapping_mul(b).wrapping_add(c));
            warp.put_word(d, &value, mask);
        }
        Op::Mad64(d, a, b, c) => {
            let (a, b, c) = (warp.double(p, a), warp.double(p, b), warp.double(p, c));
            let value = triples(a, b, c, |a, b, c| a.wrapping_mul(b).wrapping_add(c));
            warp.put_double(d, &value, mask);
        }
        Op::Carry(op, reads, writes, of) => carry(warp, p, (op, reads, writes), of, mask),
        Op::Float32(op, d, a, b) => float32(warp, p, op, [d, a, b], mask),
        Op::Float64(op, d, a, b) => float64(warp, p, op, [d, a, b], mask),
        Op::Fma32(round, [d, a, b, c]) => {
            let (a, b, c) = (warp.floats(p, a), warp.floats(p, b), warp.floats(p, c));
            let value = match round {
                Round::Down => triples(a, b, c, |a, b, c| float::bits(float::fma_down(a, b, c))),
                _ => triples(a, b, c, |a, b, c| float::bits(a.mul_add(b, c))),
            };
            warp.put_word(d, &value, mask);
        }
        Op::Fma64([d, a, b, c]) => {
            let (a, b, c) = (warp.double(p, a), warp.double(p, b), warp.double(p, c));
            let fma = |a, b, c| f64::from_bits(a).mul_add(f64::from_bits(b), f64::from_bits(c));
            warp.put_double(d, &triples(a, b, c, |a, b, c| fma(a, b, c).to_bits()), mask);
        }
        Op::Unary32(..)
        | Op::Unary64(..)
        | Op::Count64(..)
        | Op::FloatUnary32(..)
        | Op::FloatUnary64(..) => unary(warp, p, op, mask),
        Op::Set(compare, kind, d, a, b) => {
            let value = set(warp, p, compare, kind, [a, b]);
            warp.put_predicate(d, value, mask);
        }
        Op::Convert(kind, d, a) => convert(warp, p, kind, d, a, mask),
        _ => return moves(warp, p, op, mask),
    }
    true
}

/// Makes the instructions of integers for one width: registers, their types with and without sign,
/// and those of products.
macro_rules! integers {
    ($name:ident, $get:ident, $put:ident, $bits:literal,
        [$plain:ty, $signed:ty, $wide:ty, $wide_signed:ty]) => {
        #[inline(always)]
        fn $name(warp: &mut Warp, p: &Program, op: Int, [d, a, b]: [Reg; 3], mask: u32) {
            let (a, b) = (warp.$get(p, a), warp.$get(p, b));
            let signed = |f: fn($signed, $signed) -> $signed| {
                pairs(a, b, |a, b| f(a as $signed, b as $signed) as $plain)
            };
            let value = match op {
                Int::Add => pairs(a, b, <$plain>::wrapping_add),
                Int::Sub => pairs(a, b, <$plain>::wrapping_sub),
                Int::Mul => pairs(a, b, <$plain>::wrapping_mul),
                Int::MulHigh => {
                    pairs(a, b, |a, b| ((<$wide>::from(a) * <$wide>::from(b)) >> $bits) as $plain)
                }
                Int::MulHighSigned => signed(|a, b| {
                    ((<$wide_signed>::from(a) * <$wide_signed>::from(b)) >> $bits) as $signed
                }),
                // PTX leaves a division by zero open; GPUs give all ones.
                Int::Div => pairs(a, b, |a, b| a.checked_div(b).unwrap_or(<$plain>::MAX)),
                Int::Rem => pairs(a, b, |a, b| a.checked_rem(b).unwrap_or(<$plain>::MAX)),
                Int::DivSigned => signed(|a, b| if b == 0 { -1 } else { a.wrapping_div(b) }),
                Int::RemSigned => signed(|a, b| if b == 0 { -1 } else { a.wrapping_rem(b) }),
                Int::Min => pairs(a, b, |a, b| a.min(b)),
                Int::Max => pairs(a, b, |a, b| a.max(b)),
                Int::MinSigned => pairs(a, b, |a, b| (a as $signed).min(b as $signed) as $plain),
                Int::MaxSigned => pairs(a, b, |a, b| (a as $signed).max(b as $signed) as $plain),
                Int::And => pairs(a, b, |a, b| a & b),
                Int::Or => pairs(a, b, |a, b| a | b),
                Int::Xor => pairs(a, b, |a, b| a ^ b),
            };
            warp.$put(d, &value, mask);
        }
    };
}
integers!(int32, word, put_word, 32, [u32, i32, u64, i64]);
integers!(int64, double, put_double, 64, [u64, i64, u128, i128]);

/// Sums and products of 32 bits with a carry. After a difference the flag is the carry of
/// `a + !b + 1`, so its absence is the borrow.
fn carry(
    warp: &mut Warp,
    p: &Program,
    (op, reads, writes): (Carry, bool, bool),
    [d, a, b, c]: [Reg; 4],
    mask: u32,
) {
    let (a, b, c) = (warp.word(p, a), warp.word(p, b), warp.word(p, c));
    let (mut value, mut carried) = ([0; 32], 0);
    for lane in 0..32 {
        let flag = u64::from(reads && warp.carry >> lane & 1 != 0);
        let [a, b, c] = [a[lane], b[lane], c[lane]].map(u64::from);
        let sum = match op {
            Carry::Add => a + b + flag,
            Carry::Sub => a + (!b & 0xffff_ffff) + if reads { flag } else { 1 },
            Carry::MadLow => ((a * b) & 0xffff_ffff) + c + flag,
            Carry::MadHigh => ((a * b) >> 32) + c + flag,
        };
        value[lane] = sum as u32;
        carried |= ((sum >> 32) as u32 & 1) << lane;
    }
    if writes {
        warp.carry = warp.carry & !mask | carried & mask;
    }
    warp.put_word(d, &value, mask);
}

#[inline(always)]
fn float32(warp: &mut Warp, p: &Program, op: Float, [d, a, b]: [Reg; 3], mask: u32) {
    let (a, b) = (warp.floats(p, a), warp.floats(p, b));
    let value = match op {
        Float::Add => pairs(a, b, |a, b| float::bits(a + b)),
        Float::Sub => pairs(a, b, |a, b| float::bits(a - b)),
        Float::Mul => pairs(a, b, |a, b| float::bits(a * b)),
        Float::Div => pairs(a, b, |a, b| float::bits(a / b)),
        Float::Min => pairs(a, b, float::min),
        Float::Max => pairs(a, b, float::max),
        Float::AddToZero => pairs(a, b, |a, b| float::bits(float::add_to_zero(a, b))),
    };
    warp.put_word(d, &value, mask);
}

#[inline(always)]
fn float64(warp: &mut Warp, p: &Program, op: Float, [d, a, b]: [Reg; 3], mask: u32) {
    let (a, b) = (warp.double(p, a), warp.double(p, b));
    let both = |f: fn(f64, f64) -> u64| pairs(a, b, |a, b| f(f64::from_bits(a), f64::from_bits(b)));
    let value = match op {
        Float::Add | Float::AddToZero => both(|a, b| (a + b).to_bits()),
        Float::Sub => both(|a, b| (a - b).to_bits()),
        Float::Mul => both(|a, b| (a * b).to_bits()),
        Float::Div => both(|a, b| (a / b).to_bits()),
        Float::Min => both(float::min64),
        Float::Max => both(float::max64),
    };
    warp.put_double(d, &value, mask);
}

#[inline(always)]
fn unary(warp: &mut Warp, p: &Program, op: &Op, mask: u32) {
    match *op {
        Op::Unary32(op, d, a) => {
            let a = warp.word(p, a);
            let value = match op {
                Unary::Not => each(a, |a| !a),
                Unary::NotHalf => each(a, |a| !a & 0xffff),
                Unary::NegHalf => each(a, |a| a.wrapping_neg() & 0xffff),
                Unary::Neg => each(a, u32::wrapping_neg),
                Unary::Abs => each(a, |a| (a as i32).wrapping_abs() as u32),
                Unary::Popc => each(a, u32::count_ones),
                Unary::Clz => each(a, u32::leading_zeros),
                Unary::Brev => each(a, u32::reverse_bits),
                Unary::LeadingShift => {
                    each(a, |a| if a == 0 { u32::MAX } else { a.leading_zeros() })
                }
            };
            warp.put_word(d, &value, mask);
        }
        Op::Unary64(op, d, a) => {
            let a = warp.double(p, a);
            let value = match op {
                Unary::Not => each(a, |a| !a),
                Unary::Abs => each(a, |a| (a as i64).wrapping_abs() as u64),
                _ => each(a, u64::wrapping_neg),
            };
            warp.put_double(d, &value, mask);
        }
        Op::Count64(op, d, a) => {
            let a = warp.double(p, a);
            let value = match op {
                Unary::Popc => each(a, u64::count_ones),
                _ => each(a, u64::leading_zeros),
            };
            warp.put_word(d, &value, mask);
        }
        Op::FloatUnary32(op, d, a) => {
            let a = warp.floats(p, a);
            let value = match op {
                FloatUnary::Neg => each(a, |a| float::bits(-a)),
                FloatUnary::Abs => each(a, |a| float::bits(a.abs())),
                FloatUnary::Sqrt => each(a, |a| float::bits(a.sqrt())),
                FloatUnary::Reciprocal => each(a, |a| float::bits(1.0 / a)),
                FloatUnary::Exp2 => each(a, float::exp2),
            };
            warp.put_word(d, &value, mask);
        }
        Op::FloatUnary64(op, d, a) => {
            let a = warp.doubles(p, a);
            let value = match op {
                FloatUnary::Neg => each(a, |a| -a),
                FloatUnary::Abs => each(a, f64::abs),
                FloatUnary::Sqrt => each(a, f64::sqrt),
                FloatUnary::Exp2 => each(a, f64::exp2),
                FloatUnary::Reciprocal => each(a, |a| 1.0 / a),
            };
            warp.put_double(d, &each(&value, f64::to_bits), mask);
        }
        _ => {}
    }
}

#[inline(always)]
fn compare<T: Copy + PartialOrd>(compare: Compare, a: &[T; 32], b: &[T; 32]) -> u32 {
    let unordered = |a: T, b: T| a.partial_cmp(&b).is_none();
    match compare {
        Compare::Eq => mask_of(a, b, |a, b| a == b),
        Compare::Ne => mask_of(a, b, |a, b| a != b && !unordered(a, b)),
        Compare::Lt => mask_of(a, b, |a, b| a < b),
        Compare::Le => mask_of(a, b, |a, b| a <= b),
        Compare::Gt => mask_of(a, b, |a, b| a > b),
        Compare::Ge => mask_of(a, b, |a, b| a >= b),
        Compare::Equ => mask_of(a, b, |a, b| a == b || unordered(a, b)),
        Compare::Neu => mask_of(a, b, |a, b| a != b),
        Compare::Ltu => mask_of(a, b, |a, b| a < b || unordered(a, b)),
        Compare::Leu => mask_of(a, b, |a, b| a <= b || unordered(a, b)),
        Compare::Gtu => mask_of(a, b, |a, b| a > b || unordered(a, b)),
        Compare::Geu => mask_of(a, b, |a, b| a >= b || unordered(a, b)),
        Compare::Num => mask_of(a, b, |a, b| !unordered(a, b)),
        Compare::Nan => mask_of(a, b, unordered),
    }
}

#[inline(always)]
fn set(warp: &Warp, p: &Program, how: Compare, kind: Compared, [a, b]: [Reg; 2]) -> u32 {
    /// Compares values of some kind in registers of a file.
    macro_rules! compared {
        ($get:ident, $of:expr) => {
            compare(how, &each(warp.$get(p, a), $of), &each(warp.$get(p, b), $of))
        };
    }
    match kind {
        Compared::U32 => compare(how, warp.word(p, a), warp.word(p, b)),
        Compared::S32 => compared!(word, |a| a as i32),
        Compared::S16 => compared!(word, |a| a as i16),
        Compared::F32 => compare(how, warp.floats(p, a), warp.floats(p, b)),
        Compared::U64 => compare(how, warp.double(p, a), warp.double(p, b)),
        Compared::S64 => compared!(double, |a| a as i64),
        Compared::F64 => compare(how, warp.doubles(p, a), warp.doubles(p, b)),
    }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn convert(warp: &mut Warp, p: &Program, kind: Convert, d: Reg, a: Reg, mask: u32) {
    let words: Words = match kind {
        Convert::U64U32 => each(warp.double(p, a), |a| a as u32),
        Convert::U64U16 => each(warp.double(p, a), |a| a as u32 & 0xffff),
        Convert::U32U16 => each(warp.word(p, a), |a| a & 0xffff),
        Convert::S32S8 => each(warp.word(p, a), |a| i32::from(a as i8) as u32),
        Convert::F16F32 => {
            let a = each(warp.word(p, a), |a| a as u16);
            let mut value = [0; 32];
            for at in (0..32).step_by(8) {
                let wide = float::widen(&a[at..]);
                for (i, wide) in wide.into_iter().enumerate() {
                    value[at + i] = float::bits(wide);
                }
            }
            value
        }
        Convert::F32F16 => each(&narrowed(warp.floats(p, a)), u32::from),
        Convert::F32Tf32 => each(warp.floats(p, a), float::tf32),
        Convert::F64F32 => each(warp.double(p, a), |a| float::bits(f64::from_bits(a) as f32)),
        Convert::F32Sat => {
            each(warp.floats(p, a), |a| if a > 0.0 { a.min(1.0).to_bits() } else { 0 })
        }
        Convert::F32Integral(round) => {
            each(warp.floats(p, a), |a| float::bits(integral(a.into(), round) as f32))
        }
        Convert::S32F32 => each(warp.word(p, a), |a| (a as i32 as f32).to_bits()),
        Convert::U32F32 => each(warp.word(p, a), |a| (a as f32).to_bits()),
        Convert::U16F32 => each(warp.word(p, a), |a| f32::from(a as u16).to_bits()),
        // A conversion to integers saturates, and a NaN is 0.
        Convert::F32S32(round) => {
            each(warp.floats(p, a), |a| integral(a.into(), round) as i32 as u32)
        }
        Convert::F32U32(round) => each(warp.floats(p, a), |a| integral(a.into(), round) as u32),
        Convert::F64S32(round) => {
            each(warp.double(p, a), |a| integral(f64::from_bits(a), round) as i32 as u32)
        }
        _ => return convert_to_double(warp, p, kind, d, a, mask),
    };
    warp.put_word(d, &words, mask);
}

#[inline(always)]
fn convert_to_double(warp: &mut Warp, p: &Program, kind: Convert, d: Reg, a: Reg, mask: u32) {
    let value: Doubles = match kind {
        Convert::S32S64 => each(warp.word(p, a), |a| i64::from(a as i32) as u64),
        Convert::LowS64 => each(warp.double(p, a), |a| i64::from(a as i32) as u64),
        Convert::U32U64 => each(warp.word(p, a), u64::from),
        Convert::U16U64 => each(warp.word(p, a), |a| u64::from(a as u16)),
        Convert::F32F64 => each(warp.floats(p, a), |a| f64::from(a).to_bits()),
        Convert::S32F64 => each(warp.word(p, a), |a| f64::from(a as i32).to_bits()),
        Convert::U32F64 => each(warp.word(p, a), |a| f64::from(a).to_bits()),
        Convert::S64F64 => each(warp.double(p, a), |a| (a as i64 as f64).to_bits()),
        Convert::U64F64 => each(warp.double(p, a), |a| (a as f64).to_bits()),
        Convert::F64Integral(round) => {
            each(warp.double(p, a), |a| integral(f64::from_bits(a), round).to_bits())
        }
        Convert::F64S64(round) => {
            each(warp.double(p, a), |a| integral(f64::from_bits(a), round) as i64 as u64)
        }
        _ => return,
    };
    warp.put_double(d, &value, mask);
}

#[inline(always)]
fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
        Round::Zero => value.trunc(),
    }
}

#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn narrowed(floats: &[f32; 32]) -> [u16; 32] {
    let mut value = [0; 32];
    for at in (0..32).step_by(8) {
        value[at..at + 8].copy_from_slice(&float::narrow(&floats[at..]));
    }
    value
}

#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn moves(warp: &mut Warp, p: &Program, op: &Op, mask: u32) -> bool {
    match *op {
        Op::Select32(d, a, b, c) => {
            let (a, b, c) = (warp.word(p, a), warp.word(p, b), warp.predicate(c));
            warp.put_word(d, &select(a, b, c), mask);
        }
        Op::Select64(d, a, b, c) => {
            let (a, b, c) = (warp.double(p, a), warp.double(p, b), warp.predicate(c));
            warp.put_double(d, &select(a, b, c), mask);
        }
        Op::Move32(d, a) => {
            let value = *warp.word(p, a);
            warp.put_word(d, &value, mask);
        }
        Op::Move64(d, a) => {
            let value = *warp.double(p, a);
            warp.put_double(d, &value, mask);
        }
        Op::MovePredicate(d, a) => warp.put_predicate(d, warp.predicate(a), mask),
        Op::Predicate(op, d, a, b) => {
            let (a, b) = (warp.predicate(a), warp.predicate(b));
            let value = match op {
                Int::And => a & b,
                Int::Or => a | b,
                _ => a ^ b,
            };
            warp.put_predicate(d, value, mask);
        }
        Op::NotPredicate(d, a) => warp.put_predicate(d, !warp.predicate(a), mask),
        _ => return bits(warp, p, op, mask),
    }
    true
}

/// Parts of registers, put together and taken apart.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn bits(warp: &mut Warp, p: &Program, op: &Op, mask: u32) -> bool {
    match *op {
        Op::Pack32(d, low, high) => {
            let (low, high) = (warp.word(p, low), warp.word(p, high));
            warp.put_word(d, &pairs(low, high, |l, h| l & 0xffff | h << 16), mask);
        }
        Op::Unpack32(low, high, a) => {
            let a = &{ *warp.word(p, a) };
            warp.put_word(low, &each(a, |a| a & 0xffff), mask);
            warp.put_word(high, &each(a, |a| a >> 16), mask);
        }
        Op::Pack64(d, low, high) => {
            let (low, high) = (warp.word(p, low), warp.word(p, high));
            let value = pairs(low, high, |l, h| u64::from(l) | u64::from(h) << 32);
            warp.put_double(d, &value, mask);
        }
        Op::Unpack64(low, high, a) => {
            let a = &{ *warp.double(p, a) };
            warp.put_word(low, &each(a, |a| a as u32), mask);
            warp.put_word(high, &each(a, |a| (a >> 32) as u32), mask);
        }
        Op::PackHalves(d, high, low) => {
            let (high, low) = (warp.floats(p, high), warp.floats(p, low));
            let (high, low) = (narrowed(high), narrowed(low));
            let value = pairs(&low, &high, |l, h| u32::from(l) | u32::from(h) << 16);
            warp.put_word(d, &value, mask);
        }
        Op::InsertBits32([d, a, b, at, length]) => {
            let (a, b) = (warp.word(p, a), warp.word(p, b));
            let (at, length) = (warp.word(p, at), warp.word(p, length));
            let mut value = [0; 32];
            for l in 0..32 {
                value[l] = insert(a[l].into(), b[l].into(), at[l], length[l], 32) as u32;
            }
            warp.put_word(d, &value, mask);
        }
        Op::InsertBits64([d, a, b, at, length]) => {
            let (a, b) = (warp.double(p, a), warp.double(p, b));
            let (at, length) = (warp.word(p, at), warp.word(p, length));
            let mut value = [0; 32];
            for l in 0..32 {
                value[l] = insert(a[l], b[l], at[l], length[l], 64);
            }
            warp.put_double(d, &value, mask);
        }
        Op::Permute([d, a, b, c]) => {
            let (a, b, c) = (warp.word(p, a), warp.word(p, b), warp.word(p, c));
            warp.put_word(d, &triples(a, b, c, permute), mask);
        }
        Op::FunnelLeftWrap([d, a, b, c]) => {
            let (a, b, c) = (warp.word(p, a), warp.word(p, b), warp.word(p, c));
            let shift =
                |a, b, c: u32| ((u64::from(a) | u64::from(b) << 32) << (c & 31) >> 32) as u32;
            warp.put_word(d, &triples(a, b, c, shift), mask);
        }
        _ => return false,
    }
    true
}

/// `bfi`: the low bits of `a` at a place of `b`.
fn insert(a: u64, b: u64, at: u32, length: u32, width: u32) -> u64 {
    let (at, length) = ((at & 0xff).min(width), (length & 0xff).min(width));
    let length = length.min(width - at);
    if length == 0 {
        return b;
    }
    let mask = (u64::MAX >> (64 - length)) << at;
    b & !mask | a << at & mask
}

/// `prmt`, whose selector takes bytes, or their signs.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let all = u64::from(a) | u64::from(b) << 32;
    (0..4).fold(0, |value, i| {
        let which = selector >> (4 * i) & 0xf;
        let byte = (all >> (8 * (which & 7))) as u8;
        let byte = if which & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        value | u32::from(byte) << (8 * i)
    })
}
