//! A GEMM of a plan, and the kernels and splits that compute it.

use device::{Gpu, Precision};

use super::cost::cycles;
use super::variants::{Problem, Variant};

/// Minimum k-blocks per split that are worth its partial sums.
const MIN_SPLIT_K_BLOCKS: usize = 8;
/// Maximum splits of a reduction, with which a single tile fills the largest GPU.
const MAX_SPLITS: usize = 288;
/// A GEMM, and the table of kernels that compute it.
#[derive(Debug, Clone, Copy)]
pub(super) struct GemmLaunch {
    /// Kernels of one pass.
    pub table: &'static [Variant],
    /// The sizes used by the conditions of kernels.
    pub problem: Problem,
    /// Elements of the output.
    pub len: usize,
    /// Maximum splits of its reduction.
    pub most_splits: usize,
}

impl GemmLaunch {
    /// A GEMM of a plan, whose reduction may be split.
    pub(super) fn new(
        table: &'static [Variant],
        gpu: &Gpu,
        (problem, len): (Problem, usize),
    ) -> Self {
        // Only fp16 kernels split the reduction.
        let most = if gpu.precision == Precision::Fp16 { MAX_SPLITS } else { 1 };
        let most_splits = (problem.k_blocks / MIN_SPLIT_K_BLOCKS).clamp(1, most);
        Self { table, problem, len, most_splits }
    }

    /// The kernel and number of splits of least cost; at equal cost, the first kernel and the
    /// fewest splits. Considers only [`Gpu::kernel`] if that kernel supports this GEMM.
    ///
    /// Panics if no kernel runs: each table has one without conditions.
    pub(super) fn chosen(&self, gpu: &Gpu) -> (Variant, usize) {
        let plans = self.running(gpu).flat_map(|variant| {
            let plans = 1..=self.most_splits;
            plans.map(move |splits| (variant, splits, self.cycles(gpu, variant, splits)))
        });
        let least = plans.reduce(|best, plan| if plan.2 < best.2 { plan } else { best });
        let found = least.unwrap_or_else(|| panic!("no kernel for {:?} on {gpu:?}", self.problem));
        (*found.0, found.1)
    }

    fn running<'a>(&'a self, gpu: &'a Gpu) -> impl Iterator<Item = &'static Variant> + 'a {
        let running = || self.table.iter().filter(|variant| variant.runs(gpu, &self.problem));
        let is_asked = |variant: &&Variant| gpu.kernel == Some(variant.kernel);
        let only = running().find(is_asked).map(|variant| variant.kernel);
        running().filter(move |variant| only.is_none_or(|kernel| variant.kernel == kernel))
    }

    fn cycles(&self, gpu: &Gpu, variant: &Variant, splits: usize) -> f64 {
        cycles(gpu, variant, &self.problem, splits, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::super::variants::FORWARD;
    use super::*;

    const PROBLEM: Problem =
        Problem { extents: [806_400, 256], classes: 1, k_blocks: 72, aligned: true };

    fn forward(gpu: &Gpu) -> GemmLaunch {
        GemmLaunch::new(FORWARD, gpu, (PROBLEM, 806_400 * 256))
    }

    #[test]
    fn forced_kernel_is_chosen_only_where_supported() {
        let taken = |gpu: &Gpu| forward(gpu).chosen(gpu).0.kernel;
        let with = |gpu: Gpu, kernel| Gpu { kernel: Some(kernel), ..gpu };
        assert_eq!(taken(&with(Gpu::h100(), "conv2d_f16_wide")), "conv2d_f16_wide");
        // wgmma kernels are not used on an A100, nor on a GPU on which their self-test failed.
        for gpu in [Gpu::a100(), Gpu { wgmma: false, ..Gpu::h100() }] {
            assert_eq!(taken(&with(gpu.clone(), "conv2d_f16_wide")), taken(&gpu));
        }
        assert_eq!(taken(&with(Gpu::h100(), "conv2d_grad_input_f16")), taken(&Gpu::h100()));
    }
}
