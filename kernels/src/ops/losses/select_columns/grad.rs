//! Gradient of `select_columns` by x.

use device::{BLOCK, Launch, LaunchArgs};
use rayon::prelude::*;

use super::{check_columns, first_column};
use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::{OpError, TensorDesc, check, op};

op! {
    /// Puts a gradient into the columns that were selected.
    #[derive(Copy, Eq)]
    pub struct SelectColumnsGrad = "select_columns_grad" {
        /// Columns of a group.
        pub width: usize,
        /// Take the index modulo the number of groups.
        pub modulo: bool,
        /// Columns of x, all groups together.
        pub columns: usize,
    }
    in SelectColumnsGradInputs {
        /// Gradient of the selected columns.
        grad_output: real "[M, width]",
        /// A group per row, M in any shape.
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
    fn sizes(&self, dims: &mut Dims) {
        dims.bind("width", self.width);
        dims.bind("columns", self.columns);
    }

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
