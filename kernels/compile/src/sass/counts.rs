//! Counts the instructions of a kernel and of its main loop.

use serde::{Deserialize, Serialize};

use super::flow::{Flow, Loop, calls_function};
use super::listing::{Code, Instruction};
use crate::Fault;

/// Values along k in a k-block.
const DEPTH: u32 = 32;
/// Multiply-adds of one `HMMA.16816`.
const HMMA_PRODUCTS: u32 = 16 * 8 * 16;
/// Rows and columns that a block of four warps computes, by the suffix of the kernel's name. Equal
/// to the tiles of `kernels/src/cuda/gemm/tile.cuh`.
const TILES: [(&str, u32, u32); 3] =
    [("_large", 128, 128), ("_small", 64, 64), ("_unaligned", 64, 64)];
const WARPS: u32 = 4;
/// Kernels with this in their name also add up the rows of a tile, each warp with one `HMMA` (half
/// of them skipped by a predicate) for its rows and every 16 values along k.
const ROW_SUMS: &str = "_bias_";

/// The opcodes that count as INT: arithmetic, logic, comparison and selection of integers and
/// predicates, and moves, in a thread's own registers. `IMAD.MOV` and the like are `IMAD`. Not
/// among them: the uniform datapath (`UIADD3`, `ULDC`), loads of constants (`LDC`), conversions
/// from and to floats (`I2F`), branches and barriers.
///
/// They are the integer instructions that NVIDIA lists for Ampere and Hopper, but for `IMMA`, then
/// moves and predicates.
const INT: &str = "BMSK BREV FLO IABS IADD IADD3 IADD32I IDP IDP4A IMAD IMNMX IMUL IMUL32I ISCADD \
    ISCADD32I ISETP LEA LOP LOP3 LOP32I POPC SHF SHL SHR VABSDIFF VABSDIFF4 VHMNMX VIADD VIADDMNMX \
    VIMNMX VIMNMX3 MOV MOV32I PRMT SEL SGXT PLOP3 PSETP P2R R2P";

/// Instruction counts of a kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Every reachable instruction, including called functions.
    pub instructions: u32,
    /// Those in a loop. A function that is called from a loop does not count as in it.
    pub in_loops: u32,
    /// 16-bit loads from global memory in a loop.
    pub loads_16_bit: u32,
    /// Loads and stores of local memory, anywhere.
    pub local: u32,
    /// The main loop, if the kernel multiplies matrices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub main_loop: Option<MainLoop>,
}

/// One warp's work in one iteration of the main loop: the innermost loop with `HMMA`. Each
/// instruction of the body counts once, even if a branch skips it (like the fill of the next stage)
/// or an inner loop repeats it (where channels are walked one by one).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MainLoop {
    /// Blocks of 32 values along k per iteration: several if the loop is unrolled.
    pub blocks: u32,
    /// All of them.
    pub instructions: u32,
    /// Of the class INT.
    pub int: u32,
    /// Matrix products.
    pub hmma: u32,
    /// Fragment loads from shared memory.
    pub ldsm: u32,
    /// Copies from global to shared memory.
    pub ldgsts: u32,
    /// 16-bit loads from global memory.
    pub loads_16_bit: u32,
    /// From the loop head to the first `HMMA`, in code order.
    pub before_hmma: u32,
}

/// Counts a kernel's instructions; if it has `HMMA`, also those of its main loop.
///
/// # Errors
/// A kernel that uses local memory, or whose main loop cannot be analysed.
pub(crate) fn counts(code: &Code) -> Result<Counts, Fault> {
    let flow = Flow::of(code)?;
    let instruction = |at: &usize| &code.instructions[*at];
    let reached = || flow.reached.iter().map(instruction);
    let in_loop = |at: &&usize| flow.loops.iter().any(|l| l.body.contains(*at));
    let local = count(reached(), is_local);
    if local > 0 {
        return Err(Fault(format!(
            "kernel `{}` uses local memory ({local} loads and stores); keep its values in \
             registers",
            code.name
        )));
    }
    Ok(Counts {
        instructions: count(reached(), |_| true),
        in_loops: count(flow.reached.iter().filter(in_loop).map(instruction), |_| true),
        loads_16_bit: count(flow.reached.iter().filter(in_loop).map(instruction), is_16_bit_load),
        local,
        main_loop: match reached().any(is_hmma) {
            true => Some(main_loop(code, &flow)?),
            false => None,
        },
    })
}

fn main_loop(code: &Code, flow: &Flow) -> Result<MainLoop, Fault> {
    let fault = |what: String| Err(Fault(format!("kernel `{}`: {what}", code.name)));
    let tile = TILES.iter().find(|(end, ..)| code.name.ends_with(end));
    let Some((_, rows, columns)) = tile else {
        return fault(
            "its name tells no tile; list the tile in kernels/compile/src/sass/counts.rs".into(),
        );
    };
    let Some(found) = innermost_with_hmma(code, flow) else {
        return fault("its HMMA stand in no loop".into());
    };
    let body: Vec<&Instruction> = found.body.iter().map(|at| &code.instructions[*at]).collect();
    if body.iter().any(|instruction| calls_function(instruction)) {
        return fault("its main loop calls a function, which would not be counted".into());
    }
    let count = |is: fn(&Instruction) -> bool| count(body.iter().copied(), is);
    let hmma = count(is_hmma);
    let products = rows * columns * DEPTH / HMMA_PRODUCTS / WARPS;
    let row_sums = if code.name.contains(ROW_SUMS) { rows / 2 / 16 * (DEPTH / 16) } else { 0 };
    let hmma_per_k_block = products + row_sums;
    if hmma % hmma_per_k_block != 0 {
        return fault(format!(
            "its main loop holds {hmma} HMMA, and a k-block takes {hmma_per_k_block}; mend the \
             tile in kernels/compile/src/sass/counts.rs"
        ));
    }
    let from_head = found.body.range(found.head..).map(|at| &code.instructions[*at]);
    let before_hmma = from_head.take_while(|instruction| !is_hmma(instruction)).count();
    Ok(MainLoop {
        blocks: hmma / hmma_per_k_block,
        instructions: count(|_| true),
        int: count(is_int),
        hmma,
        ldsm: count(|instruction| instruction.base() == "LDSM"),
        ldgsts: count(|instruction| instruction.base() == "LDGSTS"),
        loads_16_bit: count(is_16_bit_load),
        before_hmma: before_hmma as u32,
    })
}

/// The loop that contains `HMMA` but no other loop with `HMMA`. Of several (an unrolled loop and
/// its remainder) the one with the most, then the longest.
fn innermost_with_hmma<'a>(code: &Code, flow: &'a Flow) -> Option<&'a Loop> {
    let hmma = |l: &Loop| l.body.iter().filter(|at| is_hmma(&code.instructions[**at])).count();
    let with_hmma: Vec<&Loop> = flow.loops.iter().filter(|l| hmma(l) > 0).collect();
    let innermost = with_hmma.iter().copied().filter(|outer| {
        let inner = |l: &&&Loop| l.head != outer.head && outer.body.contains(&l.head);
        !with_hmma.iter().any(|l| inner(&l))
    });
    innermost.max_by_key(|l| (hmma(l), l.body.len()))
}

fn count<'a>(
    instructions: impl Iterator<Item = &'a Instruction<'a>>,
    is: impl Fn(&Instruction) -> bool,
) -> u32 {
    instructions.filter(|instruction| is(instruction)).count() as u32
}

fn is_hmma(instruction: &Instruction) -> bool {
    instruction.base() == "HMMA"
}

fn is_int(instruction: &Instruction) -> bool {
    INT.split_whitespace().any(|opcode| opcode == instruction.base())
}

fn is_local(instruction: &Instruction) -> bool {
    matches!(instruction.base(), "LDL" | "STL")
}

fn is_16_bit_load(instruction: &Instruction) -> bool {
    instruction.base() == "LDG" && (instruction.has("U16") || instruction.has("S16"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sass::listing::{listing_of, parse};

    const HMMA: &str = "HMMA.16816.F32 R4, R8.reuse, R172, R4";
    const LDG: &str = "@P0 LDG.E.U16.CONSTANT R2, [R4.64+0x2]";

    fn counted(name: &str, lines: &[&[&str]]) -> Result<Counts, Fault> {
        counts(&parse(&listing_of(name, &lines.concat())).unwrap()[0])
    }

    /// The main loop of a small tile, with 16 HMMA per k-block.
    fn main_loop(lines: &[&[&str]]) -> MainLoop {
        counted("k_small", lines).unwrap().main_loop.unwrap()
    }

    /// Before the loop, and a conditional fill at its head.
    const HEAD: [&str; 8] = [
        "MOV R1, R2",
        ".L_1:",
        "BAR.SYNC 0x0",
        "@P0 BRA `(.L_2)",
        "IMAD.MOV.U32 R1, RZ, RZ, R3",
        "LDGSTS.E.BYPASS.128 [R3], [R4.64], P1",
        ".L_2:",
        "LDSM.16.M88.4 R8, [R9]",
    ];
    const TAIL: [&str; 5] = [
        "UIADD3 UR4, UR4, 0x1, URZ",
        "@P1 BRA `(.L_1)",
        "STG.E [R2.64], R4",
        "EXIT",
        "BRA `(.L_9)",
    ];
    const END: [&str; 1] = [".L_9:"];

    #[test]
    fn int_is_the_work_of_a_thread_on_integers() {
        let lines = ["IMAD.MOV.U32 R1, RZ, RZ, R3", "@!P0 PLOP3.LUT P0, PT, P0, P1, PT, 0x80, 0x0"];
        let others =
            ["UIADD3 UR4, UR4, 0x1, URZ", "I2F R1, R2", "FADD R1, R2, R3", "LDC R1, c[0x0]"];
        let is_int = |lines: &[&str]| {
            let listing = listing_of("k", lines);
            parse(&listing).unwrap()[0].instructions.iter().map(super::is_int).collect::<Vec<_>>()
        };
        assert_eq!(is_int(&lines), [true; 2]);
        assert_eq!(is_int(&others), [false; 4]);
    }

    #[test]
    fn the_main_loop_is_found_and_its_fill_counts() {
        let body = main_loop(&[&HEAD, &[HMMA; 16], &TAIL, &END]);
        let expected = MainLoop {
            blocks: 1,
            instructions: 5 + 16 + 2,
            int: 1,
            hmma: 16,
            ldsm: 1,
            ldgsts: 1,
            loads_16_bit: 0,
            before_hmma: 5,
        };
        assert_eq!(body, expected);
        let all = counted("k_small", &[&HEAD, &[HMMA; 16], &TAIL, &END]).unwrap();
        assert_eq!((all.instructions, all.in_loops, all.loads_16_bit), (26, 23, 0));
    }

    #[test]
    fn a_loop_within_the_main_loop_counts_once() {
        let walk = [".L_3:", LDG, "ISETP.GE.AND P2, PT, R1, R2, PT", "@P2 BRA `(.L_3)"];
        let body = main_loop(&[&HEAD, &walk, &[HMMA; 16], &TAIL, &END]);
        let figures = (body.instructions, body.int, body.loads_16_bit, body.before_hmma);
        assert_eq!(figures, (26, 2, 1, 8));
    }

    #[test]
    fn a_loop_around_the_main_loop_is_not_it() {
        let outer = [".L_0:", "IADD3 R1, R1, R2, RZ"];
        let back = ["@P1 BRA `(.L_1)", LDG, "@P3 BRA `(.L_0)", "EXIT"];
        let lines: [&[&str]; 5] = [&outer, &HEAD, &[HMMA; 16], &back, &END];
        let counts = counted("k_small", &lines).unwrap();
        assert_eq!((counts.in_loops, counts.loads_16_bit), (26, 1), "in all loops");
        let body = counts.main_loop.unwrap();
        assert_eq!((body.instructions, body.loads_16_bit), (22, 0));
    }

    #[test]
    fn an_unrolled_loop_holds_several_blocks() {
        let body = main_loop(&[&HEAD, &[HMMA; 48], &TAIL, &END]);
        assert_eq!((body.blocks, body.hmma, body.instructions), (3, 48, 55));
    }

    #[test]
    fn of_an_unrolled_loop_and_the_rest_the_unrolled_one_is_measured() {
        let rest = [".L_4:", "NOP"];
        let back = ["@P2 BRA `(.L_4)", "EXIT"];
        let lines: [&[&str]; 7] =
            [&HEAD, &[HMMA; 32], &["@P1 BRA `(.L_1)"], &rest, &[HMMA; 16], &back, &END];
        assert_eq!(main_loop(&lines).blocks, 2);
    }

    #[test]
    fn a_kernel_without_products_has_no_main_loop() {
        let counts = counted("k", &[&HEAD, &TAIL, &END]).unwrap();
        assert_eq!((counts.instructions, counts.in_loops, counts.main_loop), (10, 7, None));
    }

    #[test]
    fn a_main_loop_that_would_be_counted_wrongly_is_a_fault() {
        let fault = |name, lines: &[&[&str]]| counted(name, lines).unwrap_err().0;
        assert_eq!(
            fault("k_small", &[&[HMMA; 16], &["EXIT"]]),
            "kernel `k_small`: its HMMA stand in no loop"
        );
        let odd = fault("k_small", &[&HEAD, &[HMMA; 17], &TAIL, &END]);
        assert!(odd.contains("holds 17 HMMA, and a k-block takes 16; mend the tile"), "{odd}");
        let odd = fault("k_large", &[&HEAD, &[HMMA; 16], &TAIL, &END]);
        assert!(odd.contains("a k-block takes 64"), "{odd}");
        let unknown = fault("k", &[&HEAD, &[HMMA; 16], &TAIL, &END]);
        assert!(unknown.contains("its name tells no tile"), "{unknown}");
        let call = ["CALL.REL.NOINC `($f)"];
        let function = ["$f:", "RET.REL.NODEC R2 `(k_small)"];
        let call = fault("k_small", &[&HEAD, &call, &[HMMA; 16], &TAIL, &END, &function]);
        assert!(call.contains("its main loop calls a function"), "{call}");
    }

    #[test]
    fn local_memory_is_a_fault_wherever_it_is_used() {
        for access in ["LDL R2, [R1]", "STL.64 [R1+0x8], R2"] {
            let fault = counted("k", &[&[access, "EXIT"]]).unwrap_err().0;
            assert!(fault.starts_with("kernel `k` uses local memory (1 loads"), "{fault}");
        }
    }
}
