//! Decodes instructions by their complete form; forms that are not listed are rejected.

mod forms;
mod hopper;
mod memory;

use std::collections::HashMap;
use std::sync::Arc;

use super::flow::Flow;
use super::lex::Number;
use super::parse::{Class, Instruction, Operand, Space, VARIABLE};
use super::program::{Address, CONSTANT, Op, Program, Reg, Special, Step};
use super::registers::{Places, assign, held_by_wgmma, visit};
use crate::lanes::{self, Constants};

/// The program of a kernel. `variables` are the addresses of the module's variables.
///
/// # Errors
/// A one-line message with the line of the first instruction that is not supported.
pub(super) fn program(
    flow: &Flow,
    variables: &[Option<u64>],
    target: &str,
) -> Result<Program, String> {
    if !lanes::is_supported() {
        return Err("this processor has no AVX2, FMA and F16C".into());
    }
    let (places, held_by_wgmma) = (assign(flow), held_by_wgmma(flow));
    let mut decoder = Decoder {
        flow,
        variables,
        places,
        program: Program::default(),
        constants: Constants::default(),
        words: HashMap::new(),
        doubles: HashMap::new(),
    };
    for instruction in &flow.body {
        let told = |reason: String| {
            format!("line {}: `{}`: {reason}", instruction.line, instruction.opcode)
        };
        hopper::check_target(&instruction.opcode, target).map_err(told)?;
        let mut op = decoder.op(instruction).map_err(told)?;
        if let Op::Hopper(hopper) = &op {
            decoder.program.is_partial |= hopper.is_partial();
            decoder.program.is_async |= hopper.is_async();
        }
        if !held_by_wgmma.is_empty() && !matches!(&op, Op::Hopper(_)) {
            let mut touched = Vec::new();
            visit(instruction, |register, _| touched.push(register));
            let watched = decoder.watched(&touched, &held_by_wgmma);
            if !watched.is_empty() {
                op = Op::Watched(Box::new((op, watched)));
            }
        }
        let guard = match instruction.guard {
            Some((register, negated)) => {
                Some((decoder.predicate_of(register).map_err(told)?, negated))
            }
            None => None,
        };
        let Instruction { line, source_line, .. } = *instruction;
        decoder.program.steps.push(Step { op, guard, line, source_line });
        decoder.program.opcodes.push(instruction.opcode.as_str().into());
    }
    decoder.program.lengths = decoder.places.lengths;
    decoder.program.unset = decoder.places.unset;
    decoder.program.constants = Arc::new(decoder.constants);
    Ok(decoder.program)
}

struct Decoder<'a> {
    flow: &'a Flow,
    variables: &'a [Option<u64>],
    places: Places,
    program: Program,
    constants: Constants,
    words: HashMap<u32, Reg>,
    doubles: HashMap<u64, Reg>,
}

type Decoded<T> = Result<T, String>;

fn unknown<T>() -> Decoded<T> {
    Err("unknown form".into())
}

fn wrong<T>(operand: &Operand) -> Decoded<T> {
    if let Operand::Special(name) = operand {
        return Err(format!("{name} is neither declared nor a supported special register"));
    }
    Err(format!("{operand:?} is not allowed here"))
}

impl Decoder<'_> {
    fn op(&mut self, instruction: &Instruction) -> Decoded<Op> {
        let operands = &instruction.operands[..];
        let opcode = instruction.opcode.as_str();
        let zero = Operand::Number(Number::Integer(0));
        match (opcode, operands) {
            ("mov.u32", [to, Operand::Special(name)]) => {
                return Ok(Op::Special(self.word(to)?, special(name)?));
            }
            ("mov.u64", [to, Operand::Special(name)]) if name == "%globaltimer" => {
                return Ok(Op::Clock(self.double(to)?));
            }
            ("bar.sync", [number]) if *number == zero => return Ok(Op::Barrier),
            ("bar.red.or.pred", [to, number, from]) if *number == zero => {
                return Ok(Op::BarrierOr(self.predicate(to)?, self.predicate(from)?));
            }
            ("cvt.s64.s32", [_, from]) if self.is_double(from) => {
                return self.form("cvt.s64.low", operands).unwrap_or_else(unknown);
            }
            _ => {}
        }
        if let Some(op) = self.form(opcode, operands) {
            return op;
        }
        let (base, form) = opcode.split_once('.').unwrap_or((opcode, ""));
        match base {
            "wgmma" | "mbarrier" | "setmaxnreg" | "stmatrix" | "prefetch" => {
                self.hopper(base, form, operands)
            }
            "cp" if form.contains("bulk") || form.contains("mbarrier") => {
                self.hopper(base, form, operands)
            }
            _ => self.memory(base, form, operands),
        }
    }

    /// Decodes an instruction whose operands are registers and constants; `None` for other forms.
    fn form(&mut self, opcode: &str, operands: &[Operand]) -> Option<Decoded<Op>> {
        let (mut outline, mut list) = (String::new(), vec![]);
        for operand in operands {
            match operand {
                Operand::Vector(members) => {
                    outline.push('{');
                    members.iter().for_each(|_| outline.push('x'));
                    outline.push('}');
                    list.extend(members.iter().cloned());
                }
                Operand::Pair(first, second) => {
                    outline += "x|x";
                    list.extend([*first, *second].map(Operand::Register));
                }
                other => {
                    outline.push('x');
                    list.push(other.clone());
                }
            }
        }
        if let Some(form) = lanes::find(opcode, &outline) {
            let registers = self.registers(&form.classes, &list);
            let at = |registers: &[Reg], i: usize| registers.get(i).copied().unwrap_or_default();
            return Some(registers.map(|r| Op::Lanes(form, std::array::from_fn(|i| at(&r, i)))));
        }
        let form = forms::find(opcode, &outline)?;
        Some(self.registers(&form.classes, &list).map(|registers| (form.make)(&registers)))
    }

    /// Operands as registers of these classes.
    fn registers(&mut self, classes: &[u8], operands: &[Operand]) -> Decoded<Vec<Reg>> {
        let classes = classes.iter().zip(operands);
        classes
            .map(|(class, operand)| match class {
                b'd' => self.double(operand),
                b'p' => self.predicate(operand),
                b'h' => self.word_of(operand, 2),
                _ => self.word(operand),
            })
            .collect()
    }

    fn register(&self, register: u32, class: Class) -> Decoded<Reg> {
        if self.flow.registers[register as usize] == class {
            return Ok(self.places.of[register as usize]);
        }
        Err(format!(
            "a register of class {:?} where {class:?} is required",
            self.flow.registers[register as usize]
        ))
    }

    fn predicate_of(&self, register: u32) -> Decoded<Reg> {
        self.register(register, Class::Predicate)
    }

    fn is_double(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Register(r) if self.flow.registers[*r as usize] == Class::Double)
    }

    /// A register of at most 32 bits, or a constant of `bytes` bytes.
    fn word_of(&mut self, operand: &Operand, bytes: usize) -> Decoded<Reg> {
        match operand {
            Operand::Register(register) => self.register(*register, Class::Word),
            Operand::Number(number) => Ok(self.word_constant(number.bits(bytes)? as u32)),
            Operand::Place(..) => Ok(self.word_constant(self.place(operand)? as u32)),
            other => wrong(other),
        }
    }

    fn word(&mut self, operand: &Operand) -> Decoded<Reg> {
        self.word_of(operand, 4)
    }

    fn double(&mut self, operand: &Operand) -> Decoded<Reg> {
        match operand {
            Operand::Register(register) => self.register(*register, Class::Double),
            Operand::Number(number) => Ok(self.double_constant(number.bits(8)?)),
            Operand::Place(..) => Ok(self.double_constant(self.place(operand)?)),
            other => wrong(other),
        }
    }

    fn predicate(&self, operand: &Operand) -> Decoded<Reg> {
        match operand {
            Operand::Register(register) => self.predicate_of(*register),
            Operand::Number(Number::Integer(value)) => Ok(CONSTANT | Reg::from(*value != 0)),
            other => wrong(other),
        }
    }

    fn word_constant(&mut self, value: u32) -> Reg {
        let list = &mut self.constants.words;
        *self.words.entry(value).or_insert_with(|| {
            list.push([value; 32]);
            CONSTANT | (list.len() - 1) as Reg
        })
    }

    fn double_constant(&mut self, value: u64) -> Reg {
        let list = &mut self.constants.doubles;
        *self.doubles.entry(value).or_insert_with(|| {
            list.push([value; 32]);
            CONSTANT | (list.len() - 1) as Reg
        })
    }

    /// The address of a variable within its state space.
    fn place(&self, operand: &Operand) -> Decoded<u64> {
        match operand {
            Operand::Place(Space::Global, at) => {
                let address = self.variables[(*at >> VARIABLE) as usize];
                address.ok_or_else(|| "a variable without an address".into())
            }
            Operand::Place(_, at) => Ok(*at as u64),
            other => wrong(other),
        }
    }

    fn address(&mut self, operand: &Operand) -> Decoded<Address> {
        let Operand::Address(base, offset) = operand else { return wrong(operand) };
        let is_double = !matches!(**base, Operand::Register(_)) || self.is_double(base);
        let base = if is_double { self.double(base)? } else { self.word(base)? };
        let offset = i32::try_from(*offset).map_err(|_| "an offset beyond 32 bits".to_string())?;
        Ok(Address { base, is_double, offset })
    }

    /// The members of a vector, or the operand itself.
    fn members(operand: &Operand) -> &[Operand] {
        match operand {
            Operand::Vector(list) => list,
            other => std::slice::from_ref(other),
        }
    }
}

fn special(name: &str) -> Decoded<Special> {
    let axis = |axis: &str| match axis {
        "x" => Ok(0),
        "y" => Ok(1),
        "z" => Ok(2),
        _ => Err(format!("`{name}` is not known")),
    };
    match name.split_once('.') {
        Some(("%tid", a)) => Ok(Special::Thread(axis(a)?)),
        Some(("%ntid", a)) => Ok(Special::BlockSize(axis(a)?)),
        Some(("%ctaid", a)) => Ok(Special::Block(axis(a)?)),
        Some(("%nctaid", a)) => Ok(Special::GridSize(axis(a)?)),
        None if name == "%laneid" => Ok(Special::Lane),
        _ => Err(format!("`{name}` is not known")),
    }
}
