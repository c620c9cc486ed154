//! Gradients are added and masked by the products that make them: `dx = (product + other) where y >
//! 0`, in place of a [`Sum`] and a [`ReluMask`].

use kernels::ops::relu_mask::ReluMask;
use kernels::ops::sum::Sum;
use kernels::{Finish, Fusion};

use super::{Uses, is, remove, rename};
use crate::{Program, TensorId};

/// Puts sums of gradients, then the masks of ReLUs, into the products that make the gradients (ops
/// that have a [`Finish`]).
///
/// Where several products meet in a sum, each adds the one before it, and the last masks. A sum
/// keeps the terms that no product can take: those computed after it, and those that may hold data
/// past the product's count.
pub fn grad_mask_add(program: &mut Program) {
    add(program, true);
    mask(program);
}

/// Puts sums of gradients into the ops that make one of them: those that are products, or those
/// that are not.
pub(super) fn add(program: &mut Program, products: bool) {
    let uses = Uses::of(program);
    let mut done = vec![];
    for sum in 0..program.nodes.len() {
        if !is::<Sum>(program, sum) {
            continue;
        }
        let mut terms = program.nodes[sum].inputs.clone();
        terms.sort_by_key(|term| uses.writer(*term));
        // Terms that no product has taken yet, in the order of their nodes.
        let mut left: Vec<TensorId> = vec![];
        for term in terms {
            if let Some(&other) = left.last()
                && uses.writer(term).is_some_and(|node| is_product(program, node) == products)
                && uses.is_only_for(term, sum)
                && take(program, &uses, term, other)
            {
                left.pop();
            }
            left.push(term);
        }
        match (left.as_slice(), program.nodes[sum].inputs.len()) {
            ([all], 2..) => {
                rename(program, &uses, *all, sum);
                done.push(sum);
            }
            _ if left.len() < program.nodes[sum].inputs.len() => {
                program.nodes[sum].inputs = left;
            }
            _ => {}
        }
    }
    remove(program, &done);
}

fn is_product(program: &Program, node: usize) -> bool {
    program.nodes[node].op.traits().on_tensor_cores
}

/// Lets the product that writes `term` add `other`; false if it cannot.
fn take(program: &mut Program, uses: &Uses, term: TensorId, other: TensorId) -> bool {
    let Some(writer) = uses.writer(term) else { return false };
    let count = |node: usize| {
        let node = &program.nodes[node];
        node.op.traits().count_input.map(|input| node.inputs[input])
    };
    let fits = count(writer).is_none()
        || uses.writer(other).is_some_and(|node| count(node) == count(writer));
    match program.nodes[writer].op.traits().finish {
        Some(finish @ Finish { other: false, mask: false }) if fits => {
            finish_with(program, writer, Finish { other: true, ..finish }, other)
        }
        _ => false,
    }
}

fn mask(program: &mut Program) {
    let uses = Uses::of(program);
    let mut done = vec![];
    for relu in 0..program.nodes.len() {
        let &[gradient, activation] = program.nodes[relu].inputs.as_slice() else { continue };
        let Some(writer) = uses.writer(gradient) else { continue };
        let early = uses.writer(activation) < Some(writer);
        if !is::<ReluMask>(program, relu) || !early || !uses.is_only_for(gradient, relu) {
            continue;
        }
        if let Some(finish @ Finish { mask: false, .. }) = program.nodes[writer].op.traits().finish
            && finish_with(program, writer, Finish { mask: true, ..finish }, activation)
        {
            rename(program, &uses, gradient, relu);
            done.push(relu);
        }
    }
    remove(program, &done);
}

/// Gives the op at `node` this finish, whose last tensor is `input`; false if it cannot have it.
fn finish_with(program: &mut Program, node: usize, finish: Finish, input: TensorId) -> bool {
    let node = &mut program.nodes[node];
    let Some(op) = node.op.fused(Fusion::Finish(finish)) else { return false };
    node.op = op;
    node.inputs.push(input);
    true
}
