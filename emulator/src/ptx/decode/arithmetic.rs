//! Arithmetic, comparisons and conversions.

use super::super::parse::Operand;
use super::super::program::{
    Carry, Compare, Compared, Convert, Float, FloatUnary, Int, Op, Reg, Round, Shift, Unary,
};
use super::{Decoded, Decoder};

/// Forms of 32 and of 64 bits by opcode.
fn int(base: &str, form: &str) -> Option<(Int, bool)> {
    let (kind, is_mul) = match base {
        "mul" => (form.strip_prefix("lo.").or(form.strip_prefix("hi."))?, true),
        _ => (form, false),
    };
    let (signed, double) = match kind {
        "s32" => (true, false),
        "u32" => (false, false),
        "s64" => (true, true),
        "u64" => (false, true),
        "b32" | "b16" if matches!(base, "and" | "or" | "xor") => (false, false),
        "b64" if matches!(base, "and" | "or" | "xor") => (false, true),
        _ => return None,
    };
    let pick = |if_signed, if_not| if signed { if_signed } else { if_not };
    let op = match base {
        "add" => Int::Add,
        "sub" => Int::Sub,
        "mul" if is_mul && form.starts_with("lo.") => Int::Mul,
        "mul" => pick(Int::MulHighSigned, Int::MulHigh),
        "div" => pick(Int::DivSigned, Int::Div),
        "rem" => pick(Int::RemSigned, Int::Rem),
        "min" => pick(Int::MinSigned, Int::Min),
        "max" => pick(Int::MaxSigned, Int::Max),
        "and" if kind.starts_with('b') => Int::And,
        "or" if kind.starts_with('b') => Int::Or,
        "xor" if kind.starts_with('b') => Int::Xor,
        _ => return None,
    };
    Some((op, double))
}

fn float(base: &str, form: &str) -> Option<(Float, bool)> {
    Some(match (base, form) {
        ("add", "rn.f32" | "f32") => (Float::Add, false),
        ("sub", "rn.f32" | "f32") => (Float::Sub, false),
        ("mul", "rn.f32" | "f32") => (Float::Mul, false),
        ("div", "rn.f32") => (Float::Div, false),
        ("min", "f32") => (Float::Min, false),
        ("max", "f32") => (Float::Max, false),
        ("add", "rz.f32") => (Float::AddToZero, false),
        ("add", "rn.f64" | "f64") => (Float::Add, true),
        ("sub", "rn.f64" | "f64") => (Float::Sub, true),
        ("mul", "rn.f64" | "f64") => (Float::Mul, true),
        ("div", "rn.f64") => (Float::Div, true),
        ("min", "f64") => (Float::Min, true),
        ("max", "f64") => (Float::Max, true),
        _ => return None,
    })
}

fn unknown<T>() -> Decoded<T> {
    Err("the form is not known".into())
}

impl Decoder<'_> {
    pub(super) fn arithmetic(
        &mut self,
        base: &str,
        form: &str,
        operands: &[Operand],
    ) -> Decoded<Op> {
        match operands {
            [to, a] => self.unary(base, form, to, a),
            [to, a, b] => self.binary(base, form, to, a, b),
            [to, a, b, c] => self.ternary(base, form, [to, a, b, c]),
            [to, a, b, at, length] if base == "bfi" => match form {
                "b32" => Ok(Op::InsertBits32([
                    self.word(to)?,
                    self.word(a)?,
                    self.word(b)?,
                    self.word(at)?,
                    self.word(length)?,
                ])),
                "b64" => Ok(Op::InsertBits64([
                    self.double(to)?,
                    self.double(a)?,
                    self.double(b)?,
                    self.word(at)?,
                    self.word(length)?,
                ])),
                _ => unknown(),
            },
            _ => unknown(),
        }
    }

    fn unary(&mut self, base: &str, form: &str, to: &Operand, a: &Operand) -> Decoded<Op> {
        let words = |d: &mut Self, op| Ok(Op::Unary32(op, d.word(to)?, d.word(a)?));
        let doubles = |d: &mut Self, op| Ok(Op::Unary64(op, d.double(to)?, d.double(a)?));
        let single = |d: &mut Self, op| Ok(Op::FloatUnary32(op, d.word(to)?, d.word(a)?));
        let double = |d: &mut Self, op| Ok(Op::FloatUnary64(op, d.double(to)?, d.double(a)?));
        match (base, form) {
            ("not", "pred") => Ok(Op::NotPredicate(self.predicate(to)?, self.predicate(a)?)),
            ("not", "b16") => words(self, Unary::NotHalf),
            ("not", "b32") => words(self, Unary::Not),
            ("not", "b64") => doubles(self, Unary::Not),
            ("neg", "s16") => words(self, Unary::NegHalf),
            ("neg", "s32") => words(self, Unary::Neg),
            ("neg", "s64") => doubles(self, Unary::Neg),
            ("abs", "s32") => words(self, Unary::Abs),
            ("abs", "s64") => doubles(self, Unary::Abs),
            ("popc", "b32") => words(self, Unary::Popc),
            ("clz", "b32") => words(self, Unary::Clz),
            ("brev", "b32") => words(self, Unary::Brev),
            ("bfind", "shiftamt.u32") => words(self, Unary::LeadingShift),
            ("popc", "b64") => Ok(Op::Count64(Unary::Popc, self.word(to)?, self.double(a)?)),
            ("clz", "b64") => Ok(Op::Count64(Unary::Clz, self.word(to)?, self.double(a)?)),
            ("neg", "f32") => single(self, FloatUnary::Neg),
            ("abs", "f32") => single(self, FloatUnary::Abs),
            ("sqrt", "rn.f32") => single(self, FloatUnary::Sqrt),
            ("rcp", "rn.f32") => single(self, FloatUnary::Reciprocal),
            ("ex2", "approx.ftz.f32") => single(self, FloatUnary::Exp2),
            ("neg", "f64") => double(self, FloatUnary::Neg),
            ("abs", "f64") => double(self, FloatUnary::Abs),
            ("sqrt", "rn.f64") => double(self, FloatUnary::Sqrt),
            ("rcp", "rn.f64") => double(self, FloatUnary::Reciprocal),
            _ => unknown(),
        }
    }

    fn binary(
        &mut self,
        base: &str,
        form: &str,
        to: &Operand,
        a: &Operand,
        b: &Operand,
    ) -> Decoded<Op> {
        if let Some((op, is_double)) = int(base, form) {
            return Ok(if is_double {
                Op::Int64(op, self.double(to)?, self.double(a)?, self.double(b)?)
            } else {
                let bytes = if form == "b16" { 2 } else { 4 };
                Op::Int32(op, self.word(to)?, self.word_of(a, bytes)?, self.word_of(b, bytes)?)
            });
        }
        if let Some((op, is_double)) = float(base, form) {
            return Ok(if is_double {
                Op::Float64(op, self.double(to)?, self.double(a)?, self.double(b)?)
            } else {
                Op::Float32(op, self.word(to)?, self.word(a)?, self.word(b)?)
            });
        }
        let predicates = |d: &Self, op| {
            Ok(Op::Predicate(op, d.predicate(to)?, d.predicate(a)?, d.predicate(b)?))
        };
        let shift = match (base, form) {
            ("shl", "b32" | "b64") => Some(Shift::Left),
            ("shr", "u32" | "u64" | "b32" | "b64") => Some(Shift::Right),
            ("shr", "s32" | "s64") => Some(Shift::RightSigned),
            _ => None,
        };
        if let Some(shift) = shift {
            return Ok(if form.ends_with("64") {
                Op::Shift64(shift, self.double(to)?, self.double(a)?, self.word(b)?)
            } else {
                Op::Shift32(shift, self.word(to)?, self.word(a)?, self.word(b)?)
            });
        }
        match (base, form) {
            ("and", "pred") => predicates(self, Int::And),
            ("or", "pred") => predicates(self, Int::Or),
            ("xor", "pred") => predicates(self, Int::Xor),
            ("mul", "wide.s32") => {
                Ok(Op::Wide(true, self.double(to)?, self.word(a)?, self.word(b)?))
            }
            ("mul", "wide.u32") => {
                Ok(Op::Wide(false, self.double(to)?, self.word(a)?, self.word(b)?))
            }
            // Registers hold 16 bits with zeros above.
            ("mul", "wide.u16") => {
                Ok(Op::Int32(Int::Mul, self.word(to)?, self.word_of(a, 2)?, self.word_of(b, 2)?))
            }
            ("add", "cc.u32") => self.carry(Carry::Add, false, true, [to, a, b, b]),
            ("addc", "u32") => self.carry(Carry::Add, true, false, [to, a, b, b]),
            ("addc", "cc.u32") => self.carry(Carry::Add, true, true, [to, a, b, b]),
            ("sub", "cc.u32") => self.carry(Carry::Sub, false, true, [to, a, b, b]),
            ("subc", "u32") => self.carry(Carry::Sub, true, false, [to, a, b, b]),
            ("subc", "cc.u32") => self.carry(Carry::Sub, true, true, [to, a, b, b]),
            _ => unknown(),
        }
    }

    fn carry(&mut self, op: Carry, reads: bool, writes: bool, of: [&Operand; 4]) -> Decoded<Op> {
        let list = self.words(of)?;
        Ok(Op::Carry(op, reads, writes, list))
    }

    fn words(&mut self, of: [&Operand; 4]) -> Decoded<[Reg; 4]> {
        Ok([self.word(of[0])?, self.word(of[1])?, self.word(of[2])?, self.word(of[3])?])
    }

    fn doubles(&mut self, of: [&Operand; 4]) -> Decoded<[Reg; 4]> {
        Ok([self.double(of[0])?, self.double(of[1])?, self.double(of[2])?, self.double(of[3])?])
    }

    fn ternary(&mut self, base: &str, form: &str, of: [&Operand; 4]) -> Decoded<Op> {
        match (base, form) {
            ("fma", "rn.f32") => Ok(Op::Fma32(Round::Nearest, self.words(of)?)),
            ("fma", "rm.f32") => Ok(Op::Fma32(Round::Down, self.words(of)?)),
            ("fma", "rn.f64") => Ok(Op::Fma64(self.doubles(of)?)),
            ("mad", "lo.s32" | "lo.u32") => {
                let [d, a, b, c] = self.words(of)?;
                Ok(Op::Mad32(d, a, b, c))
            }
            ("mad", "lo.s64" | "lo.u64") => {
                let [d, a, b, c] = self.doubles(of)?;
                Ok(Op::Mad64(d, a, b, c))
            }
            ("mad", "lo.cc.u32") => self.carry(Carry::MadLow, false, true, of),
            ("madc", "lo.cc.u32") => self.carry(Carry::MadLow, true, true, of),
            ("madc", "hi.u32") => self.carry(Carry::MadHigh, true, false, of),
            ("madc", "hi.cc.u32") => self.carry(Carry::MadHigh, true, true, of),
            ("prmt", "b32") => Ok(Op::Permute(self.words(of)?)),
            ("shf", "l.wrap.b32") => Ok(Op::FunnelLeftWrap(self.words(of)?)),
            ("selp", "b32" | "u32" | "s32" | "f32") => {
                let (a, b) = (self.word(of[1])?, self.word(of[2])?);
                Ok(Op::Select32(self.word(of[0])?, a, b, self.predicate(of[3])?))
            }
            ("selp", "b16" | "u16" | "s16") => {
                let (a, b) = (self.word_of(of[1], 2)?, self.word_of(of[2], 2)?);
                Ok(Op::Select32(self.word(of[0])?, a, b, self.predicate(of[3])?))
            }
            ("selp", "b64" | "u64" | "s64" | "f64") => {
                let (a, b) = (self.double(of[1])?, self.double(of[2])?);
                Ok(Op::Select64(self.double(of[0])?, a, b, self.predicate(of[3])?))
            }
            _ => unknown(),
        }
    }

    pub(super) fn setp(&mut self, form: &str, operands: &[Operand]) -> Decoded<Op> {
        let ([to, a, b], Some((compare, kind))) = (operands, form.split_once('.')) else {
            return unknown();
        };
        let compare = match compare {
            "eq" => Compare::Eq,
            "ne" => Compare::Ne,
            "lt" => Compare::Lt,
            "le" => Compare::Le,
            "gt" => Compare::Gt,
            "ge" => Compare::Ge,
            "equ" => Compare::Equ,
            "neu" => Compare::Neu,
            "ltu" => Compare::Ltu,
            "leu" => Compare::Leu,
            "gtu" => Compare::Gtu,
            "geu" => Compare::Geu,
            "num" => Compare::Num,
            "nan" => Compare::Nan,
            _ => return unknown(),
        };
        let unordered = compare as u8 >= Compare::Equ as u8;
        let (kind, bytes) = match kind {
            "f32" => (Compared::F32, 4),
            "f64" => (Compared::F64, 8),
            _ if unordered => return unknown(),
            "s32" => (Compared::S32, 4),
            "u32" | "b32" => (Compared::U32, 4),
            "s64" => (Compared::S64, 8),
            "u64" | "b64" => (Compared::U64, 8),
            "s16" => (Compared::S16, 2),
            "u16" | "b16" => (Compared::U32, 2),
            _ => return unknown(),
        };
        let to = self.predicate(to)?;
        let [a, b] = if bytes == 8 {
            [self.double(a)?, self.double(b)?]
        } else {
            [self.word_of(a, bytes)?, self.word_of(b, bytes)?]
        };
        Ok(Op::Set(compare, kind, to, a, b))
    }

    pub(super) fn cvt(&mut self, form: &str, operands: &[Operand]) -> Decoded<Op> {
        if let ("rn.f16x2.f32", [to, high, low]) = (form, operands) {
            return Ok(Op::PackHalves(self.word(to)?, self.word(high)?, self.word(low)?));
        }
        let [to, from] = operands else { return unknown() };
        let convert = match form {
            "s64.s32" if self.is_double(from) => Convert::LowS64,
            "s64.s32" => Convert::S32S64,
            "u64.u32" => Convert::U32U64,
            "u64.u16" => Convert::U16U64,
            "u32.u64" => Convert::U64U32,
            "u16.u64" => Convert::U64U16,
            "u32.u16" | "u16.u32" => Convert::U32U16,
            "s32.s8" => Convert::S32S8,
            "f32.f16" => Convert::F16F32,
            "rn.f16.f32" => Convert::F32F16,
            "rna.tf32.f32" => Convert::F32Tf32,
            "f64.f32" => Convert::F32F64,
            "rn.f32.f64" => Convert::F64F32,
            "sat.f32.f32" => Convert::F32Sat,
            "rpi.f32.f32" => Convert::F32Integral(Round::Up),
            "rmi.f32.f32" => Convert::F32Integral(Round::Down),
            "rpi.f64.f64" => Convert::F64Integral(Round::Up),
            "rn.f32.s32" => Convert::S32F32,
            "rn.f32.u32" => Convert::U32F32,
            "rn.f32.u16" => Convert::U16F32,
            "rzi.s32.f32" => Convert::F32S32(Round::Zero),
            "rni.s32.f32" => Convert::F32S32(Round::Nearest),
            "rzi.u32.f32" => Convert::F32U32(Round::Zero),
            "rn.f64.s32" => Convert::S32F64,
            "rn.f64.u32" => Convert::U32F64,
            "rn.f64.s64" => Convert::S64F64,
            "rn.f64.u64" => Convert::U64F64,
            "rzi.s32.f64" => Convert::F64S32(Round::Zero),
            "rni.s32.f64" => Convert::F64S32(Round::Nearest),
            "rzi.s64.f64" => Convert::F64S64(Round::Zero),
            _ => return unknown(),
        };
        let kinds = form.rsplit('.').collect::<Vec<_>>();
        let double = |kind: &str| kind.ends_with("64");
        let reg = |d: &mut Self, operand: &Operand, is_double| {
            if is_double { d.double(operand) } else { d.word(operand) }
        };
        let to = reg(self, to, double(kinds[1]))?;
        let from = reg(self, from, double(kinds[0]) || convert == Convert::LowS64)?;
        Ok(Op::Convert(convert, to, from))
    }
}
