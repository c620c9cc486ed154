//! Losses that are a mean over rows: common code for the CPU and the launches.
//!
//! The first input has a value for each row and column; other inputs have values per row. The
//! inputs `labels`, `image_idx`, `num_images` and, if not all rows are in use, `count` are
//! recognised by name. The arguments of the kernels are a struct of the loss (pointers to all
//! inputs but these, then [`RowLoss::parameters`]), and `LossRows` of `cuda/losses.cuh`.

use device::{Access, Arg, Buffer, Launch, LaunchArgs, StructArg};
use rayon::prelude::*;

use super::launch::{MAX_BLOCKS, ROW_THREADS, blocks, loss_gradient, partial_bytes};
use super::rows::{RowWeights, sum_rows};
use crate::contract::{Contract, Declared};
use crate::counted::rows_in_use;
use crate::cpu::{CpuArgs, TensorRef};
use crate::{OpError, TensorDesc, check};

/// Inputs that determine which rows are counted.
const NAMED: [&str; 4] = ["labels", "image_idx", "num_images", "count"];

/// The threads that work on a row.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowLaunch {
    /// One thread; the loss is a single block, the gradient has blocks of this many threads.
    Thread(u32),
    /// A warp.
    Warp,
    /// A block of [`device::BLOCK`] threads; the value is the maximum number of blocks.
    Block(usize),
}

/// A mean over rows. Labels below 0 are ignored.
pub(crate) trait RowLoss: Declared + Clone + Send + Sync {
    /// The threads of a row.
    const LAUNCH: RowLaunch;
    /// FLOPs per element: of the loss, of the gradient.
    const FLOPS: [u64; 2];
    /// Elements per row; `None`: any number from 1 on.
    const COLUMNS: Option<usize> = None;
    /// Smallest label of a row that the mean counts.
    const COUNTED_FROM: i32 = 0;
    /// Smallest label of a row that has a loss.
    const LOSS_FROM: i32;
    /// Rows that a CPU task sums.
    const ROWS_A_TASK: usize = 256;

    /// Number of images whose rows share a mean, and the number of rows per image that the sum is
    /// divided by; `None`: it is divided by the number of counted rows.
    fn mean(&self) -> (usize, Option<usize>);

    /// Adds the parameters of the kernels' struct; a row has `columns` elements.
    fn parameters(&self, arg: StructArg, columns: i32) -> StructArg {
        let _ = columns;
        arg
    }

    /// The weight of a row's loss, given the row's `weight` in the mean.
    fn weight(&self, weight: f64, columns: usize) -> f64 {
        let _ = columns;
        weight
    }

    /// The loss of a row.
    fn loss(&self, inputs: &[TensorRef<'_>], row: usize) -> f64;

    /// The gradient of a row, times `scale`.
    fn gradient(&self, inputs: &[TensorRef<'_>], row: usize, scale: f64, g: &mut [f32]);
}

/// Elements of a row.
pub(crate) fn columns(x: &TensorDesc) -> usize {
    x.shape[1..].iter().product()
}

/// Checks that rows have the number of elements that the loss expects.
pub(crate) fn check_columns<L: RowLoss>(inputs: &[TensorDesc]) -> Result<(), OpError> {
    let (contract, x) = (L::CONTRACT, &inputs[0]);
    if L::COLUMNS.map_or(columns(x) > 0, |wanted| columns(x) == wanted) {
        return Ok(());
    }
    let wanted = L::COLUMNS.map_or("at least one element".into(), |wanted| format!("{wanted}"));
    let expected = format!("{} with {wanted} per row", contract.inputs[0].shape);
    Err(check::shape_error(contract.op, contract.inputs[0].name, x, expected))
}

fn named<'a, T>(contract: &Contract, inputs: &'a [T], name: &str) -> Option<&'a T> {
    contract.inputs.iter().position(|tensor| tensor.name == name).map(|i| &inputs[i])
}

/// The rows of a loss on the CPU.
struct Rows<'a, L> {
    loss: &'a L,
    inputs: &'a [TensorRef<'a>],
    labels: &'a [i32],
    count: usize,
    columns: usize,
    weights: RowWeights<'a>,
}

impl<'a, L: RowLoss> Rows<'a, L> {
    fn new(loss: &'a L, inputs: &'a [TensorRef<'a>]) -> Self {
        let find = |name| named(&L::CONTRACT, inputs, name).map(|tensor| tensor.i32());
        let [labels, image_idx, num_images, count] = NAMED.map(find);
        let [labels, image_idx, num_images] =
            [labels, image_idx, num_images].map(Option::unwrap_or_default);
        let count = count.map_or(labels.len(), |count| rows_in_use(count, labels.len()));
        let (ipg, rows_per_image) = loss.mean();
        let counts = |row: usize| row < count && labels[row] >= L::COUNTED_FROM;
        let weights = RowWeights::over(rows_per_image, ipg, num_images, image_idx, counts);
        Self { loss, inputs, labels, count, columns: columns(inputs[0].desc), weights }
    }

    /// The weight of a row, if it has a loss. Rows without a loss are not read, so that their NaNs
    /// do not propagate.
    fn weight(&self, row: usize) -> Option<f64> {
        let has_loss = row < self.count && self.labels[row] >= L::LOSS_FROM;
        let weight = has_loss.then(|| self.loss.weight(self.weights.of(row), self.columns));
        weight.filter(|weight| *weight > 0.0)
    }
}

/// Computes the loss, the first output.
pub(crate) fn run<L: RowLoss>(loss: &L, args: &mut CpuArgs<'_>) {
    let rows = Rows::new(loss, &args.inputs);
    args.outputs[0].f32()[0] = sum_rows(rows.labels.len(), L::ROWS_A_TASK, |row| {
        rows.weight(row).map_or(0.0, |weight| weight * loss.loss(rows.inputs, row))
    });
}

/// Computes `grad_output` times the gradient of the loss, the first output.
pub(crate) fn run_gradient<L: RowLoss>(loss: &L, grad_output: f32, args: &mut CpuArgs<'_>) {
    let rows = Rows::new(loss, &args.inputs);
    let g = args.outputs[0].f32().par_chunks_mut(rows.columns.max(1)).with_min_len(16);
    g.enumerate().for_each(|(row, g)| match rows.weight(row) {
        Some(weight) => loss.gradient(rows.inputs, row, f64::from(grad_output) * weight, g),
        None => g.fill(0.0),
    });
}

/// Names of a loss's kernels: the loss, its gradient, the sum over blocks.
pub(crate) type Kernels = [&'static str; 3];

/// The kernels' arguments: the struct of the loss, and `LossRows`.
fn arguments<L: RowLoss>(loss: &L, args: &LaunchArgs<'_>) -> [Arg; 2] {
    let contract = L::CONTRACT;
    let inputs = contract.inputs.iter().zip(&args.inputs);
    let own = inputs.filter(|(tensor, _)| !NAMED.contains(&tensor.name));
    let pointers = own.fold(StructArg::new(), |own, (_, input)| own.pointers([input.read()], 1));
    let own = loss.parameters(pointers, columns(args.inputs[0].desc) as i32);
    [own.arg(), rows_argument(&contract, args, L::COUNTED_FROM, loss.mean())]
}

/// `LossRows` of the kernels.
pub(crate) fn rows_argument(
    contract: &Contract,
    args: &LaunchArgs<'_>,
    counted_from: i32,
    (ipg, rows_per_image): (usize, Option<usize>),
) -> Arg {
    let find = |name| named(contract, &args.inputs, name).map_or(Arg::Null, Buffer::read);
    StructArg::new()
        .pointers(NAMED.map(find), NAMED.len())
        .ints([args.inputs[0].dim(0)])
        // If `ipg`, the images per group, does not fit an int, all images are in one group, as with
        // `i32::MAX`.
        .field(i32::try_from(ipg).unwrap_or(i32::MAX))
        .field(counted_from)
        .ints([rows_per_image.unwrap_or(0)])
        .arg()
}

/// Number of blocks over the rows of `x`, and threads per block. At least one block, which writes
/// the loss even if there are no rows.
fn grid<L: RowLoss>(x: &TensorDesc) -> (usize, u32) {
    match L::LAUNCH {
        RowLaunch::Thread(threads) => (blocks(x.dim(0), threads as usize), threads),
        RowLaunch::Warp => (blocks(x.dim(0), ROW_THREADS as usize / 32), ROW_THREADS),
        RowLaunch::Block(most) => (x.dim(0).clamp(1, most), device::BLOCK),
    }
}

/// Scratch bytes of the loss.
pub(crate) fn workspace_bytes<L: RowLoss>(x: &TensorDesc) -> usize {
    match L::LAUNCH {
        RowLaunch::Thread(_) => 0,
        RowLaunch::Warp | RowLaunch::Block(_) => partial_bytes(grid::<L>(x).0),
    }
}

/// The launches of the loss.
pub(crate) fn launches<L: RowLoss>(
    loss: &L,
    [kernel, _, total]: Kernels,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let [own, rows] = arguments(loss, args);
    let out = args.outputs[0].write();
    let most = match L::LAUNCH {
        RowLaunch::Thread(_) => {
            let launch = Launch::new(kernel, [1, 1, 1]).block(ROW_THREADS);
            return vec![launch.arg(own).arg(rows).arg(out)];
        }
        RowLaunch::Warp => MAX_BLOCKS,
        RowLaunch::Block(most) => most,
    };
    let (blocks, threads) = grid::<L>(args.inputs[0].desc);
    let partials = |access| args.workspace.piece(0, partial_bytes(blocks), access);
    let sums = Launch::new(kernel, [blocks, 1, 1]).block(threads);
    let sum = Launch::new(total, [1, 1, 1]).block(most as u32);
    vec![
        sums.arg(own).arg(rows).arg(partials(Access::Write)),
        sum.arg(partials(Access::Read)).int(blocks).arg(out),
    ]
}

/// The launch of the gradient; its last input is the incoming gradient.
pub(crate) fn gradient_launches<L: RowLoss>(
    loss: &L,
    [_, kernel, _]: Kernels,
    args: &LaunchArgs<'_>,
) -> Vec<Launch> {
    let [own, rows] = arguments(loss, args);
    let grad_output = loss_gradient(args.inputs[L::CONTRACT.inputs.len()]);
    let (blocks, threads) = grid::<L>(args.inputs[0].desc);
    let launch = Launch::new(kernel, [blocks, 1, 1]).block(threads);
    vec![launch.arg(own).arg(rows).arg(grad_output).arg(args.outputs[0].write())]
}

/// Declares a [`RowLoss`] and its gradient as ops: `row_loss!(BceLoss, "bce_loss")`.
macro_rules! row_loss {
    ($loss:ident, $name:literal) => {
        const KERNELS: $crate::losses::row_loss::Kernels =
            [concat!($name, "_f16"), concat!($name, "_grad_f16"), concat!($name, "_total")];

        impl $crate::contract::Kernel for $loss {
            const FLOPS: $crate::contract::Flops = $crate::contract::Flops::Input(
                <Self as $crate::losses::row_loss::RowLoss>::FLOPS[0],
            );

            fn check(
                &self,
                inputs: &[$crate::TensorDesc],
                _dims: &mut $crate::contract::Dims,
            ) -> Result<(), $crate::OpError> {
                $crate::losses::row_loss::check_columns::<Self>(inputs)
            }

            fn backward(&self, _inputs: &[$crate::TensorDesc]) -> $crate::BackwardRule {
                $crate::losses::backward_rule(self)
            }

            fn cuda_workspace_bytes(&self, inputs: &[$crate::TensorDesc]) -> usize {
                $crate::losses::row_loss::workspace_bytes::<Self>(&inputs[0])
            }

            fn launches(&self, args: &device::LaunchArgs<'_>) -> Vec<device::Launch> {
                $crate::losses::row_loss::launches(self, KERNELS, args)
            }

            fn run_cpu(&self, args: &mut $crate::cpu::CpuArgs<'_>) {
                $crate::losses::row_loss::run(self, args);
            }
        }

        impl $crate::losses::Loss for $loss {
            const GRAD_NAME: &'static str = concat!($name, "_grad");

            fn grad_flops(inputs: &[$crate::TensorDesc]) -> u64 {
                <Self as $crate::losses::row_loss::RowLoss>::FLOPS[1] * inputs[0].len() as u64
            }

            fn grad_launches(&self, args: &device::LaunchArgs<'_>) -> Vec<device::Launch> {
                $crate::losses::row_loss::gradient_launches(self, KERNELS, args)
            }

            fn run_grad(&self, grad_output: f32, args: &mut $crate::cpu::CpuArgs<'_>) {
                $crate::losses::row_loss::run_gradient(self, grad_output, args);
            }
        }
    };
}
pub(crate) use row_loss;
