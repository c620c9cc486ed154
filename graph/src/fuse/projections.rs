//! The last convolution of a bottleneck also computes the shortcut projection.

use std::any::Any;

use kernels::ops::conv2d::{Conv2d, Conv2dInputs};
use kernels::ops::projected::{Projected, ProjectedInputs};
use kernels::{Op, OpRef};

use super::sweep;
use crate::program::Node;
use crate::{Program, TensorId};

/// If the only reader of a 1x1 convolution is another 1x1 convolution that adds it as residual,
/// fuses both into one [`Projected`].
///
/// The result of the projection is then not stored. Use this pass only for GPUs in fp16, since the
/// op exists only in fp16, and after [`super::relu_signs`], since the op takes over all outputs of
/// the second convolution, sign bits included.
pub fn projections(program: &mut Program) {
    sweep(program, |program, uses, node| {
        let (conv, own) = conv_of(&program.nodes[node])?;
        let residual = own.residual?;
        let writer = uses.writer(*residual)?;
        let (projection, from) = conv_of(&program.nodes[writer])?;
        let pointwise = |w: &TensorId| program.desc(*w).shape[1..3] == [1, 1];
        if !uses.is_only_for(*residual, node) || ![own.w, from.w].into_iter().all(pointwise) {
            return None;
        }
        let channels = [own.x, from.x].map(|x| program.desc(*x).dim(-1));
        let op = Projected::of(conv, projection, channels)?;
        let vector = |v: Option<&TensorId>| *v.expect("the op checked that it is there");
        let inputs = ProjectedInputs {
            x: *own.x,
            w: *own.w,
            scale: vector(own.scale),
            bias: vector(own.bias),
            from: *from.x,
            w_from: *from.w,
            scale_from: vector(from.scale),
            bias_from: vector(from.bias),
        };
        program.nodes[node].op = OpRef::from(Box::new(op) as Box<dyn Op>);
        program.nodes[node].inputs = inputs.into();
        Some(writer)
    });
}

/// The convolution of a node, with its inputs.
fn conv_of(node: &Node) -> Option<(&Conv2d, Conv2dInputs<&TensorId>)> {
    let conv = (node.op.as_ref() as &dyn Any).downcast_ref::<Conv2d>()?;
    let has = [conv.scale, conv.bias, conv.residual, conv.counted];
    Some((conv, Conv2dInputs::of(&node.inputs, has)))
}
