//! Instructions that need only registers.

use std::cmp::Ordering;

use super::float;
use super::forms::{Bits, Forms, Lane};
use super::{MAX_REGISTERS, Reg, Registers, Words};

/// An instruction with the carry flag: its opcode, its operands, the carry that it adds (`None`:
/// the flag), whether it writes the flag, and its sum without the carry. A subtraction is `a + !b +
/// 1`, so a cleared flag means a borrow.
type Carry = (&'static str, &'static str, Option<u64>, bool, fn([u64; 3]) -> u64);

const CARRIES: [Carry; 10] = [
    ("add.cc.u32", "www", Some(0), true, add),
    ("addc.u32", "www", None, false, add),
    ("addc.cc.u32", "www", None, true, add),
    ("sub.cc.u32", "www", Some(1), true, subtract),
    ("subc.u32", "www", None, false, subtract),
    ("subc.cc.u32", "www", None, true, subtract),
    ("mad.lo.cc.u32", "wwww", Some(0), true, |[a, b, c]| low(a * b) + c),
    ("madc.lo.cc.u32", "wwww", None, true, |[a, b, c]| low(a * b) + c),
    ("madc.hi.u32", "wwww", None, false, |[a, b, c]| ((a * b) >> 32) + c),
    ("madc.hi.cc.u32", "wwww", None, true, |[a, b, c]| ((a * b) >> 32) + c),
];

fn low(value: u64) -> u64 {
    value & 0xffff_ffff
}

fn add([a, b, _]: [u64; 3]) -> u64 {
    a + b
}

fn subtract([a, b, _]: [u64; 3]) -> u64 {
    a + low(!b)
}

/// Adds the integer instructions of one width, whose bits replace `#` in opcodes. The types are
/// unsigned and signed values, and unsigned and signed results of widening multiplications.
macro_rules! integers {
    ($forms:ident, $bits:literal, [$plain:ty, $signed:ty, $wide:ty, $wide_signed:ty]) => {
        let of = |opcodes: &str| opcodes.replace('#', stringify!($bits));
        $forms.two(&of("add.s# add.u#"), <$plain>::wrapping_add);
        $forms.two(&of("sub.s# sub.u#"), <$plain>::wrapping_sub);
        $forms.two(&of("mul.lo.s# mul.lo.u#"), <$plain>::wrapping_mul);
        $forms.three(&of("mad.lo.s# mad.lo.u#"), |a: $plain, b: $plain, c: $plain| {
            a.wrapping_mul(b).wrapping_add(c)
        });
        $forms.two(&of("mul.hi.u#"), |a: $plain, b: $plain| {
            (<$wide>::from(a) * <$wide>::from(b) >> $bits) as $plain
        });
        $forms.two(&of("mul.hi.s#"), |a: $signed, b: $signed| {
            (<$wide_signed>::from(a) * <$wide_signed>::from(b) >> $bits) as $signed
        });
        // Division by zero is unspecified in PTX; GPUs give all ones.
        let ones = <$plain>::MAX;
        $forms.two(&of("div.u#"), move |a: $plain, b: $plain| a.checked_div(b).unwrap_or(ones));
        $forms.two(&of("rem.u#"), move |a: $plain, b: $plain| a.checked_rem(b).unwrap_or(ones));
        $forms.two(&of("div.s#"), |a: $signed, b: $signed| match b {
            0 => -1,
            b => a.wrapping_div(b),
        });
        $forms.two(&of("rem.s#"), |a: $signed, b: $signed| match b {
            0 => -1,
            b => a.wrapping_rem(b),
        });
        $forms.two(&of("min.s#"), |a: $signed, b: $signed| a.min(b));
        $forms.two(&of("max.s#"), |a: $signed, b: $signed| a.max(b));
        $forms.two(&of("min.u#"), |a: $plain, b: $plain| a.min(b));
        $forms.two(&of("max.u#"), |a: $plain, b: $plain| a.max(b));
        $forms.two(&of("and.b#"), |a: $plain, b: $plain| a & b);
        $forms.two(&of("or.b#"), |a: $plain, b: $plain| a | b);
        $forms.two(&of("xor.b#"), |a: $plain, b: $plain| a ^ b);
        $forms.one(&of("not.b#"), |a: $plain| !a);
        $forms.one(&of("neg.s#"), <$plain>::wrapping_neg);
        $forms.one(&of("abs.s#"), <$signed>::wrapping_abs);
        $forms.one(&of("popc.b#"), <$plain>::count_ones);
        $forms.one(&of("clz.b#"), <$plain>::leading_zeros);
        $forms.two(&of("shl.b#"), |a: $plain, b: u32| if b < $bits { a << b } else { 0 });
        $forms.two(&of("shr.u# shr.b#"), |a: $plain, b: u32| if b < $bits { a >> b } else { 0 });
        $forms.two(&of("shr.s#"), |a: $signed, b: u32| a >> b.min($bits - 1));
        $forms.four(&of("bfi.b#"), |a: $plain, b: $plain, at: u32, length: u32| {
            insert(a.into(), b.into(), at, length, $bits) as $plain
        });
        $forms.one(&of("mov.u# mov.s# mov.b# mov.f#"), |a: $plain| a);
        let select = of("selp.b# selp.u# selp.s# selp.f#");
        let class = <$plain>::CLASS;
        $forms.add(&select, &format!("{class}{class}{class}p"), |registers, r, mask| {
            select_lanes::<$plain>(registers, r, mask);
        });
        $forms.comparisons::<$plain>(&of("u#"));
        $forms.comparisons::<$plain>(&of("b#"));
        $forms.comparisons::<$signed>(&of("s#"));
    };
}

/// Adds the floating-point instructions of one width.
macro_rules! floats {
    ($forms:ident, $bits:literal, $float:ty) => {
        let of = |opcodes: &str| opcodes.replace('#', stringify!($bits));
        $forms.two(&of("add.rn.f# add.f#"), |a: $float, b: $float| a + b);
        $forms.two(&of("sub.rn.f# sub.f#"), |a: $float, b: $float| a - b);
        $forms.two(&of("mul.rn.f# mul.f#"), |a: $float, b: $float| a * b);
        $forms.two(&of("div.rn.f#"), |a: $float, b: $float| a / b);
        $forms.three(&of("fma.rn.f#"), <$float>::mul_add);
        $forms.one(&of("neg.f#"), |a: $float| -a);
        $forms.one(&of("abs.f#"), <$float>::abs);
        $forms.one(&of("sqrt.rn.f#"), <$float>::sqrt);
        $forms.one(&of("rcp.rn.f#"), |a: $float| 1.0 / a);
        $forms.comparisons::<$float>(&of("f#"));
        $forms.unordered::<$float>(&of("f#"));
    };
}

impl Forms {
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn fill(&mut self) {
        integers!(self, 32, [u32, i32, u64, i64]);
        integers!(self, 64, [u64, i64, u128, i128]);
        self.words();
        self.halves();
        floats!(self, 32, f32);
        floats!(self, 64, f64);
        self.two("min.f32", float::min);
        self.two("max.f32", float::max);
        self.two("min.f64", float::min64);
        self.two("max.f64", float::max64);
        self.two("add.rz.f32", float::add_to_zero);
        self.three("fma.rm.f32", float::fma_down);
        self.one("ex2.approx.ftz.f32", float::exp2);
        self.conversions();
        self.predicates();
        self.parts();
    }

    /// Instructions that exist only for 32-bit integers.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn words(&mut self) {
        self.one("brev.b32", u32::reverse_bits);
        self.one("bfind.shiftamt.u32", |a: u32| if a == 0 { u32::MAX } else { a.leading_zeros() });
        self.two("mul.wide.s32", |a: i32, b: i32| i64::from(a) * i64::from(b));
        self.two("mul.wide.u32", |a: u32, b: u32| u64::from(a) * u64::from(b));
        self.three("prmt.b32", permute);
        self.three("shf.l.wrap.b32", |a: u32, b: u32, c: u32| {
            ((u64::from(a) | u64::from(b) << 32) << (c & 31) >> 32) as u32
        });
        for (opcode, operands, start, writes, sum) in CARRIES {
            self.add(opcode, operands, move |registers, r, mask| {
                let last = r[operands.len() - 1];
                let [a, b, c] = [r[1], r[2], last].map(|reg| *registers.word(reg));
                let (mut value, mut carried) = ([0; 32], 0);
                for lane in 0..32 {
                    let flag = start.unwrap_or(u64::from(registers.carry >> lane & 1));
                    let sum = sum([a[lane], b[lane], c[lane]].map(u64::from)) + flag;
                    value[lane] = sum as u32;
                    carried |= ((sum >> 32) as u32 & 1) << lane;
                }
                if writes {
                    registers.carry = registers.carry & !mask | carried & mask;
                }
                registers.put_word(r[0], &value, mask);
            });
        }
    }

    /// 16-bit instructions; values are zero-extended in their registers.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn halves(&mut self) {
        self.two("and.b16", |a: u16, b: u16| a & b);
        self.two("or.b16", |a: u16, b: u16| a | b);
        self.two("xor.b16", |a: u16, b: u16| a ^ b);
        self.one("not.b16", |a: u16| !a);
        self.one("neg.s16", u16::wrapping_neg);
        self.two("mul.wide.u16", |a: u16, b: u16| u32::from(a) * u32::from(b));
        self.one("mov.u16 mov.b16 mov.s16", |a: u16| a);
        self.add("selp.b16 selp.u16 selp.s16", "whhp", |registers, r, mask| {
            select_lanes::<u32>(registers, r, mask);
        });
        self.comparisons::<u16>("u16");
        self.comparisons::<u16>("b16");
        self.comparisons::<i16>("s16");
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn comparisons<T: Lane + PartialOrd + 'static>(&mut self, kind: &str) {
        self.test(&format!("setp.eq.{kind}"), |a: T, b: T| a == b);
        self.test(&format!("setp.ne.{kind}"), |a: T, b: T| {
            a.partial_cmp(&b).is_some_and(Ordering::is_ne)
        });
        self.test(&format!("setp.lt.{kind}"), |a: T, b: T| a < b);
        self.test(&format!("setp.le.{kind}"), |a: T, b: T| a <= b);
        self.test(&format!("setp.gt.{kind}"), |a: T, b: T| a > b);
        self.test(&format!("setp.ge.{kind}"), |a: T, b: T| a >= b);
    }

    /// Comparisons that are also true for NaN, and tests for NaN.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    #[allow(clippy::neg_cmp_op_on_partial_ord)]
    fn unordered<T: Lane + PartialOrd + 'static>(&mut self, kind: &str) {
        self.test(&format!("setp.equ.{kind}"), |a: T, b: T| {
            a.partial_cmp(&b).is_none_or(Ordering::is_eq)
        });
        self.test(&format!("setp.neu.{kind}"), |a: T, b: T| a != b);
        self.test(&format!("setp.ltu.{kind}"), |a: T, b: T| !(a >= b));
        self.test(&format!("setp.leu.{kind}"), |a: T, b: T| !(a > b));
        self.test(&format!("setp.gtu.{kind}"), |a: T, b: T| !(a <= b));
        self.test(&format!("setp.geu.{kind}"), |a: T, b: T| !(a < b));
        self.test(&format!("setp.num.{kind}"), |a: T, b: T| a.partial_cmp(&b).is_some());
        self.test(&format!("setp.nan.{kind}"), |a: T, b: T| a.partial_cmp(&b).is_none());
    }

    /// Conversions. Conversions to integers saturate, and convert NaN to 0. `cvt.s64.s32` from a
    /// 64-bit source register uses the low half, and is stored as `cvt.s64.low`.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn conversions(&mut self) {
        self.one("cvt.s64.s32", |a: i32| i64::from(a));
        self.one("cvt.s64.low", |a: u64| i64::from(a as i32));
        self.one("cvt.u64.u32", |a: u32| u64::from(a));
        self.one("cvt.u64.u16", |a: u16| u64::from(a));
        self.one("cvt.u32.u64", |a: u64| a as u32);
        self.one("cvt.u16.u64", |a: u64| a as u16);
        self.one("cvt.u32.u16", |a: u16| u32::from(a));
        self.one("cvt.u16.u32", |a: u32| a as u16);
        self.one("cvt.s32.s8", |a: u32| i32::from(a as i8));
        self.one("cvt.rna.tf32.f32", float::tf32);
        self.one("cvt.f64.f32", |a: f32| f64::from(a));
        self.one("cvt.rn.f32.f64", |a: f64| a as f32);
        self.one("cvt.sat.f32.f32", |a: f32| if a > 0.0 { a.min(1.0) } else { 0.0 });
        self.one("cvt.rpi.f32.f32", f32::ceil);
        self.one("cvt.rmi.f32.f32", f32::floor);
        self.one("cvt.rpi.f64.f64", f64::ceil);
        self.one("cvt.rn.f32.s32", |a: i32| a as f32);
        self.one("cvt.rn.f32.u32", |a: u32| a as f32);
        self.one("cvt.rn.f32.u16", |a: u16| f32::from(a));
        self.one("cvt.rzi.s32.f32", |a: f32| a as i32);
        self.one("cvt.rni.s32.f32", |a: f32| a.round_ties_even() as i32);
        self.one("cvt.rzi.u32.f32", |a: f32| a as u32);
        self.one("cvt.rn.f64.s32", |a: i32| f64::from(a));
        self.one("cvt.rn.f64.u32", |a: u32| f64::from(a));
        self.one("cvt.rn.f64.s64", |a: i64| a as f64);
        self.one("cvt.rn.f64.u64", |a: u64| a as f64);
        self.one("cvt.rzi.s32.f64", |a: f64| a as i32);
        self.one("cvt.rni.s32.f64", |a: f64| a.round_ties_even() as i32);
        self.one("cvt.rzi.s64.f64", |a: f64| a as i64);
        self.add("cvt.rn.f16.f32", "ww", |registers, r, mask| {
            let halves = narrowed(registers.word(r[1]));
            registers.put_word(r[0], &halves.map(u32::from), mask);
        });
        self.add("cvt.f32.f16", "ww", |registers, r, mask| {
            let halves = registers.word(r[1]).map(|half| half as u16);
            let mut value = [0; 32];
            for at in (0..32).step_by(8) {
                value[at..at + 8].copy_from_slice(&float::widen(&halves[at..]).map(float::bits));
            }
            registers.put_word(r[0], &value, mask);
        });
        self.add("cvt.rn.f16x2.f32", "www", |registers, r, mask| {
            let [high, low] = [r[1], r[2]].map(|reg| narrowed(registers.word(reg)));
            let mut value = [0; 32];
            for lane in 0..32 {
                value[lane] = u32::from(low[lane]) | u32::from(high[lane]) << 16;
            }
            registers.put_word(r[0], &value, mask);
        });
    }

    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn predicates(&mut self) {
        self.add("mov.pred", "pp", |registers, r, mask| {
            registers.put_predicate(r[0], registers.predicate(r[1]), mask);
        });
        self.add("not.pred", "pp", |registers, r, mask| {
            registers.put_predicate(r[0], !registers.predicate(r[1]), mask);
        });
        self.add("and.pred", "ppp", |registers, r, mask| {
            let value = registers.predicate(r[1]) & registers.predicate(r[2]);
            registers.put_predicate(r[0], value, mask);
        });
        self.add("or.pred", "ppp", |registers, r, mask| {
            let value = registers.predicate(r[1]) | registers.predicate(r[2]);
            registers.put_predicate(r[0], value, mask);
        });
        self.add("xor.pred", "ppp", |registers, r, mask| {
            let value = registers.predicate(r[1]) ^ registers.predicate(r[2]);
            registers.put_predicate(r[0], value, mask);
        });
    }

    /// Packs and unpacks parts of registers.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    fn parts(&mut self) {
        self.add("mov.b32", "w{hh}", |registers, r, mask| {
            let (low, high) = (registers.word(r[1]), registers.word(r[2]));
            let mut value = [0; 32];
            for lane in 0..32 {
                value[lane] = low[lane] & 0xffff | high[lane] << 16;
            }
            registers.put_word(r[0], &value, mask);
        });
        self.add("mov.b32", "{ww}w", |registers, r, mask| {
            let a = *registers.word(r[2]);
            registers.put_word(r[0], &a.map(|a| a & 0xffff), mask);
            registers.put_word(r[1], &a.map(|a| a >> 16), mask);
        });
        self.add("mov.b64", "d{ww}", |registers, r, mask| {
            let (low, high) = (registers.word(r[1]), registers.word(r[2]));
            let mut value = [0; 32];
            for lane in 0..32 {
                value[lane] = u64::from(low[lane]) | u64::from(high[lane]) << 32;
            }
            registers.put_double(r[0], &value, mask);
        });
        self.add("mov.b64", "{ww}d", |registers, r, mask| {
            let a = *registers.double(r[2]);
            registers.put_word(r[0], &a.map(|a| a as u32), mask);
            registers.put_word(r[1], &a.map(|a| (a >> 32) as u32), mask);
        });
    }
}

/// Selects between two registers, per lane.
#[inline(always)]
fn select_lanes<T: Bits>(registers: &mut Registers, r: &[Reg; MAX_REGISTERS], mask: u32) {
    let (a, mut value) = (T::get(registers, r[1]), *T::get(registers, r[2]));
    let chosen = registers.predicate(r[3]);
    for lane in 0..32 {
        value[lane] = if chosen >> lane & 1 != 0 { a[lane] } else { value[lane] };
    }
    T::put(registers, r[0], &value, mask);
}

/// Converts floats to halves, rounded to nearest.
#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
fn narrowed(words: &Words) -> [u16; 32] {
    let floats = words.map(f32::from_bits);
    let mut value = [0; 32];
    for at in (0..32).step_by(8) {
        value[at..at + 8].copy_from_slice(&float::narrow(&floats[at..]));
    }
    value
}

/// `bfi`: inserts the low bits of `a` into `b`.
fn insert(a: u64, b: u64, at: u32, length: u32, width: u32) -> u64 {
    let (at, length) = ((at & 0xff).min(width), (length & 0xff).min(width));
    let length = length.min(width - at);
    if length == 0 {
        return b;
    }
    let mask = (u64::MAX >> (64 - length)) << at;
    b & !mask | a << at & mask
}

/// `prmt`, whose selector selects bytes or their replicated signs.
fn permute(a: u32, b: u32, selector: u32) -> u32 {
    let all = u64::from(a) | u64::from(b) << 32;
    (0..4).fold(0, |value, i| {
        let which = selector >> (4 * i) & 0xf;
        let byte = (all >> (8 * (which & 7))) as u8;
        let byte = if which & 8 == 0 { byte } else { (byte as i8 >> 7) as u8 };
        value | u32::from(byte) << (8 * i)
    })
}
