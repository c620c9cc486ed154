//! Several nodes that compute gradients of the same tensors become one node that computes the sums
//! of these gradients.

use kernels::OpRef;
use kernels::ops::sum::Sum;

use super::{Uses, is, remove};
use crate::{Program, TensorId};

/// Replaces the nodes whose ops `takes` accepts by a single node. `join` builds the new op from the
/// ops of these nodes, and returns the positions of the nodes in the order in which the new node
/// reads their inputs. Output `i` of the new node is the sum of the replaced nodes' outputs `i`,
/// where they exist. This output replaces the [`Sum`] of the outputs, or becomes one of its terms
/// if the [`Sum`] has additional terms.
///
/// The program does not change if fewer than two nodes match, if `join` returns `None`, or if a
/// node other than these sums needs an output.
pub fn join_gradients(
    program: &mut Program,
    takes: impl Fn(&OpRef) -> bool,
    join: impl Fn(&[OpRef]) -> Option<(OpRef, Vec<usize>)>,
) {
    let parts: Vec<usize> =
        (0..program.nodes.len()).filter(|i| takes(&program.nodes[*i].op)).collect();
    let ops: Vec<OpRef> = parts.iter().map(|i| program.nodes[*i].op.clone()).collect();
    let [others @ .., last] = &parts[..] else { return };
    if others.is_empty() {
        return;
    }
    let Some((op, order)) = join(&ops) else { return };
    let uses = Uses::of(program);
    let levels = parts.iter().map(|i| program.nodes[*i].outputs.len()).max().unwrap_or(0);
    let meetings: Option<Vec<JoinedSum>> =
        (0..levels).map(|level| JoinedSum::of(program, &uses, &parts, level)).collect();
    let Some(meetings) = meetings else { return };

    let mut done = others.to_vec();
    let mut outputs = vec![];
    for meeting in meetings {
        outputs.push(meeting.output);
        let Some(sum) = meeting.sum else { continue };
        let node = &mut program.nodes[sum];
        if node.inputs.len() == meeting.terms.len() {
            done.push(sum);
        } else {
            node.inputs.retain(|t| *t == meeting.output || !meeting.terms.contains(t));
        }
    }
    let inputs = order.iter().flat_map(|i| program.nodes[parts[*i]].inputs.clone()).collect();
    let node = &mut program.nodes[*last];
    (node.op, node.inputs, node.outputs) = (op, inputs, outputs);
    remove(program, &done);
}

/// The outputs of the joined nodes at one output index, and the tensor that replaces them.
struct JoinedSum {
    terms: Vec<TensorId>,
    /// The node that adds the terms, if there are several.
    sum: Option<usize>,
    /// The tensor that the joined node writes.
    output: TensorId,
}

impl JoinedSum {
    /// `None` if a node other than the sum reads one of several terms, or if a single term is read
    /// before the last joined node.
    fn of(program: &Program, uses: &Uses, parts: &[usize], level: usize) -> Option<Self> {
        let outputs = parts.iter().map(|i| &program.nodes[*i].outputs);
        let terms: Vec<TensorId> = outputs.filter_map(|o| o.get(level)).copied().collect();
        let last = parts.last()?;
        if let &[output] = &terms[..] {
            let late = uses.readers[output.index()].iter().all(|reader| reader > last);
            return late.then_some(Self { terms, sum: None, output });
        }
        let sum = *uses.readers[terms.first()?.index()].first()?;
        let node = &program.nodes[sum];
        let meets = is::<Sum>(program, sum) && terms.iter().all(|t| uses.is_only_for(*t, sum));
        let whole = node.inputs.len() == terms.len();
        let output = if whole { node.outputs[0] } else { terms[0] };
        meets.then_some(Self { terms, sum: Some(sum), output })
    }
}
