//! Convolution weights with a frozen scale are scaled by a single node instead of a launch before
//! each gradient.

use kernels::ops::scale_weights::ScaleWeights;
use kernels::{Fusion, OpRef};

use crate::program::Pass;
use crate::{Program, TensorId};

/// Inserts one [`ScaleWeights`] before the first input gradient that scales its weights; all such
/// gradients then read its outputs.
///
/// The scaled weights stay in memory until their last reader, at most to the end of the step.
pub fn scaled_weights(program: &mut Program) {
    let scaling: Vec<usize> =
        (0..program.nodes.len()).filter(|node| plain(program, *node).is_some()).collect();
    let Some(&first) = scaling.first() else { return };
    let mut pairs: Vec<[TensorId; 2]> = vec![];
    for &node in &scaling {
        let inputs = &program.nodes[node].inputs;
        let pair = [inputs[1], inputs[2]];
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    let outputs = insert(program, first, &pairs, &part_of(program, &scaling));
    for node in scaling.into_iter().map(|node| node + 1) {
        let plain = plain(program, node).expect("it scales its weights");
        let node = &mut program.nodes[node];
        let pair = pairs.iter().position(|pair| *pair == [node.inputs[1], node.inputs[2]]);
        node.op = plain;
        node.inputs[1] = outputs[pair.expect("collected above")];
        node.inputs.remove(2);
    }
}

/// The same op for weights that are already scaled; `None` if the node's op does not scale its
/// weights.
fn plain(program: &Program, node: usize) -> Option<OpRef> {
    program.nodes[node].op.fused(Fusion::ScaledWeights)
}

/// Inserts the [`ScaleWeights`] node at `position`; returns its outputs, one per pair of weights
/// and scale.
fn insert(
    program: &mut Program,
    position: usize,
    pairs: &[[TensorId; 2]],
    part: &str,
) -> Vec<TensorId> {
    let before = program.current();
    program.set_part(part);
    program.set_pass(Pass::Backward);
    let inputs: Vec<TensorId> = [0, 1].iter().flat_map(|i| pairs.iter().map(|p| p[*i])).collect();
    let op = OpRef::from(Box::new(ScaleWeights) as Box<dyn kernels::Op>);
    let outputs = match program.add(op, &inputs, &[]) {
        Ok(outputs) => outputs,
        Err(error) => panic!("weights and scales that a convolution took: {error}"),
    };
    program.restore(before);
    program.nodes[position..].rotate_right(1);
    outputs
}

/// The longest common prefix of the nodes' parts, in complete path components.
fn part_of(program: &Program, nodes: &[usize]) -> String {
    let words = |node: &usize| program.nodes[*node].part.split('.').collect::<Vec<_>>();
    let mut common = words(&nodes[0]);
    for other in nodes.iter().map(words) {
        let same = common.iter().zip(&other).take_while(|(a, b)| a == b).count();
        common.truncate(same);
    }
    common.join(".")
}
