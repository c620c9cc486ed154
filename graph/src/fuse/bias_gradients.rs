//! Bias gradients are computed by an op that already writes or reads the output gradient, in place
//! of a separate [`BiasGrad`].

use kernels::Fusion;
use kernels::ops::bias_grad::BiasGrad;

use super::{count_of, is, sweep};
use crate::Program;

/// Fuses each [`BiasGrad`] into the op that writes its input gradient, or else into an op that
/// reads this gradient; the op must support [`Fusion::BiasGrad`] and use the same count of rows.
pub fn bias_gradients(program: &mut Program) {
    sweep(program, |program, uses, node| {
        if !is::<BiasGrad>(program, node) {
            return None;
        }
        let (gradient, sum) = (program.nodes[node].inputs[0], program.nodes[node].outputs[0]);
        let makes = uses.writer(gradient).filter(|w| program.nodes[*w].outputs[0] == gradient);
        let reads = uses.readers[gradient.index()].iter().copied();
        let reads = reads.filter(|r| program.nodes[*r].inputs.get(1) == Some(&gradient));
        let count = program.nodes[node].inputs.get(1).copied();
        let early = |taker: &usize| uses.readers[sum.index()].iter().all(|r| r > taker);
        let mut takers = makes.into_iter().chain(reads).filter(early);
        let (taker, op) = takers.find_map(|taker| {
            let op = program.nodes[taker].op.fused(Fusion::BiasGrad)?;
            (count_of(program, taker) == count).then_some((taker, op))
        })?;
        program.nodes[taker].op = op;
        program.nodes[taker].outputs.push(sum);
        Some(node)
    });
}
