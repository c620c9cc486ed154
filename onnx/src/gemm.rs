//! Convolutions and linear layers, with the axes of their weights reordered.

use graph::{Node, TensorId};
use kernels::cpu::HostTensor;
use kernels::ops::class_masks::{ClassMasks, ClassMasksInputs};
use kernels::ops::conv_transpose::{ConvTranspose, ConvTransposeInputs};
use kernels::ops::conv2d::{Conv2d, Conv2dInputs};
use kernels::ops::linear::{Linear, LinearInputs};

use crate::nodes::{int, ints};
use crate::translation::{OnnxError, Outputs, Translation, edges};

/// `relu(conv(x, w) * scale + bias + residual)`, with the scale folded into the weights.
pub(crate) fn conv2d(op: &Conv2d, t: &mut Translation<'_>, node: &Node) -> Outputs {
    if op.nearest || op.signs {
        return Err(t.refusal());
    }
    let has = [op.scale, op.bias, op.residual, op.counted];
    let Conv2dInputs { x, w, scale, bias, residual, .. } = Conv2dInputs::of(&node.inputs, has);
    let kernel = t.desc(*w).shape[1..3].iter().map(|&side| side as i64).collect::<Vec<_>>();
    let weights = conv_weights(t, *w, scale.copied())?;
    let x = t.edge(*x)?;
    let bias = bias.map(|bias| t.edge(*bias)).transpose()?;
    let inputs: Vec<&str> = [&x, &weights].into_iter().chain(&bias).map(String::as_str).collect();
    let geometry = [
        ints("kernel_shape", &kernel),
        ints("strides", &[op.stride as i64; 2]),
        ints("pads", &[op.pad as i64; 4]),
        ints("dilations", &[op.dilation as i64; 2]),
        int("group", op.groups as i64),
    ];
    let mut y = t.nodes.one("Conv", &inputs, &geometry);
    if let Some(residual) = residual {
        let residual = t.edge(*residual)?;
        y = t.nodes.one("Add", &[&y, &residual], &[]);
    }
    Ok(edges([relu(t, y, op.relu)]))
}

/// A transposed convolution that doubles a map's size.
pub(crate) fn conv_transpose(op: &ConvTranspose, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let ConvTransposeInputs { x, w, b, .. } = ConvTransposeInputs::of(&node.inputs, [op.counted]);
    let values = t.constant(*w)?.clone();
    let kernel = values.desc.dim(1);
    let weights = t.place(*w, "[C, K, R, R]", || Ok(transposed(&values, &[0, 3, 1, 2])))?;
    let (x, b) = (t.edge(*x)?, t.edge(*b)?);
    let geometry = [
        ints("kernel_shape", &[kernel as i64; 2]),
        ints("strides", &[2; 2]),
        ints("pads", &[op.pad as i64; 4]),
    ];
    let y = t.nodes.one("ConvTranspose", &[&x, &weights, &b], &geometry);
    Ok(edges([relu(t, y, op.relu)]))
}

/// A linear layer on vectors or flattened maps.
pub(crate) fn linear(op: &Linear, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let LinearInputs { x, w, b, .. } = LinearInputs::of(&node.inputs, [op.counted]);
    let shape = &t.desc(*x).shape;
    let (values, outputs) = (t.constant(*w)?.clone(), t.desc(*w).dim(0));
    let (mut input, b) = (t.edge(*x)?, t.edge(*b)?);
    let weights = match shape[1..] {
        [h, w_, c] => {
            input = t.nodes.one("Flatten", &[&input], &[int("axis", 1)]);
            t.place(*w, "of flattened maps", || {
                let mut maps = values;
                maps.desc.shape = vec![outputs, h, w_, c];
                let (_, maps) = transposed(&maps, &[0, 3, 1, 2]);
                Ok((vec![outputs, h * w_ * c], maps))
            })?
        }
        [_] => t.edge(*w)?,
        _ => return Err(t.refusal()),
    };
    let y = t.nodes.one("Gemm", &[&input, &weights, &b], &[int("transB", 1)]);
    Ok(edges([relu(t, y, op.relu)]))
}

/// A 1x1 convolution in which each row needs only the output channel of its label: gathers the
/// labels' filters, and multiplies them with the maps.
pub(crate) fn class_masks(_: &ClassMasks, t: &mut Translation<'_>, node: &Node) -> Outputs {
    let ClassMasksInputs { x, w, b, labels, .. } = ClassMasksInputs::of(&node.inputs);
    let [_, height, width, channels] = t.desc(*x).shape[..] else { return Err(t.refusal()) };
    let filters = t.constant(*w)?.clone();
    let filters =
        t.place(*w, "[K, 1, C]", || Ok((vec![filters.desc.dim(0), 1, channels], filters)))?;
    let (x, b, labels) = (t.edge(*x)?, t.edge(*b)?, t.edge(*labels)?);
    let n = &mut t.nodes;
    let filters = n.one("Gather", &[&filters, &labels], &[int("axis", 0)]);
    let maps = n.reshape(&x, &[0, channels, height * width]);
    let logits = n.one("MatMul", &[&filters, &maps], &[]);
    let b = n.one("Gather", &[&b, &labels], &[int("axis", 0)]);
    let b = n.reshape(&b, &[0, 1, 1]);
    let logits = n.one("Add", &[&logits, &b], &[]);
    Ok(edges([n.reshape(&logits, &[0, height, width])]))
}

fn relu(t: &mut Translation<'_>, y: String, relu: bool) -> String {
    if relu { t.nodes.one("Relu", &[&y], &[]) } else { y }
}

/// Converts weights `[K, R, S, C]` to `[K, C, R, S]`, and multiplies each filter by its scale.
fn conv_weights(
    t: &mut Translation<'_>,
    w: TensorId,
    scale: Option<TensorId>,
) -> Result<String, OnnxError> {
    let mut values = t.constant(w)?.clone();
    let scale = scale.map(|scale| t.constant(scale).cloned()).transpose()?;
    t.place(w, "[K, C, R, S]", || {
        if let Some(scale) = scale {
            let filter: usize = values.desc.shape[1..].iter().product();
            let filters = values.as_f32_mut().chunks_exact_mut(filter.max(1));
            for (filter, scale) in filters.zip(scale.as_f32()) {
                filter.iter_mut().for_each(|weight| *weight *= scale);
            }
        }
        Ok(transposed(&values, &[0, 3, 1, 2]))
    })
}

/// Permutes the axes of a tensor with four axes: axis `i` of the result is axis `order[i]` of `x`.
fn transposed(x: &HostTensor, order: &[usize; 4]) -> (Vec<usize>, HostTensor) {
    let shape: [usize; 4] = std::array::from_fn(|i| x.desc.dim(i as isize));
    let strides: [usize; 4] = std::array::from_fn(|i| shape[i + 1..].iter().product());
    let [extents, steps] = [shape, strides].map(|list| order.map(|axis| list[axis]));
    let values = x.as_f32();
    let mut moved = Vec::with_capacity(values.len());
    for a in 0..extents[0] {
        for b in 0..extents[1] {
            for c in 0..extents[2] {
                let first = a * steps[0] + b * steps[1] + c * steps[2];
                moved.extend((0..extents[3]).map(|d| values[first + d * steps[3]]));
            }
        }
    }
    (extents.to_vec(), HostTensor::f32(x.desc.clone(), moved))
}

#[cfg(test)]
mod tests {
    use kernels::cpu::HostTensor;
    use kernels::{Role, TensorDesc};

    use super::transposed;

    #[test]
    fn weights_are_transposed_to_channels_first() {
        // K 1, R 1, S 2, C 3.
        let desc = TensorDesc::new(Role::Weight, &[1, 1, 2, 3]);
        let x = HostTensor::f32(desc, vec![0., 1., 2., 10., 11., 12.]);
        let (shape, moved) = transposed(&x, &[0, 3, 1, 2]);
        assert_eq!(shape, [1, 3, 1, 2]);
        assert_eq!(moved.as_f32(), [0., 10., 1., 11., 2., 12.]);
    }
}
