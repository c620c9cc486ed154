//! CPU reference of `stem`: the convolution of the first three channels.

use super::{CHANNELS, STORED_CHANNELS, StemInputs};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward};

/// Elements of the images without their fourth channel.
pub(super) fn image_len(s: &ConvShape) -> usize {
    s.images * s.height * s.width * CHANNELS
}

pub(super) fn forward(shape: &ConvShape, args: &mut CpuArgs<'_>) {
    let StemInputs { x, w, scale, bias } = StemInputs::of(&args.inputs);
    let (image, workspace) = args.workspace.split_at_mut(image_len(shape));
    let pixels = x.f32().as_chunks::<STORED_CHANNELS>().0;
    for (to, from) in image.as_chunks_mut::<CHANNELS>().0.iter_mut().zip(pixels) {
        to.copy_from_slice(&from[..CHANNELS]);
    }
    let epilogue = Epilogue {
        scale: Some(scale.f32()),
        bias: Some(bias.f32()),
        relu: true,
        ..Epilogue::default()
    };
    conv_forward(shape, image, w.f32(), epilogue, args.outputs[0].f32(), workspace);
}
