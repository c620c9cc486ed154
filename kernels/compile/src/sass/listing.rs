//! Parses the disassembler's listing into instructions and labels.

use std::collections::BTreeMap;

use crate::Fault;

/// One instruction, as in the listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction<'a> {
    /// It has a predicate (`@P0`, `@!UP1`), so a thread may skip it.
    pub(crate) guarded: bool,
    /// Includes modifiers: `LDG.E.U16.CONSTANT`.
    pub(crate) opcode: &'a str,
    /// Everything after the opcode.
    pub(crate) operands: &'a str,
}

impl<'a> Instruction<'a> {
    /// The opcode without modifiers.
    pub(crate) fn base(&self) -> &'a str {
        self.opcode.split('.').next().unwrap_or(self.opcode)
    }

    /// True if the opcode has this modifier.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.opcode.split('.').skip(1).any(|part| part == modifier)
    }

    /// The label that an operand names: `.L_x_3` of `` `(.L_x_3) ``.
    pub(crate) fn label(&self) -> Option<&'a str> {
        let (_, rest) = self.operands.split_once("`(")?;
        Some(rest.split_once(')')?.0)
    }
}

/// The code of one kernel, with the functions that it calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Code<'a> {
    pub(crate) name: &'a str,
    pub(crate) instructions: Vec<Instruction<'a>>,
    /// The index of the instruction after each label; the instruction count for a label at the end.
    pub(crate) labels: BTreeMap<&'a str, usize>,
}

/// Parses the output of `nvdisasm --print-code`.
///
/// # Errors
/// A line of code that cannot be parsed, or a listing without code.
pub(crate) fn parse(listing: &str) -> Result<Vec<Code<'_>>, Fault> {
    let mut codes: Vec<Code> = Vec::new();
    let mut open = false;
    for line in listing.lines() {
        if line.starts_with("//---") {
            open = false;
        } else if let Some(label) = line.strip_suffix(':')
            && !label.starts_with([' ', '\t'])
        {
            if let Some(name) = label.strip_prefix(".text.") {
                codes.push(Code { name, ..Code::default() });
                open = true;
            } else if let (true, Some(code)) = (open, codes.last_mut()) {
                code.labels.insert(label, code.instructions.len());
            }
        } else if let Some(rest) = line.trim_start().strip_prefix("/*") {
            let fault = || Fault(format!("a line of the listing is not understood: {line}"));
            let code = codes.last_mut().filter(|_| open).ok_or_else(fault)?;
            let (_, rest) = rest.split_once("*/").ok_or_else(fault)?;
            code.instructions.push(instruction(rest).ok_or_else(fault)?);
        }
    }
    if codes.is_empty() {
        return Err(Fault("the listing of the disassembler holds no code".into()));
    }
    Ok(codes)
}

/// `@!P1 BRA P0, `(.L_x_265) ;`
fn instruction(text: &str) -> Option<Instruction<'_>> {
    let mut text = text.split_once(';')?.0.trim();
    let guarded = text.starts_with('@');
    if guarded {
        text = text.split_once(char::is_whitespace)?.1.trim_start();
    }
    let (opcode, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let known = opcode.starts_with(|c: char| c.is_ascii_uppercase());
    known.then(|| Instruction { guarded, opcode, operands: operands.trim() })
}

/// The listing of a kernel: `L:` is a label, the rest are instructions.
#[cfg(test)]
pub(crate) fn listing_of(name: &str, lines: &[&str]) -> String {
    let line = |line: &&str| match line.strip_suffix(':') {
        Some(_) => format!("{line}\n"),
        None => format!("        /*0000*/  {line} ;\n"),
    };
    format!(".text.{name}:\n{}", lines.iter().map(line).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
\t.headerflags\t@\"EF_CUDA_SM80\"
//--------------------- .text.a       --------------------------
\t.section\t.text.a,\"ax\",@progbits
        .size           a,(.L_x_1 - a)
a:
.text.a:
        /*0000*/                   IMAD.MOV.U32 R1, RZ, RZ, c[0x0][0x28] ;
.L_x_0:
        /*0010*/              @!P1 BRA P0, `(.L_x_0) ;
        /*0020*/                   EXIT ;
        /*0030*/                   BRA `(.L_x_0);
.L_x_1:
//--------------------- .text.b       --------------------------
.text.b:
        /*0000*/              @UP3 LDG.E.U16.CONSTANT R2, [R4.64+0x2] ;
";

    #[test]
    fn kernels_labels_and_instructions_are_read() {
        let codes = parse(LISTING).unwrap();
        assert_eq!(codes.iter().map(|code| code.name).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(codes[0].labels, BTreeMap::from([(".L_x_0", 1), (".L_x_1", 4)]));
        let opcodes: Vec<_> = codes[0].instructions.iter().map(|i| i.opcode).collect();
        assert_eq!(opcodes, ["IMAD.MOV.U32", "BRA", "EXIT", "BRA"]);
        let branch = &codes[0].instructions[1];
        assert_eq!((branch.guarded, branch.label()), (true, Some(".L_x_0")));
        assert_eq!(branch.operands, "P0, `(.L_x_0)");
        let load = &codes[1].instructions[0];
        assert!(load.guarded && load.base() == "LDG" && load.has("U16") && !load.has("LDG"));
    }

    #[test]
    fn a_line_of_another_form_is_a_fault() {
        for (from, to) in [("EXIT ;", "EXIT"), ("EXIT ;", "{ EXIT ;"), (".text.a:", "c:")] {
            let fault = parse(&LISTING.replace(from, to)).unwrap_err();
            assert!(fault.0.starts_with("a line of the listing is not understood: "), "{fault}");
        }
        assert_eq!(parse("").unwrap_err().0, "the listing of the disassembler holds no code");
    }
}
