//! The machine code of the hot kernels, instruction by instruction: counted, recorded in
//! `ptx/sass.json`, and held to that record.
//!
//! Hot kernels are those that multiply matrices on tensor cores, which are detected, and those of
//! [`PLAIN`].

pub mod counts;
mod figures;
mod flow;
mod listing;
pub mod ratchet;
pub mod record;
mod table;

use std::path::Path;
use std::process::Command;

use counts::{Counts, counts};
use device::architecture::{Architecture, Capability};
pub(crate) use table::table;

use crate::Fault;

/// Kernels that are counted although they multiply no matrices: the passes over whole maps, and
/// those of RoIAlign.
pub const PLAIN: [&str; 5] =
    ["relu_mask_f16", "roi_align_f16x8", "roi_align_grad_tiles_f16x8", "sgd", "sum_f16"];

/// The GPUs that the assembler targets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sm {
    /// A100.
    Sm80,
    /// H100 and H200.
    Sm90a,
}

impl Sm {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Sm80, Self::Sm90a];

    /// The assembler's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        }
    }

    /// Those that run PTX of this architecture.
    pub fn running(architecture: Architecture) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |sm| architecture.runs_on(sm.capability()))
    }

    fn capability(self) -> Capability {
        let major = match self {
            Self::Sm80 => 8,
            Self::Sm90a => 9,
        };
        Capability { major, minor: 0 }
    }

    /// Cycles that one `HMMA.16816.F32` occupies the tensor core of a warp scheduler.
    ///
    /// It makes 16 x 8 x 16 = 2,048 products. A scheduler's tensor core makes 256 a cycle on an
    /// A100 (312 TFLOP/s are 108 multiprocessors of 4 at 1.41 GHz): 8 cycles. On an H100 it makes
    /// 512 (989 TFLOP/s, 132, 1.83 GHz), so 4 cycles at best; but `mma.sync` reaches 62.9 % of that
    /// peak in published microbenchmarks, so 6.36.
    pub(crate) fn cycles_per_hmma(self) -> f64 {
        match self {
            Self::Sm80 => 8.0,
            Self::Sm90a => 4.0 / 0.629,
        }
    }
}

/// The counts of one kernel on one GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Measured {
    /// The `extern "C"` name.
    pub kernel: String,
    /// The GPU.
    pub target: Sm,
    /// The counts.
    pub counts: Counts,
}

/// The hot kernels of a PTX text, by name.
pub fn hot(ptx: &str) -> Vec<&str> {
    let pieces = ptx.split(".visible .entry ").skip(1);
    let named = pieces.filter_map(|piece| Some((piece.split_once('(')?.0.trim(), piece)));
    let hot = named.filter(|(name, piece)| piece.contains("mma.sync") || PLAIN.contains(name));
    let mut names: Vec<&str> = hot.map(|(name, _)| name).collect();
    names.sort_unstable();
    names
}

/// Counts the hot kernels in a cubin that was assembled for `target`.
///
/// # Errors
/// A disassembler that fails, code that cannot be parsed, kernels that break a rule.
pub(crate) fn measure(
    nvdisasm: &Path,
    cubin: &Path,
    target: Sm,
    hot: &[&str],
) -> Result<Vec<Measured>, Fault> {
    // Without the analysis of indirect branch targets: it is slow, does not know cubins of 12.2,
    // and such branches are rejected anyway.
    let options = ["--print-code".as_ref(), "--no-dataflow".as_ref(), cubin.as_os_str()];
    let listing = run(nvdisasm, &options)?;
    let codes = listing::parse(&listing)?;
    let measured = hot.iter().map(|kernel| {
        let code = codes.iter().find(|code| code.name == *kernel);
        let code = code.ok_or_else(|| Fault(format!("no listing of kernel `{kernel}`")))?;
        let counts = counts(code).map_err(|fault| Fault(format!("{fault} ({})", target.name())))?;
        Ok(Measured { kernel: kernel.to_string(), target, counts })
    });
    measured.collect()
}

/// Rejects a disassembler other than the pinned one: another may name opcodes differently.
pub(crate) fn check_version(nvdisasm: &Path, pinned: &str) -> Result<(), Fault> {
    let report = run(nvdisasm, &["--version".as_ref()])?;
    if report.contains(&format!("V{pinned}")) {
        return Ok(());
    }
    Err(Fault(format!("{}: its version must be {pinned}", nvdisasm.display())))
}

fn run(nvdisasm: &Path, arguments: &[&std::ffi::OsStr]) -> Result<String, Fault> {
    let fault = |reason: &dyn std::fmt::Display| Fault(format!("{}: {reason}", nvdisasm.display()));
    let output = Command::new(nvdisasm).args(arguments).output().map_err(|e| fault(&e))?;
    if !output.status.success() {
        let report = String::from_utf8_lossy(&output.stderr);
        return Err(fault(&format!("{}\n{report}", output.status)));
    }
    String::from_utf8(output.stdout).map_err(|e| fault(&e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_with_matrix_products_are_hot_by_themselves() {
        let ptx = "// head\n.visible .entry b(\n)\n{ mma.sync.aligned.m16n8k16; }\n\
                   .visible .entry a(\n)\n{ add.f32; }\n.visible .entry sgd(\n)\n{ add.f32; }\n";
        assert_eq!(hot(ptx), ["b", "sgd"]);
        assert!(hot("").is_empty());
    }
}
