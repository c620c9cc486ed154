//! One of several groups of columns of each row: the class's box deltas, or the anchor's.
//!
//! Tensors: `x [M, n*width]` f32, `index` of M i32 in any shape (in) -> `y [M, width]` (role of
//! x, overwritten): columns `index*width .. (index+1)*width` of the row, with `modulo` those of
//! `index % n`; 0 where the index is negative. A copy: exact.

mod cases;
mod cuda;
mod grad;
#[cfg(test)]
mod tests;

use device::{Launch, LaunchArgs};

use crate::check;
use crate::cpu::CpuArgs;
use crate::{BackwardRule, Op, OpError, Sink, Source, TensorDesc};

pub use cases::cases;
pub use grad::SelectColumnsGrad;

/// Selects a group of columns by an index a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SelectColumns {
    /// Columns of a group.
    pub width: usize,
    /// Take the index modulo the number of groups.
    pub modulo: bool,
}

const NAME: &str = "select_columns";

/// First column of the group that `index` names; none if it is negative.
fn first_column(index: i32, width: usize, columns: usize, modulo: bool) -> Option<usize> {
    let index = usize::try_from(index).ok()?;
    let groups = columns / width;
    let group = if modulo { index % groups } else { index };
    assert!(group < groups, "{NAME}: index {index} of {groups} groups");
    Some(group * width)
}

/// `columns` is a positive multiple of `width`.
fn check_columns(op: &'static str, width: usize, columns: usize) -> Result<(), OpError> {
    let fits = width > 0 && columns > 0 && columns.is_multiple_of(width);
    check::parameter(op, "width", fits, &format!("a divisor of {columns} columns"), width)
}

impl Op for SelectColumns {
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
        check::floats_ranked(NAME, "x", &inputs[0], "[M, n*width]")?;
        let (rows, columns) = (inputs[0].shape[0], inputs[0].shape[1]);
        check_columns(NAME, self.width, columns)?;
        check::integers_in_all(NAME, "index", &inputs[1], rows)?;
        Ok(vec![TensorDesc::new(inputs[0].role, &[rows, self.width])])
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
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
        cuda::launches(self, args)
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
