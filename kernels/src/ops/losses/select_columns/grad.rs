//! Gradient of `select_columns` by x.
//!
//! Tensors: `grad_output [M, width]` f32, `index` of M i32 in any shape (in) ->
//! `grad_x [M, columns]` (overwritten; 0 in the columns that were not selected).

use device::{Launch, LaunchArgs};
use rayon::prelude::*;

use super::{SelectColumns, check_columns, cuda, first_column};
use crate::check;
use crate::cpu::CpuArgs;
use crate::{Op, OpError, Role, TensorDesc};

/// Puts a gradient into the columns that were selected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectColumnsGrad {
    /// Columns of a group.
    pub width: usize,
    /// Take the index modulo the number of groups.
    pub modulo: bool,
    /// Columns of x, all groups together.
    pub columns: usize,
}

const NAME: &str = "select_columns_grad";

impl Op for SelectColumnsGrad {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, 2)?;
        check::arity(NAME, "updates", updates, 0)?;
        check_columns(NAME, self.width, self.columns)?;
        let rows = inputs[0].shape.first().copied().unwrap_or(0);
        check::floats(NAME, "grad_output", &inputs[0], &[rows, self.width])?;
        check::integers_in_all(NAME, "index", &inputs[1], rows)?;
        Ok(vec![TensorDesc::new(Role::Gradient, &[rows, self.columns])])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::backward(
            &SelectColumns { width: self.width, modulo: self.modulo },
            self.columns,
            args,
        )
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
