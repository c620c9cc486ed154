//! Hopper instructions, and mbarriers.

use super::super::hopper::{Bulk, Hopper, Left, Mbarrier, Phase, Wgmma};
use super::super::lex::Number;
use super::super::parse::{Class, Operand};
use super::super::program::{Op, Place, Reg};
use super::{Decoded, Decoder, unknown, wrong};

/// Maximum columns of a wgmma.
const MAX_COLUMNS: usize = 256;
/// Valid register counts of `setmaxnreg` (PTX ISA, "setmaxnreg").
const MIN_REGISTERS: i64 = 24;
const MAX_REGISTERS: i64 = 256;

/// Decodes a number that must have one of two values; true for the second.
fn either(operand: &Operand, [first, second]: [i64; 2]) -> Decoded<bool> {
    match operand {
        Operand::Number(Number::Integer(value)) if *value == first => Ok(false),
        Operand::Number(Number::Integer(value)) if *value == second => Ok(true),
        other => wrong(other),
    }
}

/// If a form begins with one of `parts`, removes this part and the dot after it.
fn take<'a>(form: &mut &'a str, parts: &[&str]) -> Option<&'a str> {
    let (first, rest) = form.split_once('.').unwrap_or((form, ""));
    parts.contains(&first).then(|| {
        *form = rest;
        first
    })
}

/// Rejects an instruction that the module's target does not support.
pub(super) fn check_target(opcode: &str, target: &str) -> Decoded<()> {
    let begins = |heads: &[&str]| heads.iter().any(|head| opcode.starts_with(head));
    if begins(&["wgmma.", "setmaxnreg."]) && target != "sm_90a" {
        return Err(format!("needs target sm_90a, and the module's is {target}"));
    }
    let newer = [
        "mbarrier.try_wait",
        "mbarrier.expect_tx",
        "mbarrier.arrive.expect_tx",
        "cp.async.bulk",
        "elect.",
        "fence.proxy.async",
        "fence.mbarrier_init",
        "griddepcontrol.",
        "stmatrix.",
        "prefetch.",
    ];
    let digits = target.trim_start_matches("sm_").trim_end_matches(|c: char| !c.is_ascii_digit());
    if begins(&newer) && digits.parse().is_ok_and(|number: u32| number < 90) {
        return Err(format!("needs target sm_90, and the module's is {target}"));
    }
    Ok(())
}

impl Decoder<'_> {
    pub(super) fn hopper(&mut self, base: &str, form: &str, operands: &[Operand]) -> Decoded<Op> {
        let hopper = match (base, form, operands) {
            ("prefetch", "tensormap" | "global.L2", [map]) => {
                self.address(map)?;
                return Ok(Op::Nothing);
            }
            ("wgmma", "wait_group.sync.aligned", [count]) => match count {
                Operand::Number(Number::Integer(count @ 0..=7)) => Hopper::Wait(*count as u32),
                other => return wrong(other),
            },
            ("wgmma", _, [d, a, b, adds, rest @ ..]) => self.wgmma(form, [d, a, b, adds], rest)?,
            ("setmaxnreg", "inc.sync.aligned.u32" | "dec.sync.aligned.u32", [count]) => {
                let range = MIN_REGISTERS..=MAX_REGISTERS;
                match count {
                    Operand::Number(Number::Integer(n)) if range.contains(n) && n % 8 == 0 => {}
                    other => return wrong(other),
                }
                Hopper::Registers
            }
            ("mbarrier", ..) => self.mbarrier(form, operands)?,
            ("cp", _, [at]) if form.starts_with("async.mbarrier.arrive") => {
                let mut rest = form.trim_start_matches("async.mbarrier.arrive").trim_matches('.');
                let is_counted = take(&mut rest, &["noinc"]).is_some();
                let space = take(&mut rest, &["shared", "shared::cta"]);
                if rest != "b64" {
                    return unknown();
                }
                let place = self.shared_place(space, at)?;
                Hopper::Mbarrier(Mbarrier::CopiesArrive(is_counted), place)
            }
            ("cp", _, operands) => self.bulk(form, operands)?,
            ("stmatrix", _, [at, list]) => {
                let (transposed, registers, at) = self.matrix(form, list, at)?;
                Hopper::StoreMatrix(transposed, registers, at)
            }
            _ => return unknown(),
        };
        Ok(Op::Hopper(Box::new(hopper)))
    }

    /// The address of an instruction with `.shared`, `.shared::cta` or no space.
    fn shared_place(&mut self, space: Option<&str>, operand: &Operand) -> Decoded<Place> {
        let address = self.address(operand)?;
        let is_generic = space.is_none();
        if is_generic && !address.is_double {
            return wrong(operand);
        }
        Ok(Place { address, is_generic })
    }

    fn list(&mut self, operand: &Operand) -> Decoded<Box<[Reg]>> {
        Self::members(operand).iter().map(|member| self.word(member)).collect()
    }

    /// `wgmma.mma_async` with 16-bit operands.
    fn wgmma(&mut self, form: &str, of: [&Operand; 4], rest: &[Operand]) -> Decoded<Hopper> {
        let shape = form.strip_prefix("mma_async.sync.aligned.m64n");
        let Some((columns, kind)) = shape.and_then(|shape| shape.split_once('k')) else {
            return unknown();
        };
        let columns: usize = columns.parse().or_else(|_| unknown())?;
        let (is_brain, has_half_sums) = match kind {
            "16.f32.f16.f16" => (false, false),
            "16.f16.f16.f16" => (false, true),
            "16.f32.bf16.bf16" => (true, false),
            _ => return unknown(),
        };
        if !columns.is_multiple_of(8) || !(8..=MAX_COLUMNS).contains(&columns) {
            return unknown();
        }
        let [d, a, b, adds] = of;
        let d = self.list(d)?;
        if d.len() != columns / if has_half_sums { 4 } else { 2 } {
            return wrong(of[0]);
        }
        let a = match a {
            Operand::Vector(_) => match self.list(a)?[..] {
                [a, b, c, d] => Left::Registers([a, b, c, d]),
                _ => return wrong(a),
            },
            descriptor => Left::Descriptor(self.double(descriptor)?),
        };
        let b = self.double(b)?;
        let adds = self.predicate(adds)?;
        let [negate_a, negate_b, transposes @ ..] = rest else { return unknown() };
        let negated = [either(negate_a, [1, -1])?, either(negate_b, [1, -1])?];
        let transposed = match (a, transposes) {
            (Left::Registers(_), [b]) => [false, either(b, [0, 1])?],
            (Left::Descriptor(_), [a, b]) => [either(a, [0, 1])?, either(b, [0, 1])?],
            _ => return unknown(),
        };
        Ok(Hopper::Wgmma(Wgmma {
            columns,
            is_brain,
            has_half_sums,
            d,
            a,
            b,
            adds,
            negated,
            transposed,
        }))
    }

    fn mbarrier(&mut self, form: &str, operands: &[Operand]) -> Decoded<Hopper> {
        let (name, mut rest) = form.split_once('.').unwrap_or((form, ""));
        let has_bytes = name == "arrive" && take(&mut rest, &["expect_tx"]).is_some();
        let by_parity = name.ends_with("_wait") && take(&mut rest, &["parity"]).is_some();
        let order = match name {
            "arrive" => take(&mut rest, &["release"]),
            "test_wait" | "try_wait" => take(&mut rest, &["acquire"]),
            "expect_tx" => take(&mut rest, &["relaxed"]),
            _ => None,
        };
        if order.is_some() && take(&mut rest, &["cta", "cluster"]).is_none() {
            return unknown();
        }
        let space = take(&mut rest, &["shared", "shared::cta"]);
        if rest != "b64" {
            return unknown();
        }
        let (op, at) = match (name, operands) {
            ("init", [at, count]) => (Mbarrier::Init(self.word(count)?), at),
            ("inval", [at]) => (Mbarrier::Invalidate, at),
            ("expect_tx", [at, bytes]) => (Mbarrier::ExpectBytes(self.word(bytes)?), at),
            ("arrive", [state, at, rest @ ..]) => {
                let (count, bytes) = match (has_bytes, rest) {
                    (true, [bytes]) => (self.word_constant(1), Some(self.word(bytes)?)),
                    (false, []) => (self.word_constant(1), None),
                    (false, [count]) => (self.word(count)?, None),
                    _ => return unknown(),
                };
                let state = match state {
                    Operand::Name(name) if name == "_" => None,
                    state => Some(self.double(state)?),
                };
                (Mbarrier::Arrive { state, count, bytes }, at)
            }
            ("test_wait" | "try_wait", [to, at, phase, hint @ ..]) => {
                let may_wait = name == "try_wait";
                match hint {
                    [] => {}
                    [hint] if may_wait => drop(self.word(hint)?),
                    _ => return unknown(),
                }
                let phase = match by_parity {
                    true => Phase::Parity(self.word(phase)?),
                    false => Phase::State(self.double(phase)?),
                };
                (Mbarrier::Test(self.predicate(to)?, phase, may_wait), at)
            }
            _ => return unknown(),
        };
        Ok(Hopper::Mbarrier(op, self.shared_place(space, at)?))
    }

    /// `cp.async.bulk` and tiled `cp.async.bulk.tensor`, without clusters.
    fn bulk(&mut self, form: &str, operands: &[Operand]) -> Decoded<Hopper> {
        if let (
            "async.bulk.wait_group" | "async.bulk.wait_group.read",
            [Operand::Number(Number::Integer(count @ 0..))],
        ) = (form, operands)
        {
            return Ok(Hopper::BulkWait(*count as u32, form.ends_with("read")));
        }
        let mut rest = form.strip_prefix("async.bulk.").unwrap_or_default();
        let mut rank = None;
        if take(&mut rest, &["tensor"]).is_some() {
            let Some(dimensions) = take(&mut rest, &["1d", "2d", "3d", "4d", "5d"]) else {
                return unknown();
            };
            rank = Some(usize::from(dimensions.as_bytes()[0] - b'0'));
        }
        let is_load = match take(&mut rest, &["shared::cluster", "shared::cta", "global"]) {
            Some("global") => take(&mut rest, &["shared::cta"]).map(|_| false),
            Some(_) => take(&mut rest, &["global"]).map(|_| true),
            None => None,
        };
        let Some(is_load) = is_load else { return unknown() };
        if rank.is_some() {
            take(&mut rest, &["tile"]);
        }
        let (mechanism, hinted) = match rest.split_once('.') {
            Some((mechanism, "L2::cache_hint")) => (mechanism, true),
            Some(_) => return unknown(),
            None => (rest, false),
        };
        if mechanism != if is_load { "mbarrier::complete_tx::bytes" } else { "bulk_group" } {
            return unknown();
        }
        let operands = match operands {
            [operands @ .., policy] if hinted => {
                self.double(policy)?;
                operands
            }
            all => all,
        };
        self.bulk_operands(is_load, rank, operands)
    }

    fn bulk_operands(
        &mut self,
        is_load: bool,
        rank: Option<usize>,
        operands: &[Operand],
    ) -> Decoded<Hopper> {
        let (shared, global, bytes, barrier) = match (is_load, rank.is_some(), operands) {
            (true, true, [to, from, barrier]) => (to, from, None, Some(barrier)),
            (true, false, [to, from, bytes, barrier]) => (to, from, Some(bytes), Some(barrier)),
            (false, true, [to, from]) => (from, to, None, None),
            (false, false, [to, from, bytes]) => (from, to, Some(bytes), None),
            _ => return unknown(),
        };
        let (global, coordinates) = match (global, rank) {
            (Operand::Vector(list), Some(rank)) => {
                let [map, coordinates] = &list[..] else { return wrong(global) };
                let coordinates = self.list(coordinates)?;
                if coordinates.len() != rank {
                    return wrong(global);
                }
                (map, Some(coordinates))
            }
            (global, None) => (global, None),
            _ => return wrong(global),
        };
        let global = self.address(global)?;
        if !global.is_double {
            return Err("an address in global memory has 64 bits".into());
        }
        let bytes = bytes.map(|bytes| self.word(bytes)).transpose()?;
        let barrier = barrier.map(|barrier| self.address(barrier)).transpose()?;
        let (shared, bytes) = (self.address(shared)?, bytes.unwrap_or_default());
        Ok(Hopper::Bulk(Bulk { shared, global, coordinates, bytes, barrier }))
    }

    /// Operands of `ldmatrix` and `stmatrix`: whether matrices are transposed, the registers, and
    /// the address of the rows.
    pub(super) fn matrix(
        &mut self,
        form: &str,
        list: &Operand,
        at: &Operand,
    ) -> Decoded<(bool, Box<[Reg]>, Place)> {
        let mut rest = form.strip_prefix("sync.aligned.m8n8.").unwrap_or_default();
        let count = match take(&mut rest, &["x1", "x2", "x4"]) {
            Some("x1") => 1,
            Some("x2") => 2,
            Some(_) => 4,
            None => return unknown(),
        };
        let transposed = take(&mut rest, &["trans"]).is_some();
        let space = take(&mut rest, &["shared", "shared::cta"]);
        let registers = self.list(list)?;
        if rest != "b16" || registers.len() != count {
            return unknown();
        }
        Ok((transposed, registers, self.shared_place(space, at)?))
    }

    /// Physical numbers of the registers in `list` that wgmmas use.
    pub(super) fn watched(&self, list: &[u32], held_by_wgmma: &[bool]) -> Box<[Reg]> {
        let is_one = |register: &&u32| {
            held_by_wgmma[**register as usize]
                && self.flow.registers[**register as usize] == Class::Word
        };
        list.iter().filter(is_one).map(|register| self.places.of[*register as usize]).collect()
    }
}
