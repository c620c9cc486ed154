//! Fusions: passes that move an elementwise node into the op that writes its input.
//!
//! Each pass matches a pattern of ops in an entire program, after dead nodes are removed, and
//! changes values only by rounding: a value that used to be stored between two nodes stays in f32.
//! A tensor that is kept or has an additional reader is not fused away. Results keep their tensors
//! and therefore their names.

mod bias_gradients;
mod grad_mask_add;
mod join_gradients;
mod projections;
mod relu_signs;
mod scaled_weights;
mod upsample_add;

use kernels::Op;

use crate::{Program, TensorId};

pub use bias_gradients::bias_gradients;
pub use grad_mask_add::grad_mask_add;
pub use join_gradients::join_gradients;
pub use projections::projections;
pub use relu_signs::relu_signs;
pub use scaled_weights::scaled_weights;
pub use upsample_add::upsample_add;

/// The writer and the readers of each tensor of a program, as node positions.
struct Uses {
    writer: Vec<Option<usize>>,
    readers: Vec<Vec<usize>>,
    kept: Vec<bool>,
}

impl Uses {
    fn of(program: &Program) -> Self {
        let len = program.tensors.len();
        let (readers, kept) = (vec![vec![]; len], vec![false; len]);
        let mut uses = Self { writer: program.writers(), readers, kept };
        for (position, node) in program.nodes.iter().enumerate() {
            for t in &node.inputs {
                uses.readers[t.index()].push(position);
            }
        }
        for t in &program.kept {
            uses.kept[t.index()] = true;
        }
        uses
    }

    fn writer(&self, tensor: TensorId) -> Option<usize> {
        self.writer[tensor.index()]
    }

    /// True if only the node `reader` needs the tensor, and reads it once.
    fn is_only_for(&self, tensor: TensorId, reader: usize) -> bool {
        !self.kept[tensor.index()] && self.readers[tensor.index()] == [reader]
    }
}

/// True if the node at this position runs an op of type `T`.
fn is<T: Op>(program: &Program, position: usize) -> bool {
    (program.nodes[position].op.as_ref() as &dyn std::any::Any).is::<T>()
}

/// Calls `absorb` for each node, then drops the nodes that it returns, which have been fused into
/// other nodes.
fn sweep(program: &mut Program, absorb: impl Fn(&mut Program, &Uses, usize) -> Option<usize>) {
    let uses = Uses::of(program);
    let nodes = 0..program.nodes.len();
    let done: Vec<usize> = nodes.filter_map(|node| absorb(program, &uses, node)).collect();
    remove(program, &done);
}

/// Drops the nodes at these positions.
fn remove(program: &mut Program, positions: &[usize]) {
    let mut position = 0;
    program.nodes.retain(|_| {
        position += 1;
        !positions.contains(&(position - 1))
    });
}

/// Makes the node that writes `tensor` write the output tensor of node `of` instead.
fn rename(program: &mut Program, uses: &Uses, tensor: TensorId, of: usize) {
    let output = program.nodes[of].outputs[0];
    let writer = uses.writer(tensor).expect("a node wrote it");
    program.nodes[writer].outputs = vec![output];
}
