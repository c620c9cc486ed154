//! Bias gradient: the sum of a gradient over all but its last dimension.

mod cases;

use device::{Access, Arg, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::column_sums::Chunks;
use crate::contract::{Flops, Kernel};
use crate::counted::used_rows;
use crate::cpu::CpuArgs;
use crate::isa::{Isa, wide};
use crate::{DType, TensorDesc, op};

pub use cases::cases;

op! {
    /// `db[k] = sum of g[.., k]`. Memory-bound. Groups of 64 rows are summed in f32 and the groups
    /// in f64, in order: deterministic.
    pub struct BiasGrad = "bias_grad" {
        /// The last input is `count [1] i32`.
        pub counted: bool,
    }
    in BiasGradInputs {
        /// A gradient.
        g: float "[M, .., K]",
    }
    optional {
        /// Number of the M rows that contribute.
        count: i32 "[1]" if |op| op.counted,
    }
    out {
        /// Sum of `g` over all but the last dimension.
        db: WeightGradient "[K]",
    }
}

impl Kernel for BiasGrad {
    const FLOPS: Flops = Flops::Input(1);

    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let width = inputs[0].dim(-1);
        workspace_len(inputs[0].len() / width.max(1), width)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        let g = &inputs[0];
        chunks(g).bytes()
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (g, db) = (args.inputs[0], args.outputs[0]);
        let count = args.inputs.get(1).map_or(Arg::Null, |count| count.read());
        let (chunks, width) = (chunks(g.desc), g.dim(-1));
        let inner = chunks.rows.checked_div(g.dim(0)).unwrap_or(0);
        let partial = |access| args.workspace.piece(0, chunks.bytes(), access);
        let kernels = match g.dtype() {
            DType::F16 => ["bias_grad_partial_f16x8", "bias_grad_partial_f16"],
            _ => ["bias_grad_partial_f32x8", "bias_grad_partial_f32"],
        };
        let sums = chunks.launch(kernels).arg(g.read()).arg(count.clone());
        let sums = sums.arg(partial(Access::Write));
        let total = Chunks::total_of(partial(Access::Read), count, db, width);
        let sizes = |launch: Launch| launch.int(g.dim(0)).int(inner).int(width).int(chunks.chunk);
        vec![sizes(sums), sizes(total)]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let BiasGradInputs { g, count } = BiasGradInputs::of(&args.inputs, [self.counted]);
        let rows = used_rows(count, g.shape()[0]);
        let len = g.shape()[1..].iter().product::<usize>() * rows;
        sum_rows(&g.f32()[..len], args.outputs[0].f32(), args.workspace);
    }
}

fn chunks(g: &TensorDesc) -> Chunks {
    let rows = g.shape[..g.shape.len() - 1].iter().product::<usize>();
    Chunks::of(rows, g.dim(-1))
}

/// Rows per task, summed in groups of [`GROUP`].
const TASK: usize = 512;

/// Rows per f32 sum.
const GROUP: usize = 64;

/// Scratch elements for `rows` rows of `width` elements.
pub(crate) fn workspace_len(rows: usize, width: usize) -> usize {
    rows.div_ceil(GROUP) * width
}

/// `sums[k] = sum over rows of g[row][k]`; each row has the length of `sums`.
pub(crate) fn sum_rows(g: &[f32], sums: &mut [f32], workspace: &mut [f32]) {
    let width = sums.len();
    if width == 0 {
        return;
    }
    let partial = &mut workspace[..workspace_len(g.len() / width, width)];
    let isa = Isa::get();
    let tasks = partial.par_chunks_mut(TASK / GROUP * width).zip(g.par_chunks(TASK * width));
    tasks.for_each(|(partial, g)| {
        let groups = g.chunks(GROUP * width);
        for (sum, rows) in partial.chunks_exact_mut(width).zip(groups) {
            add_rows(isa, rows, sum);
        }
    });
    for (k, out) in sums.iter_mut().enumerate() {
        *out = partial.iter().skip(k).step_by(width).map(|&v| f64::from(v)).sum::<f64>() as f32;
    }
}

/// Sum of the elements of `g` in the given `rows` (ascending) of `len` elements each. Bit-identical
/// to [`sum_rows`] for a single column that is 0 in all other rows.
pub(crate) fn sum_of_rows(g: &[f32], len: usize, rows: &[usize]) -> f32 {
    let mut total = 0.0;
    let (mut group, mut sum) = (0, 0.0);
    for at in rows.iter().flat_map(|row| row * len..(row + 1) * len) {
        if at / GROUP != group {
            total += f64::from(sum);
            (group, sum) = (at / GROUP, 0.0);
        }
        sum += g[at];
    }
    (total + f64::from(sum)) as f32
}

wide! {
    /// `sum = sum of the rows`.
    fn add_rows(rows: &[f32], sum: &mut [f32]) {
        sum.fill(0.0);
        for row in rows.chunks_exact(sum.len()) {
            for (sum, v) in sum.iter_mut().zip(row) {
                *sum += v;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Role;
    use crate::case::hand::run;
    use crate::case::{constant, floats};

    /// 0.1 is not exact in f32: a running f32 sum of a million such values is off by about 0.1 %.
    #[test]
    fn bias_grad_of_a_million_rows_stays_accurate() {
        let g = floats(Role::Gradient, &[1_000_000, 1], vec![0.1; 1_000_000]);
        let db = run(&BiasGrad { counted: false }, &[g])[0].as_f32()[0];
        assert!((db - 100_000.0).abs() < 0.2, "{db}");
    }

    #[test]
    fn rows_past_count_do_not_contribute() {
        let g = floats(Role::Gradient, &[3, 1, 2], [1.0, 2.0, 3.0, 4.0, f32::NAN, f32::NAN]);
        let count = constant(&[1], 2);
        let db = run(&BiasGrad { counted: true }, &[g, count]);
        assert_eq!(db[0].as_f32(), [4.0, 6.0]);
    }
}
