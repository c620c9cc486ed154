//! The stem of a ResNet on images with a channel of padding: `y = relu(conv(x, w) * scale + bias)`
//! of a 7x7 convolution of stride 2.
//!
//! Equals `conv2d` of the first three channels. With four a pixel is 8 bytes, and a row of the
//! window, begun one pixel further left, is 64 aligned bytes: the product reads it as it lies.
//! Tensors: `x [N,H,W,4]` (W even; the fourth channel is 0), `w [K,7,7,3]`, `scale [K]`, `bias [K]`
//! (all in) -> `y [N,P,Q,K]`, overwritten. No backward rule: for a frozen stem.
//! Bound by compute; deterministic.

mod cases;

use crate::cpu::CpuArgs;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, launch, out_extent};
use crate::{Cost, Op, OpError, Role, TensorDesc, Traits, check};
use device::{Access, Gpu, Launch, LaunchArgs};

pub use cases::cases;

/// A frozen stem that reads images of [`STORED_CHANNELS`] channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stem;

op_inputs! {
    /// The inputs of [`Stem`].
    pub struct StemInputs {
        /// `[N, H, W, 4]`.
        x,
        /// `[K, 7, 7, 3]`.
        w,
        /// `[K]`.
        scale,
        /// `[K]`.
        bias,
    }
}

/// Rows and columns of the window.
pub const KERNEL: usize = 7;
/// Step between windows.
pub const STRIDE: usize = 2;
/// Channels of an image that the filters see.
pub const CHANNELS: usize = 3;
/// Channels of an image in memory.
pub const STORED_CHANNELS: usize = 4;

const NAME: &str = "stem";
const PAD: usize = KERNEL / 2;

/// The convolution with `filters` of images `[N, H, W, ..]`.
fn conv_shape(x: &TensorDesc, filters: usize) -> Result<ConvShape, OpError> {
    let out = |extent: usize| {
        out_extent(extent, KERNEL, STRIDE, PAD)
            .ok_or_else(|| check::shape_error(NAME, "x", x, "at least 1x1 pixels".into()))
    };
    let [images, height, width] = [0, 1, 2].map(|i| x.dim(i));
    Ok(ConvShape {
        images,
        height,
        width,
        channels: CHANNELS,
        filters,
        kernel_h: KERNEL,
        kernel_w: KERNEL,
        stride: STRIDE,
        pad: PAD,
        dilation: 1,
        groups: 1,
        out_height: out(height)?,
        out_width: out(width)?,
    })
}

/// The convolution of tensors that were checked.
fn checked_shape(x: &TensorDesc, w: &TensorDesc) -> ConvShape {
    match conv_shape(x, w.dim(0)) {
        Ok(shape) => shape,
        Err(_) => unreachable!("{NAME} runs only after its shapes were inferred"),
    }
}

/// Pixels of a row of the window: one before it, so that the first is an even one.
const PIXELS: usize = KERNEL + 1;

/// Values of a row of the window in memory; as in `gemm/stem.cuh`.
const ROW: usize = PIXELS * STORED_CHANNELS;

impl Op for Stem {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        check::arity(NAME, "inputs", inputs, StemInputs::LEN)?;
        check::arity(NAME, "updates", updates, 0)?;
        let StemInputs { x, w, scale, bias } = StemInputs::of(inputs);
        check::floats_ranked(NAME, "x", x, "[N, H, W, 4]")?;
        check::floats(NAME, "x", x, &[x.dim(0), x.dim(1), x.dim(2), STORED_CHANNELS])?;
        check::parameter(NAME, "W", x.dim(2).is_multiple_of(2), "even", x.dim(2))?;
        check::floats_ranked(NAME, "w", w, "[K, 7, 7, 3]")?;
        let filters = w.dim(0);
        check::floats(NAME, "w", w, &[filters, KERNEL, KERNEL, CHANNELS])?;
        check::floats(NAME, "scale", scale, &[filters])?;
        check::floats(NAME, "bias", bias, &[filters])?;
        let s = conv_shape(x, filters)?;
        let y = [s.images, s.out_height, s.out_width, filters];
        Ok(vec![TensorDesc::new(Role::Activation, &y)])
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, checked_shape(&inputs[0], &inputs[1]).flops())
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    /// The image without its fourth channel, and the scratch of the convolution.
    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        let shape = checked_shape(&inputs[0], &inputs[1]);
        image_len(&shape) + gather_workspace_len(&shape)
    }

    fn cuda_workspace_bytes(
        &self,
        _gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        workspace_bytes(&inputs[1])
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        let shape = checked_shape(args.inputs[0].desc, args.inputs[1].desc);
        let shape = &shape;
        let StemInputs { x, w, scale, bias } = StemInputs::of(&args.inputs);
        let filters = |access| args.workspace.piece(0, workspace_bytes(w.desc), access);
        let arrange = Launch::over("stem_filters_f16", shape.filters * KERNEL * ROW)
            .arg(w.read())
            .arg(filters(Access::Write))
            .int(shape.filters);
        // To the product a row of the window is one tap of ROW channels.
        let rows = ConvShape { channels: ROW, kernel_w: 1, ..*shape };
        let product = launch::stem(args.gpu, &rows)
            .arg(x.read())
            .arg(filters(Access::Read))
            .arg(scale.read())
            .arg(bias.read())
            .arg(args.outputs[0].write())
            .arg(launch::conv_arg(&rows));
        vec![arrange, product]
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let shape = checked_shape(args.inputs[0].desc, args.inputs[1].desc);
        let shape = &shape;
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
}

/// Elements of the images without their fourth channel.
fn image_len(s: &ConvShape) -> usize {
    s.images * s.height * s.width * CHANNELS
}

/// Bytes of the filters as the product reads them.
fn workspace_bytes(w: &TensorDesc) -> usize {
    w.dim(0) * KERNEL * ROW * size_of::<u16>()
}
