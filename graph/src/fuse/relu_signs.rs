//! The gradient of a ReLU reads sign bits, one per value, instead of the activation.

use kernels::Fusion;
use kernels::signs::signs_of;

use super::Uses;
use crate::program::TensorKind;
use crate::{Program, TensorId};

/// If an activation masks a gradient (in an op with a [`kernels::GradEpilogue`]), the op that
/// writes the activation gets an additional output of sign bits (if it supports [`Fusion::Signs`]),
/// which the gradient reads as mask.
///
/// Runs after [`super::grad_mask_add`]. If sign bits do not support the activation's shape, the
/// activation itself remains the mask.
pub fn relu_signs(program: &mut Program) {
    let uses = Uses::of(program);
    for writer in 0..program.nodes.len() {
        let Some(&activation) = program.nodes[writer].outputs.first() else { continue };
        let masks = |reader: &usize| mask_of(program, *reader) == Some(activation);
        let readers = uses.readers[activation.index()].iter().copied();
        let readers: Vec<usize> = readers.filter(masks).collect();
        let desc = signs_of(program.desc(activation));
        let op = program.nodes[writer].op.fused(Fusion::Signs);
        let (false, Some(desc), Some(op)) = (readers.is_empty(), desc, op) else { continue };
        let name = program.node_name(crate::NodeId(writer as u32));
        let signs = program.tensor(name, desc, TensorKind::Value);
        program.nodes[writer].op = op;
        program.nodes[writer].outputs.push(signs);
        for reader in readers {
            let mask = program.nodes[reader].inputs.last_mut().expect("a mask");
            *mask = signs;
        }
    }
}

/// The tensor that masks the node's gradient: its last input.
fn mask_of(program: &Program, node: usize) -> Option<TensorId> {
    let node = &program.nodes[node];
    let epilogue = node.op.traits().epilogue?;
    if epilogue.mask { node.inputs.last().copied() } else { None }
}
