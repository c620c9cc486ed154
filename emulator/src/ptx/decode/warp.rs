//! Branches, and what the lanes of a warp or the warps of a block do together.

use super::super::lex::Number;
use super::super::parse::{Operand, Space};
use super::super::program::{CONSTANT, Op, RESULT, Reg, Shuffle};
use super::{Decoded, Decoder, wrong};

fn unknown<T>() -> Decoded<T> {
    Err("the form is not known".into())
}

/// `cp.async` of a few bytes, with or without a hint for L2.
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
    pub(super) fn warp(&mut self, base: &str, form: &str, operands: &[Operand]) -> Decoded<Op> {
        match (base, form, operands) {
            ("bra", "" | "uni", [Operand::Place(Space::Local, target)]) => {
                Ok(Op::Branch(*target as u32))
            }
            ("ret" | "exit", "", []) => Ok(Op::Return),
            ("call", "uni", _) => self.call(operands),
            ("membar", "sys" | "gl" | "cta", []) => Ok(Op::Nothing),
            ("bar", "sync", [Operand::Number(Number::Integer(0))]) => Ok(Op::Barrier),
            ("bar", "red.or.pred", [to, Operand::Number(Number::Integer(0)), from]) => {
                Ok(Op::BarrierOr(self.predicate(to)?, self.predicate(from)?))
            }
            ("bar", "warp.sync", [mask]) => Ok(Op::WarpBarrier(self.word(mask)?)),
            ("shfl", _, [to, a, b, c, mask]) => self.shuffle(form, to, [a, b, c, mask]),
            ("vote", "sync.ballot.b32", [to, from, mask]) => {
                Ok(Op::Ballot([self.word(to)?, self.predicate(from)?, self.word(mask)?]))
            }
            ("match", "any.sync.b32", [to, from, mask]) => {
                Ok(Op::Match([self.word(to)?, self.word(from)?, self.word(mask)?]))
            }
            ("ldmatrix", _, [to, from]) => {
                Ok(Op::LoadMatrix(Box::new(self.matrix(form, to, from)?)))
            }
            ("mma", _, [d, a, b, c]) => {
                let mut list = [0; 14];
                list[..4].copy_from_slice(&self.fragment::<4>(d)?);
                list[4..8].copy_from_slice(&self.fragment::<4>(a)?);
                list[8..10].copy_from_slice(&self.fragment::<2>(b)?);
                list[10..].copy_from_slice(&self.fragment::<4>(c)?);
                match form {
                    "sync.aligned.m16n8k16.row.col.f32.f16.f16.f32" => Ok(Op::Mma16(list.into())),
                    "sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32" => Ok(Op::Mma8(list.into())),
                    _ => unknown(),
                }
            }
            ("cp", "async.wait_all", []) => Ok(Op::WaitAllCopies),
            ("cp", "async.commit_group", []) => Ok(Op::CommitCopies),
            ("cp", "async.wait_group", [Operand::Number(Number::Integer(count @ 0..))]) => {
                Ok(Op::WaitCopies(*count as u32))
            }
            ("cp", _, [to, from, size, rest @ ..]) if is_copy(form) => {
                let Operand::Number(Number::Integer(size @ (4 | 8 | 16))) = size else {
                    return wrong(size);
                };
                if *size != 16 && form.starts_with("async.cg") {
                    return Err("a copy past L1 is of 16 bytes".into());
                }
                let bytes = match rest {
                    [] => self.word_constant(*size as u32),
                    [bytes] => self.word(bytes)?,
                    _ => return unknown(),
                };
                Ok(Op::CopyAsync(self.address(to)?, self.address(from)?, bytes, *size as u8))
            }
            ("bar" | "cp", ..) => self.hopper(base, form, operands),
            _ => unknown(),
        }
    }

    pub(super) fn fragment<const N: usize>(&mut self, operand: &Operand) -> Decoded<[Reg; N]> {
        let members = Self::members(operand);
        if members.len() != N {
            return wrong(operand);
        }
        let mut list = [0; N];
        for (slot, member) in list.iter_mut().zip(members) {
            *slot = self.word(member)?;
        }
        Ok(list)
    }

    fn shuffle(&mut self, form: &str, to: &Operand, of: [&Operand; 4]) -> Decoded<Op> {
        let shuffle = match form {
            "sync.bfly.b32" => Shuffle::Butterfly,
            "sync.up.b32" => Shuffle::Up,
            "sync.down.b32" => Shuffle::Down,
            "sync.idx.b32" => Shuffle::Index,
            _ => return unknown(),
        };
        // Without a predicate, the constant false stands for one that nobody reads.
        let (value, predicate) = match to {
            Operand::Pair(value, predicate) => {
                (self.word(&Operand::Register(*value))?, self.predicate_of(*predicate)?)
            }
            other => (self.word(other)?, CONSTANT),
        };
        let [a, b, c, mask] = of;
        let list =
            [value, predicate, self.word(a)?, self.word(b)?, self.word(c)?, self.word(mask)?];
        Ok(Op::Shuffle(shuffle, Box::new(list)))
    }

    fn call(&mut self, operands: &[Operand]) -> Decoded<Op> {
        let [Operand::Vector(results), Operand::Name(name), Operand::Vector(arguments)] = operands
        else {
            return unknown();
        };
        let Some(called) = self.flow.function(name) else { return unknown() };
        if results.len() != called.results.len() || arguments.len() != called.parameters.len() {
            return Err(format!("`{name}` has other parameters"));
        }
        let mut copies = Vec::new();
        for (argument, (at, bytes)) in arguments.iter().zip(&called.parameters) {
            copies.push((*at as u32, self.place(argument)? as u32, *bytes as u32));
        }
        // Results come back when the callee returns.
        for (result, (at, bytes)) in results.iter().zip(&called.results) {
            copies.push((self.place(result)? as u32, *at as u32, *bytes as u32 | RESULT));
        }
        Ok(Op::Call(called.start as u32, copies.into()))
    }
}
