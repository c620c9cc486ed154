//! Bias gradients are computed by the op that writes the output gradient, in place of a separate
//! [`BiasGrad`].

use kernels::Fusion;
use kernels::ops::bias_grad::BiasGrad;

use super::{is, sweep};
use crate::Program;

/// Fuses each [`BiasGrad`] into the op whose first output is the gradient that it sums, if that op
/// supports [`Fusion::BiasGrad`] and reads the same row count.
pub fn bias_gradients(program: &mut Program) {
    sweep(program, |program, uses, node| {
        if !is::<BiasGrad>(program, node) {
            return None;
        }
        let (gradient, sum) = (program.nodes[node].inputs[0], program.nodes[node].outputs[0]);
        let writer = uses.writer(gradient).filter(|w| program.nodes[*w].outputs[0] == gradient)?;
        let write = &program.nodes[writer];
        let count = write.op.traits().count_input.map(|input| write.inputs[input]);
        if count != program.nodes[node].inputs.get(1).copied() {
            return None;
        }
        program.nodes[writer].op = program.nodes[writer].op.fused(Fusion::BiasGrad)?;
        program.nodes[writer].outputs.push(sum);
        Some(node)
    });
}
