//! Loads, stores, atomics and copies, branches and calls.

use super::super::lex::Number;
use super::super::parse::{Operand, Space};
use super::super::program::{
    Access, Atomic, Element, LOCAL_WINDOW, Op, PARAMETER_WINDOW, RESULT, SHARED_WINDOW, Where,
};
use super::{Decoded, Decoder, unknown, wrong};

const SPACES: [(&str, Where); 4] = [
    ("global", Where::Global),
    ("shared", Where::Shared),
    ("local", Where::Local),
    ("param", Where::Parameter),
];

/// True for a `cp.async` that is not a bulk copy, with or without an L2 hint.
fn is_copy(form: &str) -> bool {
    let form = form.strip_prefix("async.c").unwrap_or_default();
    let form = form.strip_prefix(['a', 'g']).and_then(|rest| rest.strip_prefix(".shared"));
    let form = form.map(|rest| rest.strip_prefix("::cta").unwrap_or(rest));
    matches!(
        form.and_then(|rest| rest.strip_prefix(".global")),
        Some("" | ".L2::64B" | ".L2::128B" | ".L2::256B")
    )
}

impl Decoder<'_> {
    pub(super) fn memory(&mut self, base: &str, form: &str, operands: &[Operand]) -> Decoded<Op> {
        match (base, operands) {
            ("ld", [to, address]) => self.access(form, to, address, true),
            ("st", [address, from]) => self.access(form, from, address, false),
            ("atom", [to, address, value]) => self.atomic(form, Some(to), address, value),
            ("red", [address, value]) => self.atomic(form, None, address, value),
            ("bra", [Operand::Place(Space::Local, target)]) if matches!(form, "" | "uni") => {
                Ok(Op::Branch(*target as u32))
            }
            ("call", _) if form == "uni" => self.call(operands),
            ("ldmatrix", [to, from]) => Ok(Op::LoadMatrix(Box::new(self.matrix(form, to, from)?))),
            ("cp", [Operand::Number(Number::Integer(count @ 0..))])
                if form == "async.wait_group" =>
            {
                Ok(Op::WaitCopies(*count as u32))
            }
            ("cp", [to, from, size, rest @ ..]) if is_copy(form) => {
                self.copy(form, [to, from], size, rest)
            }
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
                let window = Operand::Number(Number::Integer(window as i64));
                self.form("add.u64", &[to.clone(), from.clone(), window]).unwrap_or_else(unknown)
            }
            _ => unknown(),
        }
    }

    fn copy(
        &mut self,
        form: &str,
        [to, from]: [&Operand; 2],
        size: &Operand,
        rest: &[Operand],
    ) -> Decoded<Op> {
        let Operand::Number(Number::Integer(size @ (4 | 8 | 16))) = size else {
            return wrong(size);
        };
        if *size != 16 && form.starts_with("async.cg") {
            return Err("a copy that bypasses L1 must have 16 bytes".into());
        }
        let bytes = match rest {
            [] => self.word_constant(*size as u32),
            [bytes] => self.word(bytes)?,
            _ => return unknown(),
        };
        Ok(Op::CopyAsync(self.address(to)?, self.address(from)?, bytes, *size as u8))
    }

    fn call(&mut self, operands: &[Operand]) -> Decoded<Op> {
        let [Operand::Vector(results), Operand::Name(name), Operand::Vector(arguments)] = operands
        else {
            return unknown();
        };
        let Some(called) = self.flow.function(name) else { return unknown() };
        if results.len() != called.results.len() || arguments.len() != called.parameters.len() {
            return Err(format!("the arguments do not match the parameters of `{name}`"));
        }
        let mut copies = Vec::new();
        for (argument, (at, bytes)) in arguments.iter().zip(&called.parameters) {
            copies.push((*at as u32, self.place(argument)? as u32, *bytes as u32));
        }
        // `RESULT` marks results, which are copied when the callee returns.
        for (result, (at, bytes)) in results.iter().zip(&called.results) {
            copies.push((self.place(result)? as u32, *at as u32, *bytes as u32 | RESULT));
        }
        Ok(Op::Call(called.start as u32, copies.into()))
    }

    fn access(
        &mut self,
        form: &str,
        registers: &Operand,
        address: &Operand,
        is_load: bool,
    ) -> Decoded<Op> {
        let mut kind = form;
        let mut take = |part: &str| {
            let rest = kind.strip_prefix(part).and_then(|rest| rest.strip_prefix('.'));
            kind = rest.unwrap_or(kind);
            rest.is_some()
        };
        take("volatile");
        let space = SPACES.iter().find(|(name, _)| take(name));
        let mut space = space.map_or(Where::Generic, |(_, space)| *space);
        let read_only = is_load && space == Where::Global && take("nc");
        let count = [("v2", 2), ("v4", 4)].iter().find(|(name, _)| take(name));
        let count = count.map_or(1, |(_, count)| *count);
        let members = Self::members(registers);
        if members.len() != count {
            return wrong(registers);
        }
        // Call parameters are in local memory.
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
        let Some((_, space)) = SPACES[..2].iter().find(|(name, _)| *name == place) else {
            return unknown();
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
            space: *space,
            element: if is_double { Element::B64 } else { Element::B32 },
            count: 1,
            read_only: false,
            address: self.address(address)?,
            registers: [value, 0, 0, 0],
        };
        Ok(Op::Atomic(op, Box::new(access), to))
    }
}
