//! Convolution in NHWC with a fused epilogue: `y = relu(conv(x, w) * scale + bias + residual)`.
//!
//! Matches `torch.nn.functional.conv2d` (cross-correlation, zero padding, no dilation, no groups).
//! `scale` and `bias` may hold a folded frozen batch norm ([`crate::frozen_bn`]).
//!
//! Tensors: `x [N,H,W,C]`, `w [K,R,S,C]`, then those that the flags name, in this order: `scale
//! [K]`, `bias [K]`, `residual [N,P,Q,K]` (or of another size, read at the nearest position, as by
//! `upsample_add`), `count [1] i32` -> `y [N,P,Q,K]`, overwritten, with `P = (H + 2 pad - R) /
//! stride + 1`, and its [`signs`] if the flag is set. With `counted`, images from `count` on get 0.
//!
//! Bound by compute. Sums in f32, in blocks of up to 256 products that depend on the shapes alone:
//! deterministic. Gradients: all inputs but `scale`, which is frozen. At y = 0 the ReLU passes
//! none. Edges: N = 0 and maps that shrink to one window are fine; a window larger than the padded
//! map and kernels of more than 64 taps are refused.

mod cases;
mod cuda;
mod finish_cases;
mod grad_input;
mod grad_weight;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use device::{Gpu, Launch, LaunchArgs};

use crate::check;
use crate::counted::{clear, filled};
use crate::cpu::{CpuArgs, TensorRef};
use crate::matmul::launch;
use crate::matmul::{ConvShape, Epilogue, conv_forward, gather_workspace_len, out_extent};
use crate::ops::bias_grad::BiasGrad;
use crate::ops::relu_mask::ReluMask;
use crate::ops::upsample_add::{UpsampleGrad, enlarge};
use crate::{BackwardRule, Cost, DType, Finish, Fusion, Op, OpError, OpRef};
use crate::{Role, Sink, Source, TensorDesc, Traits, signs};

pub use cases::cases;
pub use grad_input::Conv2dGradInput;
pub use grad_weight::Conv2dGradWeight;

/// `y = relu(conv(x, w) * scale + bias + residual)`, each part if its flag is set.
#[derive(Debug, Clone, PartialEq)]
pub struct Conv2d {
    /// Step between windows, both axes.
    pub stride: usize,
    /// Rows and columns of zeros around the map.
    pub pad: usize,
    /// There is an input `scale [K]`.
    pub scale: bool,
    /// There is an input `bias [K]`.
    pub bias: bool,
    /// There is an input `residual [N,P,Q,K]`.
    pub residual: bool,
    /// The residual is `[N,h,w,K]`, and position `(p, q)` reads `(p h / P, q w / Q)`, rounded down.
    pub nearest: bool,
    /// Negative results become 0.
    pub relu: bool,
    /// The last input is `count [1] i32`, the number of images that hold data.
    pub counted: bool,
    /// There is an output of y's [`signs`].
    pub signs: bool,
}

const NAME: &str = "conv2d";

op_inputs! {
    /// What [`Conv2d`] reads; the optional ones by its flags.
    pub struct Conv2dInputs {
        /// `[N, H, W, C]`.
        x,
        /// `[K, R, S, C]`.
        w,
    }
    optional {
        /// `[K]`.
        scale,
        /// `[K]`.
        bias,
        /// `[N, P, Q, K]`.
        residual,
        /// Images that hold data, `[1]` i32.
        count,
    }
}

impl Conv2d {
    /// A convolution with no epilogue.
    pub fn new(stride: usize, pad: usize) -> Self {
        let (scale, bias, residual, nearest) = (false, false, false, false);
        let (relu, counted, signs) = (false, false, false);
        Self { stride, pad, scale, bias, residual, nearest, relu, counted, signs }
    }

    fn optional(&self) -> [bool; 4] {
        [self.scale, self.bias, self.residual, self.counted]
    }

    fn shape(&self, inputs: &[TensorDesc]) -> Result<ConvShape, OpError> {
        conv_shape(NAME, &inputs[0], &inputs[1], self.stride, self.pad)
    }
}

/// Shape of a residual that is smaller or larger than `y`: with a position, if `y` has one.
fn nearest_shape(residual: &TensorDesc, y: &[usize; 4]) -> Result<[usize; 4], OpError> {
    check::rank(NAME, "residual", residual, "[N, h, w, K]")?;
    let shape = [y[0], residual.dim(1), residual.dim(2), y[3]];
    if residual.is_empty() && y.iter().product::<usize>() > 0 {
        let expected = "[N, h, w, K] with at least one position".into();
        return Err(check::shape_error(NAME, "residual", residual, expected));
    }
    Ok(shape)
}

/// Sizes of the convolution of `x [N,H,W,C]` with `w [K,R,S,C]`, checked.
fn conv_shape(
    op: &'static str,
    x: &TensorDesc,
    w: &TensorDesc,
    stride: usize,
    pad: usize,
) -> Result<ConvShape, OpError> {
    check::rank(op, "x", x, "[N, H, W, C]")?;
    check::rank(op, "w", w, "[K, R, S, C]")?;
    let [n, h, wide, c] = [0, 1, 2, 3].map(|i| x.dim(i));
    sized(op, [n, h, wide, c], w, stride, pad)
}

/// [`conv_shape`] for an input given by its extents.
fn sized(
    op: &'static str,
    [images, height, width, channels]: [usize; 4],
    w: &TensorDesc,
    stride: usize,
    pad: usize,
) -> Result<ConvShape, OpError> {
    let [filters, kernel_h, kernel_w, depth] = [0, 1, 2, 3].map(|i| w.dim(i));
    check::parameter(op, "stride", stride > 0, "at least 1", stride)?;
    let too_many = kernel_h * kernel_w > 64 || kernel_h * kernel_w == 0;
    if depth != channels || too_many {
        let expected = format!("[K, R, S, {channels}] with 1 to 64 taps R * S");
        return Err(check::shape_error(op, "w", w, expected));
    }
    let out_height = out_extent(height, kernel_h, stride, pad);
    let out_width = out_extent(width, kernel_w, stride, pad);
    let (Some(out_height), Some(out_width)) = (out_height, out_width) else {
        let expected =
            format!("a kernel within the padded map, {height} x {width} padded by {pad}");
        return Err(check::shape_error(op, "w", w, expected));
    };
    Ok(ConvShape {
        images,
        height,
        width,
        channels,
        filters,
        kernel_h,
        kernel_w,
        stride,
        pad,
        out_height,
        out_width,
    })
}

/// Shape of tensors that an op runs with: they passed its `infer`.
fn inferred(op: &'static str, shape: Result<ConvShape, OpError>) -> ConvShape {
    match shape {
        Ok(shape) => shape,
        Err(e) => unreachable!("{op} runs only after its shapes were inferred: {e}"),
    }
}

/// Descriptions of a launch's inputs.
fn descs(args: &LaunchArgs<'_>) -> Vec<TensorDesc> {
    args.inputs.iter().map(|t| t.desc.clone()).collect()
}

impl Op for Conv2d {
    fn name(&self) -> &'static str {
        NAME
    }

    fn infer(
        &self,
        inputs: &[TensorDesc],
        updates: &[TensorDesc],
    ) -> Result<Vec<TensorDesc>, OpError> {
        let optional = self.optional();
        let len = Conv2dInputs::LEN + optional.iter().filter(|has| **has).count();
        check::arity(NAME, "inputs", inputs, len)?;
        check::arity(NAME, "updates", updates, 0)?;
        let named = Conv2dInputs::of(inputs, optional);
        let s = self.shape(inputs)?;
        let y = [s.images, s.out_height, s.out_width, s.filters];
        // The gradient of the residual is that of y itself, which only the ReLU clears past count.
        let cleared = !(self.counted && self.residual) || self.relu;
        check::parameter(NAME, "relu", cleared, "true with both counted and residual", self.relu)?;
        let read = match named.residual {
            Some(residual) if self.nearest => nearest_shape(residual, &y)?,
            _ => y,
        };
        for (name, desc, shape) in [
            ("x", Some(named.x), &named.x.shape[..]),
            ("w", Some(named.w), &named.w.shape[..]),
            ("scale", named.scale, &[s.filters][..]),
            ("bias", named.bias, &[s.filters][..]),
            ("residual", named.residual, &read[..]),
        ] {
            if let Some(desc) = desc {
                check::shape(NAME, name, desc, shape)?;
                check::dtype(NAME, name, desc, DType::F32)?;
            }
        }
        if let Some(count) = named.count {
            check::count(NAME, count)?;
        }
        let y = TensorDesc::new(Role::Activation, &y);
        let signs = self.signs.then(|| signs::infer(NAME, "y", &y)).transpose()?;
        Ok([y].into_iter().chain(signs).collect())
    }

    fn cost(&self, inputs: &[TensorDesc], outputs: &[TensorDesc]) -> Cost {
        Cost::streaming(inputs, outputs, self.shape(inputs).map_or(0, |s| s.flops()))
    }

    fn traits(&self) -> Traits {
        Traits { on_tensor_cores: true, ..Traits::default() }
    }

    fn fused(&self, fusion: Fusion) -> Option<OpRef> {
        let op = match fusion {
            Fusion::Signs if !self.signs && !self.nearest => Self { signs: true, ..self.clone() },
            Fusion::UpsampleAdd if !self.residual && !self.relu && !self.counted => {
                Self { residual: true, nearest: true, ..self.clone() }
            }
            _ => return None,
        };
        Some(Arc::new(op))
    }

    fn backward(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> BackwardRule {
        let positions: Vec<usize> = (0..inputs.len()).collect();
        let position = Conv2dInputs::of(&positions, self.optional());
        let (x, w) = (&inputs[0].shape, &inputs[1].shape);
        let (stride, pad, scale, counted) = (self.stride, self.pad, self.scale, self.counted);
        let mut rule = BackwardRule::default();
        let mut g = Source::GradOutput(0);
        if self.relu {
            rule = rule.step(ReluMask, &[g, Source::Output(0)], &[Sink::Temp(0)]);
            g = Source::Temp(0);
        }
        let extra = |positions: &[Option<&usize>]| -> Vec<Source> {
            positions.iter().flatten().map(|&&i| Source::Input(i)).collect()
        };
        let tail = extra(&[position.scale, position.count]);
        let (height, width, finish) = (x[1], x[2], Finish::default());
        let grad_input = Conv2dGradInput { stride, pad, height, width, scale, counted, finish };
        let from = [&[g, Source::Input(1)], &tail[..]].concat();
        rule = rule.step(grad_input, &from, &[Sink::GradInput(0)]);
        let (kernel_h, kernel_w) = (w[1], w[2]);
        let bias_grad = false;
        let grad_weight =
            Conv2dGradWeight { stride, pad, kernel_h, kernel_w, scale, counted, bias_grad };
        let from = [&[Source::Input(0), g], &tail[..]].concat();
        rule = rule.step(grad_weight, &from, &[Sink::GradInput(1)]);
        if let Some(bias) = position.bias {
            let from = [&[g], &extra(&[position.count])[..]].concat();
            rule = rule.step(BiasGrad { counted }, &from, &[Sink::GradInput(*bias)]);
        }
        match position.residual {
            Some(&residual) if self.nearest => {
                let [height, width] = [1, 2].map(|axis| inputs[residual].dim(axis));
                let enlarged = UpsampleGrad { height, width, finish };
                rule = rule.step(enlarged, &[g], &[Sink::GradInput(residual)]);
            }
            Some(&residual) => rule = rule.alias(g, residual),
            None => {}
        }
        rule
    }

    fn cpu_workspace_len(&self, inputs: &[TensorDesc], _outputs: &[TensorDesc]) -> usize {
        self.shape(inputs).map_or(0, |s| gather_workspace_len(&s))
    }

    fn cuda_workspace_bytes(
        &self,
        gpu: &Gpu,
        inputs: &[TensorDesc],
        _outputs: &[TensorDesc],
    ) -> usize {
        self.shape(inputs).map_or(0, |s| launch::forward_workspace_bytes(gpu, &s))
    }

    fn launches(&self, args: &LaunchArgs<'_>) -> Vec<Launch> {
        cuda::launches(self, &inferred(NAME, self.shape(&descs(args))), args)
    }

    fn run_cpu(&self, args: &mut CpuArgs<'_>) {
        let inputs = Conv2dInputs::of(&args.inputs, self.optional());
        let descs: Vec<_> = args.inputs.iter().map(|t| t.desc.clone()).collect();
        let Ok(shape) = self.shape(&descs) else {
            unreachable!("{NAME} runs only after its shapes were inferred");
        };
        let images = filled(inputs.count, shape.images);
        let [height, width] = [shape.out_height, shape.out_width];
        let enlarged = inputs.residual.filter(|_| self.nearest);
        let enlarged = enlarged.map(|residual| enlarge(residual, [height, width]));
        let epilogue = Epilogue {
            scale: inputs.scale.map(TensorRef::f32),
            bias: inputs.bias.map(TensorRef::f32),
            residual: enlarged.as_deref().or(inputs.residual.map(TensorRef::f32)),
            relu: self.relu,
        };
        let shape = shape.with_images(images);
        let (y, rest) = args.outputs[0].f32().split_at_mut(shape.out_positions() * shape.filters);
        let (x, w) = (inputs.x.f32(), inputs.w.f32());
        conv_forward(&shape, x, w, epilogue, y, args.workspace);
        clear(rest);
        if let [y, signs] = &mut args.outputs[..] {
            signs::write(signs.i32(), y.f32(), shape.filters);
        }
    }
}
