//! Gradients are added and masked in the epilogue of the GEMM that computes one of the terms: `dx =
//! (gemm + other) where y > 0`, in place of a [`Sum`] and a [`ReluMask`].

use kernels::ops::relu_mask::ReluMask;
use kernels::ops::sum::Sum;
use kernels::{Fusion, GradEpilogue};

use super::{Uses, is, rename, sweep};
use crate::{Program, TensorId};

/// Fuses sums of gradients, then ReLU masks, into the GEMMs that compute the gradients (ops with a
/// [`GradEpilogue`]).
///
/// If several GEMM results are terms of a sum, each GEMM adds the result of the previous GEMM, and
/// the last one applies the mask. A sum keeps the terms that no GEMM can add: terms that are
/// computed after the GEMM, and terms that may have data in rows past the GEMM's row count.
pub fn grad_mask_add(program: &mut Program) {
    add(program, true);
    mask(program);
}

/// Fuses sums of gradients into ops that compute one of the terms: into GEMMs if `products` is set,
/// otherwise into all other ops.
pub(super) fn add(program: &mut Program, products: bool) {
    sweep(program, |program, uses, sum| {
        if !is::<Sum>(program, sum) {
            return None;
        }
        let mut terms = program.nodes[sum].inputs.clone();
        terms.sort_by_key(|term| uses.writer(*term));
        // Terms that no GEMM adds yet, in the order of the nodes that write them.
        let mut left: Vec<TensorId> = vec![];
        for term in terms {
            if let Some(&other) = left.last()
                && uses.writer(term).is_some_and(|node| is_gemm(program, node) == products)
                && uses.is_only_for(term, sum)
                && take(program, uses, term, other)
            {
                left.pop();
            }
            left.push(term);
        }
        if left.len() == program.nodes[sum].inputs.len() {
            return None;
        }
        if let [all] = left[..] {
            rename(program, uses, all, sum);
            return Some(sum);
        }
        program.nodes[sum].inputs = left;
        None
    });
}

fn is_gemm(program: &Program, node: usize) -> bool {
    program.nodes[node].op.traits().on_tensor_cores
}

/// Makes the GEMM that writes `term` add `other`; returns false if this is not possible.
fn take(program: &mut Program, uses: &Uses, term: TensorId, other: TensorId) -> bool {
    let Some(writer) = uses.writer(term) else { return false };
    match program.nodes[writer].op.traits().epilogue {
        Some(epilogue @ GradEpilogue { other: false, mask: false }) => {
            set_epilogue(program, writer, GradEpilogue { other: true, ..epilogue }, other)
        }
        _ => false,
    }
}

fn mask(program: &mut Program) {
    sweep(program, |program, uses, relu| {
        let &[gradient, activation] = program.nodes[relu].inputs.as_slice() else { return None };
        let writer = uses.writer(gradient)?;
        let early = uses.writer(activation) < Some(writer);
        if !is::<ReluMask>(program, relu) || !early || !uses.is_only_for(gradient, relu) {
            return None;
        }
        let epilogue =
            program.nodes[writer].op.traits().epilogue.filter(|epilogue| !epilogue.mask)?;
        if !set_epilogue(program, writer, GradEpilogue { mask: true, ..epilogue }, activation) {
            return None;
        }
        rename(program, uses, gradient, relu);
        Some(relu)
    });
}

/// Sets the epilogue of the op at `node`, with `input` appended to its inputs; returns false if the
/// op does not support it.
fn set_epilogue(
    program: &mut Program,
    node: usize,
    epilogue: GradEpilogue,
    input: TensorId,
) -> bool {
    let node = &mut program.nodes[node];
    let Some(op) = node.op.fused(Fusion::GradEpilogue(epilogue)) else { return false };
    node.op = op;
    node.inputs.push(input);
    true
}
