//! The assembler's report: the resources of each kernel.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use device::architecture::{Architecture, Capability};
use device::manifest::Resources;

use crate::Fault;

/// Kernels that may spill registers, each with the reason. Spills cost memory traffic in the
/// innermost loop, so they must be deliberate.
pub const SPILLS_ALLOWED: &[(&str, &str)] =
    &[("conv2d_f16_wide", "36 bytes after the loop; allows a third block per SM")];

/// The GPUs for which PTX is assembled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sm {
    /// A100.
    Sm80,
    /// H100 and H200.
    Sm90a,
}

impl Sm {
    /// The assembler's name of the GPU.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90a => "sm_90a",
        }
    }

    /// The GPUs that run PTX of this architecture.
    pub(crate) fn running(architecture: Architecture) -> impl Iterator<Item = Self> {
        [(Self::Sm80, 8), (Self::Sm90a, 9)]
            .into_iter()
            .filter(move |(_, major)| architecture.runs_on(Capability { major: *major, minor: 0 }))
            .map(|(sm, _)| sm)
    }
}

/// Assembles a PTX file for `target` into `cubin` and returns the resources of each kernel.
pub(crate) fn resources(
    ptxas: &Path,
    ptx: &Path,
    target: &str,
    cubin: &Path,
) -> Result<BTreeMap<String, Resources>, Fault> {
    let fault = |reason: &dyn std::fmt::Display| Fault(format!("{}: {reason}", ptxas.display()));
    let mut command = Command::new(ptxas);
    command.args(["-v", &format!("-arch={target}"), "-o"]).arg(cubin).arg(ptx);
    let output = command.output().map_err(|e| fault(&e))?;
    let report = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(fault(&format!("{}\n{report}", output.status)));
    }
    Ok(parse(&report))
}

/// A one-line message if the kernel spills but is not in [`SPILLS_ALLOWED`].
pub fn spill_fault(
    kernel: &str,
    target: &str,
    resources: &Resources,
    allowed: &[(&str, &str)],
) -> Option<String> {
    let (stored, loaded) = (resources.spill_store_bytes, resources.spill_load_bytes);
    let spills = stored + loaded > 0 && !allowed.iter().any(|(name, _)| *name == kernel);
    spills.then(|| {
        format!(
            "kernel `{kernel}` spills registers on {target} ({stored} bytes stored, {loaded} \
             loaded); keep fewer values alive, or list it with a reason in \
             tools/compile/src/ptxas.rs"
        )
    })
}

/// The resources of each kernel, parsed from the text that the assembler prints with `-v`.
///
/// Functions that are not inlined follow their kernel in the report; their spills and stack are
/// added to those of the kernel.
pub fn parse(report: &str) -> BTreeMap<String, Resources> {
    let mut kernels: BTreeMap<String, Resources> = BTreeMap::new();
    let mut current: Option<&mut Resources> = None;
    for line in report.lines() {
        if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or(rest);
            current = Some(kernels.entry(name.to_string()).or_default());
        }
        let Some(kernel) = &mut current else { continue };
        kernel.stack_bytes = kernel.stack_bytes.max(before(line, " bytes stack frame"));
        kernel.spill_store_bytes += before(line, " bytes spill stores");
        kernel.spill_load_bytes += before(line, " bytes spill loads");
        kernel.registers = kernel.registers.max(before(line, " registers"));
        kernel.shared_bytes += before(line, " bytes smem");
    }
    kernels
}

/// The number before `unit` on a line; 0 if there is none.
fn before(line: &str, unit: &str) -> u32 {
    let Some((rest, _)) = line.split_once(unit) else { return 0 };
    let number = rest.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap_or("");
    number.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'b' for 'sm_80'
ptxas info    : Function properties for b
    16 bytes stack frame, 20 bytes spill stores, 24 bytes spill loads
ptxas info    : Used 255 registers, 1152 bytes smem, 392 bytes cmem[0]
ptxas info    : Compiling entry function 'a' for 'sm_80'
ptxas info    : Function properties for a
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 18 registers, 384 bytes cmem[0]
";

    #[test]
    fn ptxas_report_is_parsed() {
        let kernels = parse(REPORT);
        let b = Resources {
            registers: 255,
            shared_bytes: 1152,
            stack_bytes: 16,
            spill_store_bytes: 20,
            spill_load_bytes: 24,
        };
        assert_eq!(kernels["b"], b);
        assert_eq!(kernels["a"], Resources { registers: 18, ..Resources::default() });
    }

    #[test]
    fn unlisted_spill_is_rejected() {
        let b = parse(REPORT)["b"];
        let fault = spill_fault("b", "sm_80", &b, &[]).unwrap();
        assert!(fault.starts_with("kernel `b` spills registers on sm_80 (20 bytes"), "{fault}");
        assert_eq!(spill_fault("b", "sm_80", &b, &[("b", "a reason")]), None);
        assert_eq!(spill_fault("a", "sm_80", &parse(REPORT)["a"], &[]), None);
    }
}
