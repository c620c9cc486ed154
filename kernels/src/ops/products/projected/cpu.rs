//! CPU reference of `projected`: the projection, and the convolution that adds it.

use super::{Projected, ProjectedInputs};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward};
use crate::signs;

pub(super) fn forward(op: &Projected, [own, from]: &[ConvShape; 2], args: &mut CpuArgs<'_>) {
    let inputs = ProjectedInputs::of(&args.inputs);
    let (first, second) = args.outputs.split_at_mut(1);
    let y = first[0].f32();
    let (projection, workspace) = args.workspace.split_at_mut(y.len());
    let epilogue = Epilogue {
        scale: Some(inputs.scale_from.f32()),
        bias: Some(inputs.bias_from.f32()),
        ..Epilogue::default()
    };
    let (map, filters) = (inputs.from.f32(), inputs.w_from.f32());
    conv_forward(from, map, filters, epilogue, projection, workspace);
    let epilogue = Epilogue {
        scale: Some(inputs.scale.f32()),
        bias: Some(inputs.bias.f32()),
        residual: Some(projection),
        relu: op.relu,
    };
    conv_forward(own, inputs.x.f32(), inputs.w.f32(), epilogue, y, workspace);
    if let [signs] = second {
        signs::write(signs.i32(), y, own.filters);
    }
}
