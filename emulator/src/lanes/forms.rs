//! The table of register instructions: each entry has its operand types and a per-lane function.
#![allow(unsafe_code)]

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::LazyLock;

use super::{Reg, Registers, float, is_supported};

/// Maximum number of registers of an instruction.
pub(crate) const MAX_REGISTERS: usize = 5;

/// Executes an instruction for the lanes of a mask. The registers are in the order of the
/// instruction's operands.
type Run = dyn Fn(&mut Registers, &[Reg; MAX_REGISTERS], u32) + Send + Sync;

/// One form of an instruction.
pub(crate) struct Form {
    /// The class of each operand: `w` (32 bits), `d` (64 bits), `h` (16 bits in a 32-bit register)
    /// or `p` (predicate).
    pub(crate) classes: Vec<u8>,
    run: Box<Run>,
}

impl Form {
    #[inline(always)]
    pub(crate) fn run(&self, registers: &mut Registers, of: &[Reg; MAX_REGISTERS], mask: u32) {
        (self.run)(registers, of, mask);
    }
}

impl Debug for Form {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "Form({})", String::from_utf8_lossy(&self.classes))
    }
}

/// Forms by opcode and operand outline.
static FORMS: LazyLock<HashMap<String, Form>> = LazyLock::new(|| {
    let mut forms = Forms::default();
    if is_supported() {
        // SAFETY: the processor has the features.
        unsafe { forms.fill() }
    }
    forms.0
});

/// The form of an opcode with operands of this outline.
pub(crate) fn find(opcode: &str, outline: &str) -> Option<&'static Form> {
    FORMS.get(&format!("{opcode} {outline}"))
}

/// Splits `operands`, written as classes, into their outline and their classes. The outline has `x`
/// for each operand, and keeps the punctuation of lists and pairs.
pub(crate) fn outline(operands: &str) -> (String, Vec<u8>) {
    let is_class = |c: char| c.is_ascii_lowercase();
    let outline = operands.chars().map(|c| if is_class(c) { 'x' } else { c }).collect();
    (outline, operands.bytes().filter(u8::is_ascii_lowercase).collect())
}

/// A value in a register file.
pub(super) trait Bits: Copy + Default + 'static {
    fn get(registers: &Registers, reg: Reg) -> &[Self; 32];
    fn put(registers: &mut Registers, reg: Reg, value: &[Self; 32], mask: u32);
}

impl Bits for u32 {
    #[inline(always)]
    fn get(registers: &Registers, reg: Reg) -> &[Self; 32] {
        registers.word(reg)
    }

    #[inline(always)]
    fn put(registers: &mut Registers, reg: Reg, value: &[Self; 32], mask: u32) {
        registers.put_word(reg, value, mask);
    }
}

impl Bits for u64 {
    #[inline(always)]
    fn get(registers: &Registers, reg: Reg) -> &[Self; 32] {
        registers.double(reg)
    }

    #[inline(always)]
    fn put(registers: &mut Registers, reg: Reg, value: &[Self; 32], mask: u32) {
        registers.put_double(reg, value, mask);
    }
}

/// A value of a lane.
pub(super) trait Lane: Copy {
    type Bits: Bits;
    const CLASS: char;
    fn of(bits: Self::Bits) -> Self;
    fn bits(self) -> Self::Bits;
}

macro_rules! lanes {
    ($($type:ty: $bits:ty, $class:literal, $of:expr, $to:expr;)*) => {
        $(impl Lane for $type {
            type Bits = $bits;
            const CLASS: char = $class;

            #[inline(always)]
            fn of(bits: $bits) -> Self {
                $of(bits)
            }

            #[inline(always)]
            fn bits(self) -> $bits {
                $to(self)
            }
        })*
    };
}

lanes! {
    u32: u32, 'w', |bits| bits, |value| value;
    i32: u32, 'w', |bits| bits as i32, |value| value as u32;
    u16: u32, 'h', |bits| bits as u16, u32::from;
    i16: u32, 'h', |bits| bits as i16, |value| u32::from(value as u16);
    f32: u32, 'w', f32::from_bits, float::bits;
    u64: u64, 'd', |bits| bits, |value| value;
    i64: u64, 'd', |bits| bits as i64, |value| value as u64;
    f64: u64, 'd', f64::from_bits, f64::to_bits;
}

/// A function stored in the table.
pub(super) trait Kept: Copy + Send + Sync + 'static {}

impl<T: Copy + Send + Sync + 'static> Kept for T {}

#[derive(Default)]
pub(super) struct Forms(HashMap<String, Form>);

/// Defines the methods that add an instruction with one to four source operands. The closures are
/// in functions with target features, so they are vectorised.
macro_rules! arities {
    ($($name:ident: $($value:ident $type:ident $at:literal),*;)*) => {
        $(#[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
        pub(super) fn $name<$($type: Lane,)* D: Lane>(
            &mut self,
            opcodes: &str,
            f: impl Fn($($type),*) -> D + Kept,
        ) {
            let operands = String::from_iter([D::CLASS, $($type::CLASS),*]);
            self.add(opcodes, &operands, move |registers, r, mask| {
                let mut results = [D::Bits::default(); 32];
                $(let $value = $type::Bits::get(registers, r[$at]);)*
                for lane in 0..32 {
                    results[lane] = f($($type::of($value[lane])),*).bits();
                }
                D::Bits::put(registers, r[0], &results, mask);
            });
        })*
    };
}

impl Forms {
    arities! {
        one: a A 1;
        two: a A 1, b B 2;
        three: a A 1, b B 2, c C 3;
        four: a A 1, b B 2, c C 3, d E 4;
    }

    /// Adds a comparison.
    #[target_feature(enable = "avx2,fma,f16c,popcnt,lzcnt")]
    pub(super) fn test<T: Lane>(&mut self, opcode: &str, f: impl Fn(T, T) -> bool + Kept) {
        let operands = String::from_iter(['p', T::CLASS, T::CLASS]);
        self.add(opcode, &operands, move |registers, r, mask| {
            let (a, b) = (T::Bits::get(registers, r[1]), T::Bits::get(registers, r[2]));
            let mut found = 0;
            for lane in 0..32 {
                found |= u32::from(f(T::of(a[lane]), T::of(b[lane]))) << lane;
            }
            registers.put_predicate(r[0], found, mask);
        });
    }

    /// Adds instructions by opcodes and operands; `operands` has the operands' classes, with the
    /// punctuation of lists and pairs.
    pub(super) fn add(
        &mut self,
        opcodes: &str,
        operands: &str,
        run: impl Fn(&mut Registers, &[Reg; MAX_REGISTERS], u32) + Kept,
    ) {
        let (outline, classes) = outline(operands);
        for opcode in opcodes.split_whitespace() {
            let form = Form { classes: classes.clone(), run: Box::new(run) };
            self.0.insert(format!("{opcode} {outline}"), form);
        }
    }
}
