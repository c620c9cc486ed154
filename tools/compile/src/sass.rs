//! A report on the main loops in machine code: how long a warp stalls and waits for its MMAs.
//!
//! The assembler encodes in each instruction how many cycles the warp stalls after it, the
//! scoreboards that it sets, and the scoreboards that it waits for. If a loop reuses the registers
//! of fragments too early, stall cycles and scoreboard waits increase, but the number of
//! instructions does not.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use device::Precision;
use device::manifest::Manifest;

use crate::Fault;
use crate::output::{self, SCRATCH, cubin};
use crate::ptxas::Sm;
use crate::toolkit::Toolkit;

/// Number of MMAs of a k-block of 32 values, determined by the kernel's name. Four warps compute a
/// tile of 128x128 or 64x64 with `HMMA`s of 16x8x16; a warpgroup computes 128 rows, or 64 in `low`
/// kernels, with `HGMMA`s of 64 rows, all columns and 16 values of k.
fn mmas(kernel: &str) -> usize {
    match kernel.rsplit('_').next() {
        Some("large") => 64,
        Some("tall" | "deep" | "wide" | "narrow") => 4,
        Some("low") => 2,
        _ => 16,
    }
}

/// One instruction: its text without a predicate, and the upper half of its encoding.
type Instruction<'a> = (&'a str, u64);

/// The code of one kernel.
#[derive(Debug, Default)]
struct Code<'a> {
    name: &'a str,
    instructions: Vec<Instruction<'a>>,
    /// The index of the instruction after each label.
    labels: BTreeMap<&'a str, usize>,
}

/// Figures of the innermost loop with MMAs, from its label to its backward branch, for one warp and
/// one k-block.
#[derive(Debug, PartialEq)]
struct MainLoop {
    instructions: f64,
    /// Sum of the instructions' stall cycles.
    stall_cycles: f64,
    /// Number of instructions that wait for a scoreboard set by an MMA.
    product_waits: f64,
}

/// The report for the current sources: one row per fp16 GEMM kernel and GPU. The figures are not
/// checked.
///
/// # Errors
/// A source does not compile, or the disassembler fails.
pub fn report(root: &Path, toolkit: &Toolkit) -> Result<String, Fault> {
    let files = output::compile(root, toolkit)?;
    let manifest = String::from_utf8_lossy(&files[Manifest::FILE]);
    let manifest = Manifest::parse(&manifest).map_err(|e| Fault(e.to_string()))?;
    let mut report = format!(
        "{:<40} {:<6}  registers  instructions  stall cycles      waits for MMAs\n",
        "main loop, per k-block", "GPU"
    );
    for source in manifest.sources.iter().filter(|source| source.real == Precision::Fp16) {
        for gpu in Sm::running(source.architecture) {
            let cubin = cubin(&root.join(SCRATCH), &source.ptx, gpu);
            let listing = disassembled(&toolkit.nvdisasm(), &cubin)?;
            for code in parse(&listing) {
                let kernel = source.kernels.iter().find(|kernel| kernel.name == code.name);
                let (Some(kernel), Some(found)) = (kernel, main_loop(&code)) else { continue };
                report += &format!(
                    "{:<40} {:<6}  {:>9}  {:>12.0}  {:>12.0}  {:>18.0}\n",
                    kernel.name,
                    gpu.name(),
                    kernel.on[gpu.name()].registers,
                    found.instructions,
                    found.stall_cycles,
                    found.product_waits
                );
            }
        }
    }
    Ok(report)
}

fn disassembled(nvdisasm: &Path, cubin: &Path) -> Result<String, Fault> {
    // `--no-dataflow` disables the analysis of indirect branch targets, which does not support
    // cubins of 12.2.
    let options = ["--print-code", "--no-dataflow", "--print-instruction-encoding"];
    let output = Command::new(nvdisasm).args(options).arg(cubin).output();
    let fault = |reason: &dyn std::fmt::Display| Fault(format!("{}: {reason}", nvdisasm.display()));
    let output = output.map_err(|e| fault(&e))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(fault(&String::from_utf8_lossy(&output.stderr))),
    }
}

fn parse(listing: &str) -> Vec<Code<'_>> {
    let mut codes: Vec<Code> = Vec::new();
    for line in listing.lines() {
        if let Some(name) = line.strip_prefix(".text.") {
            codes.push(Code { name: name.trim_end_matches(':'), ..Code::default() });
            continue;
        }
        let Some(code) = codes.last_mut() else { continue };
        let next = code.instructions.len();
        if line.starts_with(".L") {
            code.labels.insert(line.trim_end_matches(':'), next);
        } else if let Some((text, _)) = line.split_once(';') {
            let text = text.split_once("*/").map_or("", |(_, text)| text).trim();
            let guard = text.split_once(' ').filter(|(first, _)| first.starts_with('@'));
            code.instructions.push((guard.map_or(text, |(_, text)| text.trim()), 0));
        } else if let Some((_, word)) = line.trim().split_once("/* 0x")
            && let Some((_, control)) = code.instructions.last_mut()
        {
            *control = u64::from_str_radix(word.trim_end_matches(" */"), 16).unwrap_or_default();
        }
    }
    codes
}

fn main_loop(code: &Code) -> Option<MainLoop> {
    let by_groups = code.instructions.iter().any(|(text, _)| text.starts_with("HGMMA"));
    let name = if by_groups { "HGMMA" } else { "HMMA" };
    let is_product = |(text, _): &&Instruction| text.starts_with(name);
    let back = |(end, (text, _)): (usize, &Instruction)| {
        let label = text.strip_prefix("BRA")?.split_once("`(")?.1.split_once(')')?.0;
        let begin = *code.labels.get(label)?;
        let body = code.instructions.get(begin..=end)?;
        body.iter().any(|one| is_product(&one)).then_some((begin, end))
    };
    let loops: Vec<_> = code.instructions.iter().enumerate().filter_map(back).collect();
    let innermost = loops.iter().filter(|(begin, end)| {
        let is_inside = |(b, e): &(usize, usize)| begin <= b && e <= end && (b, e) != (begin, end);
        !loops.iter().any(is_inside)
    });
    // Prefer an unrolled loop to its remainder loop.
    let bodies = innermost.map(|(begin, end)| &code.instructions[*begin..=*end]);
    let body = bodies.max_by_key(|body| (body.iter().filter(is_product).count(), body.len()))?;

    let field = |control: u64, at: u32, bits: u32| control >> at & ((1 << bits) - 1);
    // Bits 41-44: stall cycles. 46-48 and 49-51: the scoreboards set for results and for operands,
    // 7 for none. 52-57: mask of the scoreboards for which the instruction waits.
    let set =
        body.iter().filter(is_product).flat_map(|(_, c)| [field(*c, 46, 3), field(*c, 49, 3)]);
    let set = set.filter(|board| *board < 6).fold(0, |all, board| all | 1 << board);
    let blocks = (body.iter().filter(is_product).count() / mmas(code.name)).max(1) as f64;
    let stalls: u64 = body.iter().map(|(_, control)| field(*control, 41, 4)).sum();
    let waits = body.iter().filter(|(_, control)| field(*control, 52, 6) & set != 0).count();
    Some(MainLoop {
        instructions: body.len() as f64 / blocks,
        stall_cycles: stalls as f64 / blocks,
        product_waits: waits as f64 / blocks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing in the format of `nvdisasm`, from labels and instructions with their control bits.
    fn listing(lines: &[(&str, u64)]) -> String {
        let line = |(text, control): &(&str, u64)| match text.starts_with('.') {
            true => format!("{text}\n"),
            false => format!(
                "        /*3b30*/                   {text} ;   /* 0x00000024723c */\n{:>60}\n",
                format!("/* 0x{control:016x} */")
            ),
        };
        lines.iter().map(line).collect()
    }

    const fn control(stall: u64, sets: u64, waits: u64) -> u64 {
        stall << 41 | sets << 46 | 7 << 49 | waits << 52 | 0x804
    }

    /// MMAs set scoreboard 5; instructions in the loop wait for it or for a different scoreboard.
    #[test]
    fn stalls_are_counted_in_innermost_mma_loop() {
        let product = ("HMMA.16816.F32 R4, R36.reuse, R40, R4", control(8, 5, 0));
        let mut lines = vec![
            (".text.k_small:", 0),
            (".L_outer:", 0),
            ("MOV R1, R2", control(15, 7, 1 << 5)),
            (".L_x_1:", 0),
            ("LDSM.16.M88.4 R8, [R9]", control(1, 0, 1 << 1)),
        ];
        lines.extend([product; 16]);
        lines.push(("@P1 IMAD.MOV R36, RZ, RZ, R3", control(2, 7, 1 << 5)));
        lines.push(("@P1 BRA `(.L_x_1)", control(5, 7, 1 << 0)));
        lines.push(("@P2 BRA `(.L_outer)", control(5, 7, 0)));
        lines.push(("EXIT", control(5, 7, 0)));
        let text = listing(&lines);
        let found = main_loop(&parse(&text)[0]);
        let wanted = MainLoop {
            instructions: 19.0,
            stall_cycles: 8.0 * 16.0 + 1.0 + 2.0 + 5.0,
            product_waits: 1.0,
        };
        assert_eq!(found, Some(wanted));

        // With twice as many MMAs, the loop body has two k-blocks.
        let at = lines.iter().position(|line| *line == product).unwrap();
        (0..16).for_each(|_| lines.insert(at, product));
        let text = listing(&lines);
        let found = main_loop(&parse(&text)[0]).unwrap();
        assert_eq!((found.instructions, found.product_waits), (17.5, 0.5));

        lines.retain(|line| *line != product);
        let text = listing(&lines);
        assert_eq!(main_loop(&parse(&text)[0]), None);
    }
}
