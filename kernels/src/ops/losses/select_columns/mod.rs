//! Selects one of several groups of columns in each row, such as the box deltas of the row's class
//! or anchor.

mod cases;

use device::{BLOCK, Launch, LaunchArgs};
use rayon::prelude::*;

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{BackwardRule, OpError, Sink, Source, TensorDesc, check, op};

pub use cases::cases;

op! {
    /// Selects a group of columns by one index per row. A copy: exact.
    #[derive(Copy, Eq)]
    pub struct SelectColumns = "select_columns" {
        /// Columns per group.
        pub width: usize,
        /// Take the index modulo the number of groups.
        pub modulo: bool,
    }
    in SelectColumnsInputs {
        /// n groups of columns.
        x: real "[M, n*width]",
        /// One group index per row: M elements, in any shape.
        index: i32 "[..]",
    }
    out {
        /// Columns `index*width .. (index+1)*width` of the row, with `modulo` using `index % n`; 0
        /// where the index is negative. Has the role of `x`.
        y: Activation "[M, width]",
    }
}

/// First column of the group with this index; `None` if the index is negative.
fn first_column(index: i32, width: usize, columns: usize, modulo: bool) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let groups = columns / width;
    let group = if modulo { index % groups } else { index };
    assert!(group < groups, "select_columns: index {index} of {groups} groups");
    Some(group * width)
}

/// Fails unless `columns` is a positive multiple of `width`.
fn check_columns(op: &'static str, width: usize, columns: usize) -> Result<(), OpError> {
    let fits = width > 0 && columns > 0 && columns.is_multiple_of(width);
    check::parameter(op, "width", fits, &format!("a divisor of {columns} columns"), width)
}

impl Kernel for SelectColumns {
    const KEEPS_ROLE: bool = true;

    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_columns(dims.op(), self.width, inputs[0].dim(1))?;
        check::len(dims.op(), "index", &inputs[1], dims.get("M"))
    }

    fn backward(&self, inputs: &[TensorDesc]) -> BackwardRule {
        let grad = SelectColumnsGrad {
            width: self.width,
            modulo: self.modulo,
            columns: inputs[0].shape[1],
        };
        BackwardRule::default().step(
            grad,
            &[Source::GradOutput(0), Source::Input(1)],
            &[Sink::GradInput(0)],
        )
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let (x, y) = (args.inputs[0], args.outputs[0]);
        vec![
            Launch::over("select_columns_f16", y.len())
                .tensors(args)
                .int(self.width)
                .int(x.dim(1))
                .arg(self.modulo)
                .len(y.len()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let columns = args.inputs[0].shape()[1];
        let (x, index) = (args.inputs[0].f32(), args.inputs[1].i32());
        for (row, y) in args.outputs[0].f32().chunks_exact_mut(self.width).enumerate() {
            match first_column(index[row], self.width, columns, self.modulo) {
                Some(first) => y.copy_from_slice(&x[row * columns + first..][..self.width]),
                None => y.fill(0.0),
            }
        }
    }
}

op! {
    /// Scatters a gradient to the columns that were selected.
    #[derive(Copy, Eq)]
    pub struct SelectColumnsGrad = "select_columns_grad" {
        /// Columns per group.
        pub width: usize,
        /// Take the index modulo the number of groups.
        pub modulo: bool,
        /// Columns of x, over all groups.
        pub columns: usize,
    }
    in SelectColumnsGradInputs {
        /// Gradient of the selected columns.
        grad_output: real "[M, width]",
        /// One group index per row: M elements, in any shape.
        index: i32 "[..]",
    }
    out {
        /// 0 in the columns that were not selected.
        grad_x: Gradient "[M, columns]",
    }
}

/// Elements of the gradient that a thread writes: one 16-byte store of halves.
const VECTOR: usize = 8;

impl Kernel for SelectColumnsGrad {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        check_columns(dims.op(), self.width, self.columns)?;
        check::len(dims.op(), "index", &inputs[1], dims.get("M"))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let grad_x = args.outputs[0];
        let blocks = grad_x.len().div_ceil(VECTOR * BLOCK as usize);
        vec![
            Launch::new("select_columns_backward_f16", [blocks, 1, 1])
                .tensors(args)
                .int(self.width)
                .int(self.columns)
                .arg(self.modulo)
                .len(grad_x.len()),
        ]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let (g, index) = (args.inputs[0].f32(), args.inputs[1].i32());
        let grad_x = args.outputs[0].f32();
        grad_x.par_chunks_mut(self.columns).enumerate().for_each(|(row, grad_x)| {
            grad_x.fill(0.0);
            if let Some(first) = first_column(index[row], self.width, self.columns, self.modulo) {
                let g = &g[row * self.width..][..self.width];
                grad_x[first..first + self.width].copy_from_slice(g);
            }
        });
    }
}
