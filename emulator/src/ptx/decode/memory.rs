//! Loads, stores and atomics.

use super::super::parse::{Operand, Space};
use super::super::program::{
    Access, Atomic, Element, Int, LOCAL_WINDOW, Op, PARAMETER_WINDOW, SHARED_WINDOW, Where,
};
use super::{Decoded, Decoder, wrong};

fn unknown<T>() -> Decoded<T> {
    Err("the form is not known".into())
}

fn space(name: &str) -> Option<Where> {
    Some(match name {
        "global" => Where::Global,
        "shared" => Where::Shared,
        "local" => Where::Local,
        "param" => Where::Parameter,
        _ => return None,
    })
}

impl Decoder<'_> {
    pub(super) fn memory(&mut self, base: &str, form: &str, operands: &[Operand]) -> Decoded<Op> {
        match (base, operands) {
            ("ld", [to, address]) => self.access(form, to, address, true),
            ("st", [address, from]) => self.access(form, from, address, false),
            ("atom", [to, address, value]) => self.atomic(form, Some(to), address, value),
            ("red", [address, value]) => self.atomic(form, None, address, value),
            ("cvta", [to, from]) => {
                let window = match form {
                    "to.global.u64" => 0,
                    "shared.u64" => SHARED_WINDOW,
                    "local.u64" => LOCAL_WINDOW,
                    "param.u64" => PARAMETER_WINDOW,
                    "to.shared.u64" => SHARED_WINDOW.wrapping_neg(),
                    "to.local.u64" => LOCAL_WINDOW.wrapping_neg(),
                    _ => return unknown(),
                };
                let window = self.double_constant(window);
                Ok(Op::Int64(Int::Add, self.double(to)?, self.double(from)?, window))
            }
            _ => unknown(),
        }
    }

    fn access(
        &mut self,
        form: &str,
        registers: &Operand,
        address: &Operand,
        is_load: bool,
    ) -> Decoded<Op> {
        let mut words: Vec<&str> = form.split('.').collect();
        let mut take = |wanted: &str| {
            let is_there = words.first() == Some(&wanted);
            if is_there {
                words.remove(0);
            }
            is_there
        };
        take("volatile");
        let mut space = match ["global", "shared", "local", "param"].into_iter().find(|s| take(s)) {
            Some(name) => space(name).unwrap_or(Where::Generic),
            None => Where::Generic,
        };
        let read_only = is_load && space == Where::Global && take("nc");
        let count = if take("v2") {
            2
        } else if take("v4") {
            4
        } else {
            1
        };
        let [kind] = words[..] else { return unknown() };
        let members = Self::members(registers);
        if members.len() != count {
            return wrong(registers);
        }
        // Parameters of calls lie in local memory.
        if let (Where::Parameter, Operand::Address(base, _)) = (space, address)
            && matches!(**base, Operand::Place(Space::Local, _))
        {
            space = Where::Local;
        }
        if space == Where::Parameter && !is_load {
            return unknown();
        }
        let is_wide = members.iter().any(|member| self.is_double(member));
        let element = match kind {
            "u8" | "b8" => Element::U8,
            "s8" => Element::S8,
            "u16" | "b16" => Element::U16,
            "s16" => Element::S16,
            "u32" | "b32" if is_wide => Element::U32In64,
            "s32" if is_wide => Element::S32In64,
            "u32" | "b32" | "s32" | "f32" => Element::B32,
            "u64" | "b64" | "s64" | "f64" => Element::B64,
            _ => return unknown(),
        };
        let mut list = [0; 4];
        for (slot, member) in list.iter_mut().zip(members) {
            *slot = if element.is_double() {
                self.double(member)?
            } else {
                self.word_of(member, element.bytes())?
            };
        }
        let access = Box::new(Access {
            space,
            element,
            count: count as u8,
            read_only,
            address: self.address(address)?,
            registers: list,
        });
        Ok(if is_load { Op::Load(access) } else { Op::Store(access) })
    }

    fn atomic(
        &mut self,
        form: &str,
        to: Option<&Operand>,
        address: &Operand,
        value: &Operand,
    ) -> Decoded<Op> {
        let [place, op, kind] = form.split('.').collect::<Vec<_>>()[..] else { return unknown() };
        let space = match place {
            "global" | "shared" => space(place).unwrap_or(Where::Generic),
            _ => return unknown(),
        };
        let is_double = kind.ends_with("64");
        let op = match (op, kind) {
            ("add", "u32" | "s32" | "u64") => Atomic::Add,
            ("min", "u32" | "u64") => Atomic::Min,
            ("min", "s32" | "s64") => Atomic::MinSigned,
            ("max", "u32" | "u64") => Atomic::Max,
            ("max", "s32" | "s64") => Atomic::MaxSigned,
            ("and", "b32" | "b64") => Atomic::And,
            ("or", "b32" | "b64") => Atomic::Or,
            ("xor", "b32" | "b64") => Atomic::Xor,
            _ => return unknown(),
        };
        let mut reg = |operand: &Operand| {
            if is_double { self.double(operand) } else { self.word(operand) }
        };
        let value = reg(value)?;
        let to = to.map(&mut reg).transpose()?;
        let access = Access {
            space,
            element: if is_double { Element::B64 } else { Element::B32 },
            count: 1,
            read_only: false,
            address: self.address(address)?,
            registers: [value, 0, 0, 0],
        };
        Ok(Op::Atomic(op, Box::new(access), to))
    }
}
