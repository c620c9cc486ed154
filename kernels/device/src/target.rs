//! The target of a plan: the CPU, or a GPU with the sizes (multiprocessors, shared memory, L2) on
//! which tiling may depend.
//!
//! A device reports its own [`Gpu`]; [`Gpu::named`] is for planning without a device.

use crate::architecture::{Architecture, Capability};
use crate::tensor::{Precision, TensorDesc};

/// The target of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// The CPU reference: f32 throughout.
    Cpu,
    /// A GPU, with the element types of [`Gpu::precision`].
    Gpu(Gpu),
}

impl Target {
    /// Bytes of a tensor on this target.
    pub fn bytes(&self, desc: &TensorDesc) -> usize {
        match self {
            Target::Cpu => desc.cpu_bytes(),
            Target::Gpu(gpu) => desc.gpu_bytes(gpu.precision),
        }
    }

    /// The GPU; `None` for the CPU.
    pub fn gpu(&self) -> Option<&Gpu> {
        match self {
            Target::Cpu => None,
            Target::Gpu(gpu) => Some(gpu),
        }
    }

    /// True on the CPU.
    pub fn is_cpu(&self) -> bool {
        *self == Target::Cpu
    }
}

/// A GPU, as described to planning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Name, in reports.
    pub name: String,
    /// Compute capability.
    pub capability: Capability,
    /// Streaming multiprocessors.
    pub multiprocessors: usize,
    /// Maximum shared memory per block, in bytes.
    pub shared_bytes: usize,
    /// L2 cache, in bytes.
    pub l2_bytes: usize,
    /// The precision of the plan's tensors; fp16 in the `Gpu` that a device reports.
    pub precision: Precision,
    /// False if the wgmma kernels failed their self-test on this GPU; plans then do not use them.
    pub wgmma: bool,
    /// The GEMM kernel that plans use for every GEMM that it supports, so that each kernel can be
    /// checked. For other GEMMs, and if `None`, the cost model chooses.
    pub kernel: Option<&'static str>,
}

impl Gpu {
    /// Names accepted by [`Gpu::named`].
    pub const NAMES: [&str; 3] = ["a100", "h100", "h200"];

    /// A GPU by name: `a100`, `h100` or `h200`, all as SXM modules.
    ///
    /// Source: NVIDIA's architecture white papers, and the CUDA programming guide, table of
    /// technical specifications by compute capability.
    pub fn named(name: &str) -> Option<Self> {
        let (major, multiprocessors, shared_kib, l2_mib) = match name {
            "a100" => (8, 108, 163, 40),
            "h100" => (9, 132, 227, 50),
            // All six HBM stacks and their L2 slices are enabled.
            "h200" => (9, 132, 227, 60),
            _ => return None,
        };
        Some(Self {
            name: name.to_uppercase(),
            capability: Capability { major, minor: 0 },
            multiprocessors,
            shared_bytes: shared_kib << 10,
            l2_bytes: l2_mib << 20,
            precision: Precision::Fp16,
            wgmma: true,
            kernel: None,
        })
    }

    /// The same GPU for plans in this precision.
    pub fn in_precision(&self, precision: Precision) -> Self {
        Self { precision, ..self.clone() }
    }

    /// True if plans may use kernels of this architecture: the GPU runs them, and none failed its
    /// self-test.
    pub fn runs(&self, architecture: Architecture) -> bool {
        let trusted = self.wgmma || !architecture.specific;
        trusted && architecture.runs_on(self.capability)
    }

    /// The A100 of [`Gpu::named`]: the oldest GPU that runs the kernels.
    pub fn a100() -> Self {
        Self::known("a100")
    }

    /// The H100 of [`Gpu::named`].
    pub fn h100() -> Self {
        Self::known("h100")
    }

    fn known(name: &str) -> Self {
        Self::named(name).unwrap_or_else(|| unreachable!("{name} is in the table"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_gpu_names_parse_and_unknown_ones_are_rejected() {
        for name in Gpu::NAMES {
            assert_eq!(Gpu::named(name).unwrap().name, name.to_uppercase());
        }
        assert_eq!(Gpu::named("v100"), None);
        assert_eq!(Gpu::a100().multiprocessors, 108);
        let l2_mib = Gpu::NAMES.map(|name| Gpu::named(name).unwrap().l2_bytes >> 20);
        assert_eq!(l2_mib, [40, 50, 60]);
        assert!(Gpu::a100().capability < Gpu::h100().capability);
    }

    #[test]
    fn kernels_that_failed_self_test_are_excluded() {
        let failed = Gpu { wgmma: false, ..Gpu::h100() };
        let runs = |gpu: &Gpu| {
            [Architecture::COMPUTE_80, Architecture::COMPUTE_90A].map(|which| gpu.runs(which))
        };
        assert_eq!(
            [&Gpu::a100(), &Gpu::h100(), &failed].map(runs),
            [[true, false], [true, true], [true, false],]
        );
    }
}
