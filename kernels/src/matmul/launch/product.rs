//! A product of a plan: its name in tables of tuning, and the kernels and splits that compute it.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fmt;

use device::{Choice, Gpu, Precision};

use super::cost::cycles;
use super::variants::{Problem, Variant};
use crate::matmul::ConvShape;

/// k-blocks of a split, at least, to be worth its partial sums.
const MIN_SPLIT_K_BLOCKS: usize = 8;
/// Splits of a reduction: one tile still fills the largest GPU.
const MAX_SPLITS: usize = 288;
/// Waves of blocks that splits are proposed for.
const WAVES: std::ops::RangeInclusive<usize> = 1..=4;
/// A proposal may cost this many times what the best does, by the model.
const WORTH_MEASURING: f64 = 3.0;

/// A product, and the table of kernels that compute it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Product {
    /// Kernels of one pass.
    pub table: &'static [Variant],
    /// The convolution.
    pub shape: ConvShape,
    /// The sizes that conditions of kernels look at.
    pub problem: Problem,
    /// Elements of the output.
    pub len: usize,
    /// Splits of its reduction, at most.
    pub most_splits: usize,
}

/// One product of a launch, as tuning sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its name in tables.
    pub name: String,
    /// The plan's choice.
    pub taken: Choice,
    /// Choices that are worth a measurement, the cheapest by the model first; `taken` may be among
    /// them.
    pub proposals: Vec<Choice>,
}

thread_local! {
    static ASKED: RefCell<Option<Vec<Asked>>> = const { RefCell::new(None) };
}

/// The products of the launches that `make` makes on this thread, once each.
pub(crate) fn asked(make: impl FnOnce()) -> Vec<Asked> {
    ASKED.set(Some(Vec::new()));
    make();
    ASKED.take().unwrap_or_default()
}

impl fmt::Display for Product {
    /// The pass and the sizes: `conv2d_f16 12x200x336x256, 256 of 3x3, stride 1, pad 1`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let first = self.table[0].kernel;
        let pass = first.rsplit_once('_').map_or(first, |(pass, _)| pass);
        let s = &self.shape;
        let map = [s.images, s.height, s.width, s.channels].map(|size| size.to_string()).join("x");
        write!(f, "{pass} {map}, {} of {}x{}", s.filters, s.kernel_h, s.kernel_w)?;
        write!(f, ", stride {}, pad {}", s.stride, s.pad)?;
        match (s.dilation, s.groups) {
            (1, 1) => Ok(()),
            (dilation, groups) => write!(f, ", dilation {dilation}, groups {groups}"),
        }
    }
}

impl Product {
    /// The product of a plan, whose reduction may be split.
    pub(super) fn new(
        table: &'static [Variant],
        gpu: &Gpu,
        shape: &ConvShape,
        (problem, len): (Problem, usize),
    ) -> Self {
        // Kernels of other precisions do not split.
        let most = if gpu.precision == Precision::Fp16 { MAX_SPLITS } else { 1 };
        let most_splits = (problem.k_blocks / MIN_SPLIT_K_BLOCKS).clamp(1, most);
        Self { table, shape: *shape, problem, len, most_splits }
    }

    /// The kernel and the splits of the GPU's tuning, else those of least cost by the model: of
    /// equal ones the first kernel and the fewest splits.
    ///
    /// Panics if no kernel runs: each table has one that always does.
    pub(super) fn chosen(&self, gpu: &Gpu) -> (Variant, usize) {
        if let Some(tuned) = self.tuned(gpu) {
            return tuned;
        }
        let plans = self.running(gpu).flat_map(|variant| {
            let plans = 1..=self.most_splits;
            plans.map(move |splits| (variant, splits, self.cycles(gpu, variant, splits)))
        });
        let least = plans.reduce(|best, plan| if plan.2 < best.2 { plan } else { best });
        let found = least.unwrap_or_else(|| panic!("no kernel for {:?} on {gpu:?}", self.problem));
        (*found.0, found.1)
    }

    /// The tuning's choice, if the plan has it: tables of other kernels, or other shapes, have
    /// others.
    fn tuned(&self, gpu: &Gpu) -> Option<(Variant, usize)> {
        let choices = &gpu.tuning.choices;
        if choices.is_empty() || gpu.precision != Precision::Fp16 {
            return None;
        }
        let choice = choices.get(&self.to_string())?;
        let variant = self.running(gpu).find(|variant| variant.kernel == choice.kernel)?;
        (1..=self.most_splits).contains(&choice.splits).then_some((*variant, choice.splits))
    }

    /// Notes that a launch takes this choice, while [`asked`] listens.
    pub(super) fn take(&self, gpu: &Gpu, variant: &Variant, splits: usize) {
        ASKED.with_borrow_mut(|asked| {
            let Some(asked) = asked else { return };
            let name = self.to_string();
            if asked.iter().all(|known| known.name != name) {
                let taken = Choice { kernel: variant.kernel.into(), splits };
                asked.push(Asked { name, taken, proposals: self.proposals(gpu) });
            }
        });
    }

    /// For each kernel no split, the splits of least cost, and those that fill one to four waves;
    /// of all these the ones that are worth a measurement.
    fn proposals(&self, gpu: &Gpu) -> Vec<Choice> {
        let of_kernel = |variant: &'static Variant| {
            let cost = |splits: usize| self.cycles(gpu, variant, splits);
            let blocks = (variant.tiles(self.problem.extents) * self.problem.classes).max(1);
            let slots = variant.slots(gpu);
            let wave = slots.multiprocessors * slots.blocks;
            let filling = WAVES.map(|waves| (waves * wave / blocks).clamp(1, self.most_splits));
            let cheapest = (1..=self.most_splits).min_by(|a, b| cost(*a).total_cmp(&cost(*b)));
            let splits: BTreeSet<usize> = [1].into_iter().chain(cheapest).chain(filling).collect();
            let choice = |splits| Choice { kernel: variant.kernel.into(), splits };
            splits.into_iter().map(|splits| (cost(splits), choice(splits))).collect::<Vec<_>>()
        };
        let mut found: Vec<(f64, Choice)> = self.running(gpu).flat_map(of_kernel).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        let worth = found.first().map_or(0.0, |(least, _)| WORTH_MEASURING * least);
        found.into_iter().filter(|(cost, _)| *cost <= worth).map(|(_, choice)| choice).collect()
    }

    fn running<'a>(&'a self, gpu: &'a Gpu) -> impl Iterator<Item = &'static Variant> + 'a {
        self.table.iter().filter(|variant| variant.runs(gpu, &self.problem))
    }

    fn cycles(&self, gpu: &Gpu, variant: &Variant, splits: usize) -> f64 {
        cycles(gpu, variant, &self.problem, splits, self.len)
    }
}

#[cfg(test)]
mod tests {
    use device::Tuning;

    use super::super::variants::{FORWARD, GRAD_WEIGHT};
    use super::*;

    const PROBLEM: Problem =
        Problem { extents: [806_400, 256], classes: 1, k_blocks: 72, aligned: true };

    fn shape() -> ConvShape {
        ConvShape {
            images: 12,
            height: 200,
            width: 336,
            kernel_h: 3,
            kernel_w: 3,
            pad: 1,
            out_height: 200,
            out_width: 336,
            ..ConvShape::matrix(0, 256, 256)
        }
    }

    fn forward(gpu: &Gpu) -> Product {
        Product::new(FORWARD, gpu, &shape(), (PROBLEM, 806_400 * 256))
    }

    fn tuned(gpu: &Gpu, kernel: &str, splits: usize) -> Gpu {
        let choice = Choice { kernel: kernel.into(), splits };
        let choices = [(forward(gpu).to_string(), choice)].into();
        gpu.tuned(Tuning { choices, ..Tuning::default() })
    }

    #[test]
    fn a_product_has_a_name_of_its_pass_and_sizes() {
        let name = forward(&Gpu::a100()).to_string();
        assert_eq!(name, "conv2d_f16 12x200x336x256, 256 of 3x3, stride 1, pad 1");
        let grouped = ConvShape { dilation: 2, groups: 4, ..shape() };
        let product = Product { table: GRAD_WEIGHT, shape: grouped, ..forward(&Gpu::a100()) };
        let name = "conv2d_grad_weight_f16 12x200x336x256, 256 of 3x3, stride 1, pad 1, \
                    dilation 2, groups 4";
        assert_eq!(product.to_string(), name);
    }

    #[test]
    fn a_choice_is_taken_if_it_can_run() {
        let gpu = Gpu::h100();
        let product = forward(&gpu);
        let taken = |gpu: &Gpu| {
            let (variant, splits) = product.chosen(gpu);
            (variant.kernel, splits)
        };
        let model = taken(&gpu);
        assert_eq!(taken(&tuned(&gpu, "conv2d_f16_wide", 3)), ("conv2d_f16_wide", 3));
        for (kernel, splits) in [("conv2d_f16_wide", 10), ("no_kernel", 1), ("conv2d_f16_wide", 0)]
        {
            assert_eq!(taken(&tuned(&gpu, kernel, splits)), model, "{kernel} x {splits}");
        }
        // An A100 has no kernels of warpgroups, nor has a GPU on which they failed.
        let a100 = Gpu::a100();
        assert_eq!(taken(&tuned(&a100, "conv2d_f16_wide", 1)), taken(&a100));
        let fp32 = tuned(&gpu, "conv2d_f16_wide", 3).in_precision(Precision::Fp32);
        assert_ne!(taken(&fp32).0, "conv2d_f16_wide");
    }

    /// Proposals are few, run, differ, and hold the model's choice, the first of all.
    #[test]
    fn proposals_begin_with_the_models_choice() {
        for gpu in [Gpu::a100(), Gpu::h100()] {
            let weight = Problem { extents: [256, 2304], k_blocks: 25_200, ..PROBLEM };
            let weight = Product::new(GRAD_WEIGHT, &gpu, &shape(), (weight, 256 * 2304));
            for product in [forward(&gpu), weight] {
                let proposals = product.proposals(&gpu);
                let (variant, splits) = product.chosen(&gpu);
                assert_eq!(proposals[0], Choice { kernel: variant.kernel.into(), splits });
                assert!((2..40).contains(&proposals.len()), "{proposals:?}");
                let different: BTreeSet<&Choice> = proposals.iter().collect();
                assert_eq!(different.len(), proposals.len());
            }
        }
    }
}
