//! Dead-code elimination: removes nodes whose results are not needed.

use kernels::Fusion;

use crate::Program;

/// Drops every node that updates no state and on which no kept tensor or update depends, and the
/// last output of ops with [`Fusion::DropLast`] if it is not needed. Tensor indices do not change.
pub fn prune(program: &mut Program) {
    let mut needed = vec![false; program.tensors.len()];
    for t in &program.kept {
        needed[t.index()] = true;
    }
    let mut alive = vec![false; program.nodes.len()];
    for (i, node) in program.nodes.iter_mut().enumerate().rev() {
        let live = !node.updates.is_empty() || node.outputs.iter().any(|t| needed[t.index()]);
        if live {
            alive[i] = true;
            let unread = node.outputs.last().is_some_and(|t| !needed[t.index()]);
            if let Some(op) = unread.then(|| node.op.fused(Fusion::DropLast)).flatten() {
                node.op = op;
                node.outputs.pop();
            }
            for t in &node.inputs {
                needed[t.index()] = true;
            }
        }
    }
    let mut keep = alive.into_iter();
    program.nodes.retain(|_| keep.next().unwrap_or(false));
}
