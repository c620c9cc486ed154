//! The stem of a ResNet on images padded to four channels: `y = relu(conv(x, w) * scale + bias)`
//! with a 7x7 convolution of stride 2.
//!
//! Equals `conv2d` of the first three channels. With four channels a pixel is 8 bytes, and a row of
//! the window, started one pixel further left, is 64 aligned bytes that the GEMM reads directly. No
//! backward rule: the stem is frozen.

mod cases;

use device::{Access, Launch, LaunchArgs};

use crate::contract::{Dims, Kernel};
use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, launch};
use crate::{Cost, OpError, TensorDesc, Traits, check, op};

pub use cases::cases;

op! {
    /// A frozen stem that reads images of [`STORED_CHANNELS`] channels. Compute-bound;
    /// deterministic.
    #[derive(Copy, Eq)]
    pub struct Stem = "stem" {}
    in StemInputs {
        /// Images; W is even, the fourth channel 0.
        x: real "[N, H, W, 4]",
        /// Filters.
        w: real "[K, 7, 7, 3]",
        /// Scale per filter.
        scale: f32 "[K]",
        /// Bias per filter.
        bias: f32 "[K]",
    }
    out {
        /// The map.
        y: Activation "[N, P, Q, K]",
    }
}

/// Rows and columns of the window.
pub const KERNEL: usize = 7;
/// Step between windows.
pub const STRIDE: usize = 2;
/// Channels of an image used by the filters.
pub const CHANNELS: usize = 3;
/// Channels of an image in memory.
pub const STORED_CHANNELS: usize = 4;

const PAD: usize = KERNEL / 2;

/// The convolution of images `[N, H, W, ..]`, which have at least one pixel, with filters `[K,
/// ..]`.
fn conv_shape(x: &TensorDesc, w: &TensorDesc) -> ConvShape {
    let [images, height, width] = [0, 1, 2].map(|i| x.dim(i));
    ConvShape {
        images,
        height,
        width,
        channels: CHANNELS,
        filters: w.dim(0),
        kernel_h: KERNEL,
        kernel_w: KERNEL,
        stride: STRIDE,
        pad: PAD,
        dilation: 1,
        groups: 1,
        out_height: height.div_ceil(STRIDE),
        out_width: width.div_ceil(STRIDE),
    }
}

/// Pixels read per window row: the window and one pixel before it, so that the first column is
/// even.
const PIXELS: usize = KERNEL + 1;

/// Values read per window row; as in `gemm/stem.cuh`.
const ROW: usize = PIXELS * STORED_CHANNELS;

impl Kernel for Stem {
    fn check(&self, inputs: &[TensorDesc], dims: &mut Dims) -> Result<(), OpError> {
        let (x, width) = (&inputs[0], dims.get("W"));
        check::parameter(dims.op(), "W", width.is_multiple_of(2), "even", width)?;
        if dims.get("H*W") == 0 {
            return Err(check::shape_error(dims.op(), "x", x, "at least 1x1 pixels".into()));
        }
        let shape = conv_shape(x, &inputs[1]);
        dims.bind("P", shape.out_height);
        dims.bind("Q", shape.out_width);
        Ok(())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, conv_shape(&inputs[0], &inputs[1]).flops())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// Elements of the images without their fourth channel, and of the scratch memory of the
    /// convolution.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc]) -> usize {
        let shape = conv_shape(&inputs[0], &inputs[1]);
        image_len(&shape) + gather_workspace_len(&shape)
    }

    fn cuda_workspace_bytes(&self, inputs: &[TensorDesc]) -> usize {
        workspace_bytes(&inputs[1])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shape = conv_shape(args.inputs[0].desc, args.inputs[1].desc);
        let StemInputs { x, w, scale, bias } = StemInputs::of(&args.inputs);
        let filters = |access| args.workspace.piece(0, workspace_bytes(w.desc), access);
        let arrange = Launch::over("stem_filters_f16", shape.filters * KERNEL * ROW)
            .arg(w.read())
            .arg(filters(Access::Write))
            .int(shape.filters);
        // In the GEMM a row of the window is one tap of ROW channels.
        let rows = ConvShape { channels: ROW, kernel_w: 1, ..shape };
        let product = launch::stem(args.gpu, &rows)
            .arg(x.read())
            .arg(filters(Access::Read))
            .reads([scale, bias])
            .arg(args.outputs[0].write())
            .arg(launch::conv_arg(&rows));
        vec![arrange, product]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shape = conv_shape(args.inputs[0].desc, args.inputs[1].desc);
        let StemInputs { x, w, scale, bias } = StemInputs::of(&args.inputs);
        let (image, workspace) = args.workspace.split_at_mut(image_len(&shape));
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
        conv_forward(&shape, image, w.f32(), epilogue, args.outputs[0].f32(), workspace);
    }
}

/// Elements of the images without their fourth channel.
fn image_len(s: &ConvShape) -> usize {
    s.images * s.height * s.width * CHANNELS
}

/// Bytes of the filters in the layout that the GEMM reads.
fn workspace_bytes(w: &TensorDesc) -> usize {
    w.dim(0) * KERNEL * ROW * size_of::<u16>()
}
