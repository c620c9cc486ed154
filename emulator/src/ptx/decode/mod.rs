//! Decodes instructions by their whole form: what is not listed is refused, never guessed.

mod arithmetic;
mod hopper;
mod memory;
mod warp;

use std::collections::HashMap;

use super::flow::Flow;
use super::lex::Number;
use super::parse::{Class, Instruction, Operand, Space, VARIABLE};
use super::program::{Address, CONSTANT, Op, Program, Reg, Special, Step};
use super::registers::{Places, assign, of_products, visit};

/// The program of a kernel. `variables` are the addresses of the module's variables.
///
/// # Errors
/// One sentence with the line of the first instruction that is not understood.
pub(super) fn program(
    flow: &Flow,
    variables: &[Option<u64>],
    target: &str,
) -> Result<Program, String> {
    let (places, of_products) = (assign(flow), of_products(flow));
    let mut decoder = Decoder {
        flow,
        variables,
        places,
        program: Program::default(),
        words: HashMap::new(),
        doubles: HashMap::new(),
    };
    for instruction in &flow.body {
        let told = |reason: String| {
            format!("line {}: `{}`: {reason}", instruction.line, instruction.opcode)
        };
        hopper::check_target(&instruction.opcode, target).map_err(told)?;
        let mut op = decoder.op(instruction).map_err(told)?;
        if !of_products.is_empty() && !matches!(&op, Op::Hopper(_)) {
            let mut touched = Vec::new();
            visit(instruction, |register, _| touched.push(register));
            let watched = decoder.watched(&touched, &of_products);
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
    decoder.program.words = decoder.places.words;
    decoder.program.doubles = decoder.places.doubles;
    decoder.program.predicates = decoder.places.predicates;
    decoder.program.unset = decoder.places.unset;
    Ok(decoder.program)
}

struct Decoder<'a> {
    flow: &'a Flow,
    variables: &'a [Option<u64>],
    places: Places,
    program: Program,
    words: HashMap<u32, Reg>,
    doubles: HashMap<u64, Reg>,
}

type Decoded<T> = Result<T, String>;

fn wrong<T>(operand: &Operand) -> Decoded<T> {
    if let Operand::Special(name) = operand {
        return Err(format!("{name} is neither declared nor a special register that is known"));
    }
    Err(format!("{operand:?} does not fit here"))
}

impl Decoder<'_> {
    fn op(&mut self, instruction: &Instruction) -> Decoded<Op> {
        let operands = &instruction.operands;
        let opcode = instruction.opcode.as_str();
        let (base, form) = opcode.split_once('.').unwrap_or((opcode, ""));
        match base {
            "ld" | "st" | "atom" | "red" | "cvta" => self.memory(base, form, operands),
            "bra" | "ret" | "exit" | "call" | "bar" | "shfl" | "vote" | "match" | "ldmatrix"
            | "mma" | "cp" | "membar" => self.warp(base, form, operands),
            "wgmma" | "mbarrier" | "setmaxnreg" | "elect" | "barrier" | "stmatrix" | "fence"
            | "griddepcontrol" | "nanosleep" | "prefetch" => self.hopper(base, form, operands),
            "mov" => self.mov(form, operands),
            "cvt" => self.cvt(form, operands),
            "setp" => self.setp(form, operands),
            _ => self.arithmetic(base, form, operands),
        }
    }

    fn register(&self, register: u32, class: Class) -> Decoded<Reg> {
        if self.flow.registers[register as usize] == class {
            return Ok(self.places.of[register as usize]);
        }
        Err(format!(
            "a register of {:?} where {class:?} belongs",
            self.flow.registers[register as usize]
        ))
    }

    fn predicate_of(&self, register: u32) -> Decoded<Reg> {
        self.register(register, Class::Predicate)
    }

    fn is_double(&self, operand: &Operand) -> bool {
        matches!(operand, Operand::Register(r) if self.flow.registers[*r as usize] == Class::Double)
    }

    /// A register of up to 32 bits, or a constant of so many bytes.
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
        let list = &mut self.program.word_constants;
        *self.words.entry(value).or_insert_with(|| {
            list.push([value; 32]);
            CONSTANT | (list.len() - 1) as Reg
        })
    }

    fn double_constant(&mut self, value: u64) -> Reg {
        let list = &mut self.program.double_constants;
        *self.doubles.entry(value).or_insert_with(|| {
            list.push([value; 32]);
            CONSTANT | (list.len() - 1) as Reg
        })
    }

    /// The address of a variable in its space.
    fn place(&self, operand: &Operand) -> Decoded<u64> {
        match operand {
            Operand::Place(Space::Global, at) => {
                let address = self.variables[(*at >> VARIABLE) as usize];
                address.ok_or_else(|| "a variable without a place".into())
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

    fn mov(&mut self, form: &str, operands: &[Operand]) -> Decoded<Op> {
        let [to, from] = operands else { return Err("two operands belong here".into()) };
        match (form, to, from) {
            ("pred", ..) => Ok(Op::MovePredicate(self.predicate(to)?, self.predicate(from)?)),
            ("b32", _, Operand::Vector(halves)) => {
                let [low, high] = &halves[..] else { return wrong(from) };
                Ok(Op::Pack32(self.word(to)?, self.word_of(low, 2)?, self.word_of(high, 2)?))
            }
            ("b32", Operand::Vector(halves), _) => {
                let [low, high] = &halves[..] else { return wrong(to) };
                Ok(Op::Unpack32(self.word(low)?, self.word(high)?, self.word(from)?))
            }
            ("b64", _, Operand::Vector(halves)) => {
                let [low, high] = &halves[..] else { return wrong(from) };
                Ok(Op::Pack64(self.double(to)?, self.word(low)?, self.word(high)?))
            }
            ("b64", Operand::Vector(halves), _) => {
                let [low, high] = &halves[..] else { return wrong(to) };
                Ok(Op::Unpack64(self.word(low)?, self.word(high)?, self.double(from)?))
            }
            ("u64", _, Operand::Special(name)) if name == "%globaltimer" => {
                Ok(Op::Clock(self.double(to)?))
            }
            ("u32", _, Operand::Special(name)) => Ok(Op::Special(self.word(to)?, special(name)?)),
            ("u16" | "b16" | "s16", ..) => Ok(Op::Move32(self.word(to)?, self.word_of(from, 2)?)),
            ("u32" | "s32" | "b32" | "f32", ..) => Ok(Op::Move32(self.word(to)?, self.word(from)?)),
            ("u64" | "s64" | "b64" | "f64", ..) => {
                Ok(Op::Move64(self.double(to)?, self.double(from)?))
            }
            _ => Err("the form is not known".into()),
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
